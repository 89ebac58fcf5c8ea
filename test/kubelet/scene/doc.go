// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package scene plays scenarios on a standalone kubelet, on the fake runtime or a real one, and
// measures kubelets beside each other.
//
// # Model
//
// A [World] is a runtime in its own process, a node, a kubelet, and two witnesses: the runtime's
// history (of a real one: its events and lists) says what truly happened, a [Tracker] on the
// kubelet's pods API says what the kubelet came to know, and when. A scenario does something and
// then waits for what must be true in the end; after each, [World.Check] compares the two
// witnesses: no pod's status is wrong, no container was started twice, nobody waits.
//
// A soak plays all of them round after round with [World.Play] and [World.EndRound], which also
// looks whether the kubelet's goroutines grow, and keeps a [Summary].
//
// # Concurrency
//
// A World belongs to one goroutine. Its tracker has one of its own, which ends with Close.
//
// # Errors
//
// Scenarios return errors that say what was expected and what was seen. Nothing is retried for
// luck; every wait has a deadline.
package scene
