// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import "time"

// Faults are the ways in which a runtime misbehaves beyond its [Profile], as plain comparable data:
// a seed and a Faults are a scenario. The zero value misbehaves in nothing. A field that is a
// float64 is a probability from 0 to 1. The tags of a field are its name in text, its effect, and
// an example; [FaultList] gives them.
//
// The seed, the fault, and its subject (the container and the kind of event; for calls, the number
// of earlier calls of the method) decide whether a fault strikes, and the interleaving of
// goroutines does not.
type Faults struct {
	// Events, a decision for each event.

	Drop           float64       `fault:"drop" help:"the event is never sent" example:"0.1"`
	Duplicate      float64       `fault:"duplicate" help:"the event is sent twice" example:"0.2"`
	Delay          float64       `fault:"delay" help:"the event is sent delay-by later than others" example:"0.2"`
	DelayBy        time.Duration `fault:"delay-by" help:"how late a delayed event is (default 200ms)"`
	SwapStartStop  float64       `fault:"swap-start-stop" help:"STARTED is sent after STOPPED of a container that exits within 100ms" example:"0.5"`
	SwapStopDelete float64       `fault:"swap-stop-delete" help:"STOPPED is sent after DELETED of a container that is removed within 100ms" example:"0.5"`
	Stale          float64       `fault:"stale" help:"the payload shows the other containers in their previous state under a newer stamp" example:"0.3"`
	NilSandbox     float64       `fault:"nil-sandbox" help:"the payload has no sandbox status" example:"0.2"`
	NilStatuses    float64       `fault:"nil-statuses" help:"the payload has no container statuses" example:"0.2"`
	Oversize       float64       `fault:"oversize" help:"the event is larger than clients take" example:"0.002"`
	OversizeBytes  int           `fault:"oversize-bytes" help:"size of an oversized event (default 17 MiB)"`
	InvalidEvent   float64       `fault:"invalid-event" help:"an unknown event type, no container ID, or invalid UTF-8" example:"0.02"`
	SilentExit     float64       `fault:"silent-exit" help:"a container exits without an event" example:"0.1"`
	StartError     float64       `fault:"start-error" help:"StartContainer fails and leaves EXITED 128 without an event" example:"0.1"`
	SandboxError   float64       `fault:"sandbox-error" help:"RunPodSandbox fails without an event" example:"0.05"`

	// The event stream.

	Cut           float64 `fault:"cut" help:"after an event the stream breaks with Unavailable" example:"0.01"`
	EOF           float64 `fault:"eof" help:"after an event the stream ends without an error" example:"0.01"`
	Stall         float64 `fault:"stall" help:"after an event the stream hangs open and carries nothing" example:"0.002"`
	Replay        float64 `fault:"replay" help:"a new stream starts with old events again" example:"1"`
	ReplayEvents  int     `fault:"replay-events" help:"how many old events are replayed (default 100)"`
	EOFAtOnce     float64 `fault:"eof-at-once" help:"a new stream ends at once" example:"0.5"`
	Unimplemented float64 `fault:"unimplemented" help:"a new stream fails with Unimplemented" example:"0.5"`

	// The runtime.

	RestartExit    float64       `fault:"restart-exit" help:"a running container dies unseen while the runtime restarts" example:"0.3"`
	ExitLag        time.Duration `fault:"exit-lag" help:"finished_at is this much older than the visible exit" example:"120ms"`
	ClockSkew      time.Duration `fault:"clock-skew" help:"the runtime's clock is off by this much" example:"-90s"`
	ClockStep      time.Duration `fault:"clock-step" help:"the runtime's clock jumps by this much and back, in turns" example:"-30s"`
	ClockStepEvery time.Duration `fault:"clock-step-every" help:"time between two jumps (default 10s)"`

	// Calls, a decision for each call. A list is ListX and StreamX; a status is PodSandboxStatus,
	// ContainerStatus and stats; a write changes a pod, a container or an image.

	SlowList   time.Duration `fault:"slow-list" help:"lists take this much longer" example:"50ms"`
	SlowStatus time.Duration `fault:"slow-status" help:"statuses take this much longer" example:"5ms"`
	SlowWrite  time.Duration `fault:"slow-write" help:"changes take this much longer" example:"5ms"`
	FailList   float64       `fault:"fail-list" help:"a list fails with fail-code" example:"0.1"`
	FailStatus float64       `fault:"fail-status" help:"a status fails with fail-code" example:"0.1"`
	FailWrite  float64       `fault:"fail-write" help:"a change fails with fail-code" example:"0.05"`
	FailCode   Code          `fault:"fail-code" help:"the gRPC code of failing calls (default Unknown)"`
	HangList   float64       `fault:"hang-list" help:"a list never answers" example:"0.02"`
	CutList    float64       `fault:"cut-list" help:"a streaming list breaks when half of it was sent" example:"0.05"`
	HangStatus float64       `fault:"hang-status" help:"a status never answers" example:"0.01"`
	HangWrite  float64       `fault:"hang-write" help:"a change never answers" example:"0.01"`

	// Content of lists and statuses, a decision for each reply.

	NilFields       float64 `fault:"nil-fields" help:"an item of a reply has no metadata, image and creation time" example:"0.05"`
	UnknownEnum     float64 `fault:"unknown-enum" help:"an item of a reply has an unknown state" example:"0.05"`
	InvalidUTF8     float64 `fault:"invalid-utf8" help:"an item of a reply has text that is not UTF-8" example:"0.05"`
	DuplicateID     float64 `fault:"duplicate-id" help:"a list shows an item twice, in two states" example:"0.1"`
	OrphanContainer float64 `fault:"orphan-container" help:"a list shows a container of an unknown sandbox" example:"0.1"`
}

const swapHold = 100 * time.Millisecond
