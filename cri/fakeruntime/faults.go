// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

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
	DropCreated    float64       `fault:"drop-created" help:"the event of a creation is never sent" example:"0.3"`
	DropStarted    float64       `fault:"drop-started" help:"the event of a start is never sent" example:"0.3"`
	DropStopped    float64       `fault:"drop-stopped" help:"the event of an end is never sent" example:"0.3"`
	DropDeleted    float64       `fault:"drop-deleted" help:"the event of a removal is never sent" example:"0.3"`
	Duplicate      float64       `fault:"duplicate" help:"the event is sent twice" example:"0.2"`
	Delay          float64       `fault:"delay" help:"the event is sent delay-by later than others" example:"0.2"`
	DelayBy        time.Duration `fault:"delay-by" help:"how late a delayed event is (default 200ms)"`
	SwapStartStop  float64       `fault:"swap-start-stop" help:"STARTED is sent after STOPPED of a container that exits within 100ms" example:"0.5"`
	SwapStopDelete float64       `fault:"swap-stop-delete" help:"STOPPED is sent after DELETED of a container that is removed within 100ms" example:"0.5"`
	Stale          float64       `fault:"stale" help:"the payload shows the other containers in their previous state under a newer stamp" example:"0.3"`
	NilSandbox     float64       `fault:"nil-sandbox" help:"the payload has no sandbox status" example:"0.2"`
	BarePayload    float64       `fault:"bare-payload" help:"the sandbox status of the payload has no metadata" example:"0.2"`
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
	Replay        float64 `fault:"replay" help:"a new stream starts with old events again, which end and stall no stream" example:"1"`
	ReplayEvents  int     `fault:"replay-events" help:"how many old events are replayed (default 100)"`
	EOFAtOnce     float64 `fault:"eof-at-once" help:"a new stream ends at once" example:"0.5"`
	Unimplemented float64 `fault:"unimplemented" help:"a new stream fails with Unimplemented" example:"0.5"`

	// The runtime.

	RestartExit    float64       `fault:"restart-exit" help:"a running container dies unseen while the runtime restarts" example:"0.3"`
	ExitLag        time.Duration `fault:"exit-lag" help:"finished_at is this much older than the visible exit" example:"120ms"`
	ClockSkew      time.Duration `fault:"clock-skew" help:"the runtime's clock is off by this much" example:"-90s"`
	ClockStep      time.Duration `fault:"clock-step" help:"the runtime's clock jumps by this much and back, in turns" example:"-30s"`
	ClockStepEvery time.Duration `fault:"clock-step-every" help:"time between two jumps (default 10s)"`

	// Content of a status that changes without an event, a decision for each container or sandbox.

	LateReason  float64       `fault:"late-reason" help:"the reason OOMKilled of an end is known late-by later than the end" example:"0.3"`
	LateCode    float64       `fault:"late-code" help:"an end has the exit code 255 until late-by later" example:"0.3"`
	LateAddress float64       `fault:"late-address" help:"a sandbox has its address late-by after its start" example:"0.3"`
	LateBy      time.Duration `fault:"late-by" help:"how late a reason, an exit code or an address is (default 20ms)"`
	LostAddress float64       `fault:"lost-address" help:"a sandbox has no address any more after a restart of the runtime" example:"0.3"`

	// Items that cannot be read, a decision for each container or sandbox.

	FailItem       float64 `fault:"fail-item" help:"the status of a container always fails with fail-code" example:"0.1"`
	HangItem       float64 `fault:"hang-item" help:"the status of a container never answers" example:"0.1"`
	NoCreationTime float64 `fault:"no-creation-time" help:"a container has the creation time 0" example:"0.1"`
	BareSandbox    float64 `fault:"bare-sandbox" help:"a sandbox that is not ready has no metadata" example:"0.3"`
	StaysListed    float64 `fault:"stays-listed" help:"lists show a container for ever after its removal, and its status is not found" example:"0.1"`

	// The runtime's capacity.

	Work       time.Duration `fault:"work" help:"each list and each status takes so much work of the runtime's processors" example:"5ms"`
	Processors int           `fault:"processors" help:"how many processors the calls under way share (default 1)"`
	Throttle   float64       `fault:"throttle" help:"a list or a status waits for the next period of 100 ms, or the one after: the runtime has used up its share of the processors" example:"0.1"`

	// Calls, a decision for each call. A list is ListX and StreamX; a status is PodSandboxStatus,
	// ContainerStatus and stats; a write changes a pod, a container or an image. A list shows what is
	// there when its time is over: what changes between the list of sandboxes and a slower one of
	// containers is in one of the two only.

	SlowList          time.Duration `fault:"slow-list" help:"lists take this much longer" example:"50ms"`
	SlowSandboxList   time.Duration `fault:"slow-sandbox-list" help:"the list of sandboxes takes this much longer, and that of containers does not" example:"400ms"`
	SlowContainerList time.Duration `fault:"slow-container-list" help:"the list of containers takes this much longer, and that of sandboxes does not" example:"400ms"`
	SlowStatus        time.Duration `fault:"slow-status" help:"statuses take this much longer" example:"5ms"`
	SlowContainer     time.Duration `fault:"slow-container" help:"the status of a container takes this much longer, and that of a sandbox does not" example:"400ms"`
	SlowWrite         time.Duration `fault:"slow-write" help:"changes take this much longer" example:"5ms"`
	FailList          float64       `fault:"fail-list" help:"a list fails with fail-code" example:"0.1"`
	FailStatus        float64       `fault:"fail-status" help:"a status fails with fail-code" example:"0.1"`
	FailWrite         float64       `fault:"fail-write" help:"a change fails with fail-code" example:"0.05"`
	FailCode          Code          `fault:"fail-code" help:"the gRPC code of failing calls (default Unknown)"`
	HangList          float64       `fault:"hang-list" help:"a list never answers" example:"0.02"`
	HangSandboxList   float64       `fault:"hang-sandbox-list" help:"the list of sandboxes never answers, and that of containers does" example:"0.02"`
	HangContainerList float64       `fault:"hang-container-list" help:"the list of containers never answers, and that of sandboxes does" example:"0.02"`
	CutList           float64       `fault:"cut-list" help:"a streaming list breaks when half of it was sent" example:"0.05"`
	HangStatus        float64       `fault:"hang-status" help:"a status never answers" example:"0.01"`
	EmptyList         float64       `fault:"empty-list" help:"a list shows nothing, without an error" example:"0.05"`
	EmptyStart        float64       `fault:"empty-start" help:"the first list after a restart shows nothing, without an error" example:"1"`
	LateWrite         float64       `fault:"late-write" help:"a change never answers, and is made late-write-by later" example:"0.05"`
	LateWriteBy       time.Duration `fault:"late-write-by" help:"how late such a change is made (default 5m)"`
	HangWrite         float64       `fault:"hang-write" help:"a change never answers" example:"0.01"`

	// Content of lists and statuses, a decision for each reply.

	NilFields       float64 `fault:"nil-fields" help:"an item of a reply has no metadata, image and creation time" example:"0.05"`
	UnknownEnum     float64 `fault:"unknown-enum" help:"an item of a reply has an unknown state" example:"0.05"`
	InvalidUTF8     float64 `fault:"invalid-utf8" help:"an item of a reply has text that is not UTF-8" example:"0.05"`
	DuplicateID     float64 `fault:"duplicate-id" help:"a list shows an item twice, in two states" example:"0.1"`
	OrphanContainer float64 `fault:"orphan-container" help:"a list shows a container of an unknown sandbox" example:"0.1"`
}

