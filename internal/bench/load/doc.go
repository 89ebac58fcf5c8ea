// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package load makes pods live, die and be replaced on any container runtime, through plain CRI
// calls of the generated client.
//
// # Model
//
// [Driver.Setup] makes a number of pods with long-lived containers. [Driver.Run] then changes them
// at a rate: it replaces a container, runs a short job to its end in a pod, or replaces a whole
// pod, chosen by a seed. Each call that returned is a [Fact]: what a reader of the runtime must see
// from now on. [Driver.Cleanup] removes what carries the run's own label, and nothing else.
//
// [Read] is a full and deep read of the runtime that shares no code with package cri, to judge a
// cache by.
//
// # Concurrency
//
// Run starts a bounded number of goroutines and returns when all have ended. Facts are reported
// from them.
//
// # Errors
//
// A call that fails in the middle of an action breaks its pod, which is then replaced; Run counts
// it and goes on, because runtimes under test fail calls on purpose. Only what makes a load
// impossible (no image, no runtime, a pod that cannot be made at setup) is returned.
package load
