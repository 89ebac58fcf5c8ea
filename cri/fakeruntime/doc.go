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
//   - the CRI calls, as a kubelet or crictl makes them. A container's lifetime, log and exit code
//     come from annotations of the container or of its pod, or from its command.
//   - the direct methods, for drivers and simulations: [Runtime.AddPod], [Runtime.AddContainer],
//     [Runtime.Start], [Runtime.Exit], [Runtime.Remove], [Runtime.StopSandbox],
//     [Runtime.RemoveSandbox], [Runtime.KillShim] and others, and [Runtime.Populate] for 100,000
//     containers at once.
//
// A [Profile] describes a family of runtimes: the changes with an event, the content of events,
// statuses and lists, the fate of events without a reader. Its quirks were observed in healthy
// runtimes; package test/node/conformance compares the profiles with these runtimes, call by call.
// [Faults] add misbehaviour: lost, late, doubled, reordered or wrong events, streams that end or
// hang, slow, failing, hanging or lying calls, clocks that jump. They can be changed at any time.
// [Runtime.Restart] kills the runtime's process, not the containers.
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
// runtime's calls; [Stats] counts both.
//
// # Errors
//
// The direct methods return [ErrNotFound], [ErrState], [ErrExists], [ErrStart] or [ErrDown],
// wrapped with the ID. The CRI calls answer with the codes of the profile's runtime; for containerd
// NotFound for a missing ID in a read, nothing for stopping or removing an absent ID,
// FailedPrecondition for a name in use, Unknown for a wrong state, and InvalidArgument for an
// incomplete request. Exec, Attach, PortForward and the checkpoints are Unimplemented for want of
// processes, and so are the metrics; ExecSync runs the commands known to containers. The features
// in Status are declared, and not checked.
//
// Every runtime has [WorkloadImage] and [PauseImage]; CreateContainer refuses other images until a
// PullImage, which accepts every valid name.
package fakeruntime