const swapHold = 100 * time.Millisecond

// A Code is a gRPC status code that reads and prints as its name, such as Unavailable.
type Code codes.Code

// String returns the name of the code.
func (c Code) String() string { return codes.Code(c).String() }

// parseCode takes a name in any case, with or without underscores, or a number.
func parseCode(s string) (Code, error) {
	plain := strings.ToLower(strings.ReplaceAll(s, "_", ""))
	if plain == "cancelled" {
		plain = "canceled"
	}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		if plain == strings.ToLower(c.String()) || plain == strconv.Itoa(int(c)) {
			return Code(c), nil
		}
	}
	return 0, fmt.Errorf(
		"%q is not the name of a gRPC error code: use one such as Unavailable or DeadlineExceeded",
		s,
	)
}

// A Fault describes a field of [Faults], so that a command can print and sweep them.
type Fault struct {
	// Name is the name in text.
	Name string
	// Kind is "probability", "duration", "count" or "code".
	Kind string
	// Help is a line about the fault's effect.
	Help string
	// Example is a value that strikes often enough to be seen and rarely enough to get through;
	// empty for a field that tunes another.
	Example string

	field int // its index
}

// FaultList returns every fault, in the order of the fields of [Faults]. The caller owns the slice.
func FaultList() []Fault { return slices.Clone(faultList) }

