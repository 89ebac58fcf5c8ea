// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package load makes pods live, die and be replaced on any container runtime, through plain CRI
// calls of the generated client.
//
// # Model
//
// [Driver.Setup] makes a number of pods with long-lived containers. [Driver.Run] then changes them
// at a rate: it replaces a container, runs a short job to its end in a pod, or replaces a whole
// pod, chosen by a seed. Each returned call is a [Fact]: a minimum for every later reader of the
// runtime. [Driver.Cleanup] removes everything with the run's own label, and nothing else.
//
// [Read] is a full and deep read of the runtime for judging a cache, without code of package cri.
//
// # Concurrency
//
// Run starts a bounded number of goroutines and returns when all have ended. They report facts.
//
// # Errors
//
// A call that fails in the middle of an action breaks its pod, which is then replaced; Run counts
// the failure and goes on, because runtimes under test fail calls on purpose. Only conditions that
// prevent a load (no image, no runtime, no pod at setup) are returned.
package load
