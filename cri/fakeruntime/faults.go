// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import "time"

// Faults are the ways in which a runtime misbehaves beyond its [Profile], as plain comparable data:
// a seed and a Faults are a scenario. The zero value misbehaves in nothing. A field that is a
// float64 is a probability from 0 to 1. Each field has a name for text and JSON, which [FaultList]
// gives together with its meaning.
//
// The seed, the fault, and its subject (the container and the kind of event; for calls, the number
// of earlier calls of the method) decide whether a fault strikes, and the interleaving of
// goroutines does not.
type Faults struct {
	// Events, a decision for each event.

	Drop           float64       // drop: the event is never sent
	Duplicate      float64       // duplicate: the event is sent twice
	Delay          float64       // delay: the event is sent DelayBy later, its stamp and payload unchanged
	DelayBy        time.Duration // delay-by: see Delay; 0 means 200 ms
	SwapStartStop  float64       // swap-start-stop: STARTED is held until STOPPED was sent, 100 ms at most, and then carries EXITED
	SwapStopDelete float64       // swap-stop-delete: STOPPED of a container is held until its DELETED was sent, for 100 ms at most
	Stale          float64       // stale: the payload shows the pod's other containers in their previous state, newest stamp
	NilSandbox     float64       // nil-sandbox: the payload has no pod_sandbox_status
	NilStatuses    float64       // nil-statuses: the payload has no containers_statuses
	Oversize       float64       // oversize: the message is padded to OversizeBytes
	OversizeBytes  int           // oversize-bytes: see Oversize; 0 means 17 MiB, more than the kubelet takes
	InvalidEvent   float64       // invalid-event: an unknown event type, no container ID, or text that is not UTF-8
	SilentExit     float64       // silent-exit: a container exits without an event
	StartError     float64       // start-error: StartContainer fails; the container goes EXITED 128 StartError without an event
	SandboxError   float64       // sandbox-error: RunPodSandbox fails and leaves nothing, without an event

	// The event stream.

	Cut           float64 // cut: after an event the stream breaks with Unavailable
	EOF           float64 // eof: after an event the stream ends without an error
	Stall         float64 // stall: after an event the stream stays open and carries nothing any more
	Replay        float64 // replay: a new stream starts with the last ReplayEvents events again
	ReplayEvents  int     // replay-events: see Replay; 0 means 100
	EOFAtOnce     float64 // eof-at-once: a new stream ends at once without an error
	Unimplemented float64 // unimplemented: a new stream fails with Unimplemented

	// The runtime.

	RestartExit    float64       // restart-exit: at a restart a running container exits unseen and comes back as EXITED 255 Unknown
	ExitLag        time.Duration // exit-lag: finished_at is older by this time than the visible exit
	ClockSkew      time.Duration // clock-skew: every stamp of the runtime is off by this much
	ClockStep      time.Duration // clock-step: the runtime's clock jumps by this much, and back, in turns
	ClockStepEvery time.Duration // clock-step-every: the time between two jumps; 0 means 10 s

	// Calls, a decision for each call. A list is ListX and StreamX; a status is PodSandboxStatus,
	// ContainerStatus and stats; a write changes a pod, a container or an image.

	SlowList   time.Duration // slow-list: a list takes this much longer
	SlowStatus time.Duration // slow-status: a status takes this much longer
	SlowWrite  time.Duration // slow-write: a write takes this much longer
	FailList   float64       // fail-list: a list fails with FailCode
	FailStatus float64       // fail-status: a status fails with FailCode
	FailWrite  float64       // fail-write: a write fails with FailCode, before any change
	FailCode   Code          // fail-code: see FailList; 0 means Unknown
	HangList   float64       // hang-list: a list never answers
	CutList    float64       // cut-list: a streaming list breaks with Unavailable after its first half
	HangStatus float64       // hang-status: a status never answers
	HangWrite  float64       // hang-write: a write never answers and changes nothing

	// Content of lists and statuses, a decision for each reply.

	NilFields       float64 // nil-fields: an item without metadata, image and creation time
	UnknownEnum     float64 // unknown-enum: an item with a state unknown to any API
	InvalidUTF8     float64 // invalid-utf8: an item with invalid UTF-8
	DuplicateID     float64 // duplicate-id: a list shows an item twice, the second time in another state
	OrphanContainer float64 // orphan-container: a list shows a container of an unknown sandbox
}

const (
	defaultDelayBy        = 200 * time.Millisecond
	defaultOversize       = 17 << 20
	defaultReplayEvents   = 100
	defaultClockStepEvery = 10 * time.Second
	swapHold              = 100 * time.Millisecond
)
