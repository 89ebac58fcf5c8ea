// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package scene plays scenarios on a standalone kubelet, on the fake runtime or a real runtime, and
// measures kubelets beside each other.
//
// # Model
//
// A [World] is a runtime in its own process, a node, a kubelet, and two witnesses: the runtime's
// history (of a real runtime: its events and lists) is the truth, a [Tracker] on the kubelet's pods
// API has the kubelet's knowledge, with times. A scenario acts and then waits for the required end
// state; after each, the two witnesses are compared: no pod's status is wrong, no container was
// started twice, nobody waits.
//
// A soak plays all of them round after round with [World.Play] and [World.EndRound], which also
// checks whether the kubelet's goroutines grow, and keeps a [Summary].
//
// # Concurrency
//
// A World belongs to a single goroutine. Its tracker has another, which ends with Close.
//
// # Errors
//
// A step that fails panics with the expectation and the observation, which ends its scenario;
// [World.Play] returns the error. Nothing is retried for luck; every wait has a deadline.
package scene