// maxFaultCount bounds counts: a fault must not exhaust the machine's memory.
const maxFaultCount = 256 << 20

// faultList is read from the tags of the fields.
var faultList = func() (list []Fault) {
	kinds := map[reflect.Kind]string{
		reflect.Float64: "probability",
		reflect.Int64:   "duration",
		reflect.Int:     "count",
		reflect.Uint32:  "code",
	}
	fields := reflect.TypeFor[Faults]()
	for i := range fields.NumField() {
		f := fields.Field(i)
		list = append(
			list,
			Fault{f.Tag.Get("fault"), kinds[f.Type.Kind()], f.Tag.Get("help"), f.Tag.Get("example"), i},
		)
	}
	return list
}()

// of returns a pointer to the fault's field.
func (d Fault) of(f *Faults) any { return reflect.ValueOf(f).Elem().Field(d.field).Addr().Interface() }

// Set sets the named fault from its text form. A senseless name or value is an error, and changes
// nothing.
func (f *Faults) Set(name, value string) error {
	i := slices.IndexFunc(faultList, func(d Fault) bool { return d.Name == name })
	if i < 0 {
		var names []string
		for _, d := range faultList {
			names = append(names, d.Name)
		}
		return fmt.Errorf(
			"fakeruntime: unknown fault %q: the known ones are %s",
			name,
			strings.Join(names, ", "),
		)
	}
	next := *f
	var err error
	switch field := faultList[i].of(&next).(type) {
	case *float64:
		*field, err = strconv.ParseFloat(value, 64)
	case *time.Duration:
		*field, err = time.ParseDuration(value)
	case *int:
		*field, err = strconv.Atoi(value)
	case *Code:
		*field, err = parseCode(value)
	}
	if err == nil {
		err = faultList[i].check(&next)
	}
	if err != nil {
		return fmt.Errorf("fakeruntime: fault %s=%s: %w", name, value, err)
	}
	*f = next
	return nil
}

// check reports a value out of the fault's range.
func (d Fault) check(f *Faults) error {
	switch field := d.of(f).(type) {
	case *float64:
		if !(*field >= 0 && *field <= 1) {
			return fmt.Errorf("%v is not a probability: use 0 to 1", *field)
		}
	case *time.Duration:
		signed := d.Name == "clock-skew" || d.Name == "clock-step"
		if *field < 0 && !signed {
			return fmt.Errorf("%v is negative: only clock-skew and clock-step can be", *field)
		}
		if *field > math.MaxInt64/4 || *field < -math.MaxInt64/4 {
			return fmt.Errorf("%v is too long", *field)
		}
	case *int:
		if *field < 0 || *field > maxFaultCount {
			return fmt.Errorf("%d is not a count: use 0 to %d", *field, maxFaultCount)
		}
	case *Code:
		if codes.Code(*field) > codes.Unauthenticated {
			return fmt.Errorf("%d is not a gRPC code: use 1 to %d", *field, codes.Unauthenticated)
		}
	}
	return nil
}

// Validate reports every field with a senseless value, by name.
func (f Faults) Validate() error {
	var errs []error
	for _, d := range faultList {
		if err := d.check(&f); err != nil {
			errs = append(errs, fmt.Errorf("fakeruntime: fault %s: %w", d.Name, err))
		}
	}
	return errors.Join(errs...)
}

// ParseFaults reads faults of the form NAME=VALUE, such as "drop=0.05" or "delay-by=2s". A later
// value overrides an earlier value of the same name. All errors are returned, joined.
func ParseFaults(specs ...string) (Faults, error) {
	var f Faults
	var errs []error
	for _, s := range specs {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			errs = append(
				errs,
				fmt.Errorf("fakeruntime: fault %q has no value: write NAME=VALUE, such as drop=0.05", s),
			)
			continue
		}
		if err := f.Set(strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Faults{}, err
	}
	return f, nil
}

// Strings returns the nonzero faults as NAME=VALUE, in the order of [FaultList]; [ParseFaults]
// reads them back.
func (f Faults) Strings() []string {
	var out []string
	for _, d := range faultList {
		if v := reflect.ValueOf(f).Field(d.field); !v.IsZero() {
			out = append(out, fmt.Sprint(d.Name, "=", v))
		}
	}
	return out
}

// String joins [Faults.Strings] by spaces.
func (f Faults) String() string { return strings.Join(f.Strings(), " ") }
