// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakeruntime is a container runtime without containers: a CRI server with pods as data. It
// serves to test, simulate and measure clients of the CRI, above all a pod lifecycle event
// generator, against the behaviour of real runtimes, good and bad.
//
// # Model
//
// A [Runtime] holds sandboxes and containers. A container goes from Created to Running to Exited to
// Removed, a sandbox from Ready to NotReady to Removed; IDs are never used twice. Two hands move
// them:
//
//   - the CRI calls, as a kubelet or crictl makes them. How long a container lives, what it prints
//     to its log file, and with which code it ends, comes from annotations of the container or of
//     its pod, from its command, or from its [Image].
//   - the direct methods, for drivers and simulations: [Runtime.AddPod], [Runtime.AddContainer],
//     [Runtime.Start], [Runtime.Exit], [Runtime.Remove], [Runtime.StopSandbox],
//     [Runtime.RemoveSandbox], [Runtime.KillShim] and others, and [Runtime.Populate] for 100,000
//     containers at once.
//
// A [Profile] says which family of runtimes it behaves like: which changes give an event, what the
// event carries, what happens when a subscriber does not read or nobody subscribes, what a status
// and a list contain. It holds quirks that were observed in healthy runtimes; package
// test/node/conformance holds the profiles against these runtimes, call by call. [Faults] say what
// goes wrong beyond that: events that are lost, late, doubled, out of order or wrong, streams that
// end or hang, calls that are slow, fail, hang or lie, clocks that jump. They can be changed at any
// time. [Runtime.Restart] kills the runtime's process, not the containers.
//
// The runtime knows the truth, whatever it reports: [Runtime.History] is every change of state with
// its time and the fate of its event, [Runtime.Truth] all pods at a moment, [Runtime.Stats] its
// work for clients.
//
// A seed, a profile, faults and the same calls in the same order are the same scenario: IDs, events
// and faults are equal. Actions due at a moment of (virtual) time happen before any call at the
// same moment.
//
// # Concurrency
//
// All methods can be called from any goroutine. A single mutex guards the whole state, and is never
// held while sending or waiting, so that lists work however blocked the event stream is. [New]
// starts nothing; [Runtime.Serve] returns when everything it started has ended; a single timer
// drives all lifetimes and delays, until [Runtime.Close]. All waiting is on channels and timers:
// the package can be used in a testing/synctest bubble, with a bufconn listener made in the bubble.
//
// The direct methods never wait for a client. CRI calls wait for room for their event like a real
// runtime's calls; [BlockedStats] counts both.
//
// # Errors
//
// The direct methods return [ErrNotFound], [ErrState], [ErrExists], [ErrStart] or [ErrDown],
// wrapped with the ID. The CRI calls answer with the codes that the profile's runtime uses; for
// containerd NotFound for a missing ID in a read, nothing for stopping or removing what is not
// there, FailedPrecondition for a name in use, Unknown for a wrong state, and InvalidArgument for a
// request that lacks something. Exec, Attach, PortForward and the checkpoints are Unimplemented,
// because there is no process to talk to, and so are the metrics; ExecSync runs what a container's
// own shell knows. A feature that Status declares has its rules: a user namespace or a recursive
// read-only mount that real runtimes refuse is refused.
//
// Every runtime has [WorkloadImage] and [PauseImage]; a container of another image is refused by
// CreateContainer until PullImage was called for it, which makes any image there is a name for.
// [Config.Images] says what is behind a name: other names of the same image, users, a command.
package fakeruntime
