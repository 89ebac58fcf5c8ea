// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

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
	return 0, fmt.Errorf("%q is not the name of a gRPC error code: use one such as Unavailable or DeadlineExceeded", s)
}

// A Fault describes a field of [Faults], so that a command can print and sweep them.
type Fault struct {
	// Name is the name in text and JSON.
	Name string
	// Kind is "probability", "duration", "count" or "code".
	Kind string
	// Help is a line about the fault's effect.
	Help string
	// Example is a value that strikes often enough to be seen and rarely enough to get through;
	// empty for a field that tunes another.
	Example string

	field func(*Faults) any
}

// FaultList returns every fault, in the order of the fields of [Faults]. The caller owns the slice.
func FaultList() []Fault { return slices.Clone(faultList) }

const (
	kindProbability = "probability"
	kindDuration    = "duration"
	kindCount       = "count"
	kindCode        = "code"
)

// maxFaultCount bounds counts: a fault must not exhaust the machine's memory.
const maxFaultCount = 256 << 20

var faultList = []Fault{
	{"drop", kindProbability, "the event is never sent", "0.1", func(f *Faults) any { return &f.Drop }},
	{"duplicate", kindProbability, "the event is sent twice", "0.2", func(f *Faults) any { return &f.Duplicate }},
	{"delay", kindProbability, "the event is sent delay-by later than others", "0.2", func(f *Faults) any { return &f.Delay }},
	{"delay-by", kindDuration, "how late a delayed event is (default 200ms)", "", func(f *Faults) any { return &f.DelayBy }},
	{"swap-start-stop", kindProbability, "STARTED is sent after STOPPED of a container that exits within 100ms", "0.5", func(f *Faults) any { return &f.SwapStartStop }},
	{"swap-stop-delete", kindProbability, "STOPPED is sent after DELETED of a container that is removed within 100ms", "0.5", func(f *Faults) any { return &f.SwapStopDelete }},
	{"stale", kindProbability, "the payload shows the other containers in their previous state under a newer stamp", "0.3", func(f *Faults) any { return &f.Stale }},
	{"nil-sandbox", kindProbability, "the payload has no sandbox status", "0.2", func(f *Faults) any { return &f.NilSandbox }},
	{"nil-statuses", kindProbability, "the payload has no container statuses", "0.2", func(f *Faults) any { return &f.NilStatuses }},
	{"oversize", kindProbability, "the event is larger than clients take", "0.002", func(f *Faults) any { return &f.Oversize }},
	{"oversize-bytes", kindCount, "size of an oversized event (default 17 MiB)", "", func(f *Faults) any { return &f.OversizeBytes }},
	{"invalid-event", kindProbability, "an unknown event type, no container ID, or invalid UTF-8", "0.02", func(f *Faults) any { return &f.InvalidEvent }},
	{"silent-exit", kindProbability, "a container exits without an event", "0.1", func(f *Faults) any { return &f.SilentExit }},
	{"start-error", kindProbability, "StartContainer fails and leaves EXITED 128 without an event", "0.1", func(f *Faults) any { return &f.StartError }},
	{"sandbox-error", kindProbability, "RunPodSandbox fails without an event", "0.05", func(f *Faults) any { return &f.SandboxError }},

	{"cut", kindProbability, "after an event the stream breaks with Unavailable", "0.01", func(f *Faults) any { return &f.Cut }},
	{"eof", kindProbability, "after an event the stream ends without an error", "0.01", func(f *Faults) any { return &f.EOF }},
	{"stall", kindProbability, "after an event the stream hangs open and carries nothing", "0.002", func(f *Faults) any { return &f.Stall }},
	{"replay", kindProbability, "a new stream starts with old events again", "1", func(f *Faults) any { return &f.Replay }},
	{"replay-events", kindCount, "how many old events are replayed (default 100)", "", func(f *Faults) any { return &f.ReplayEvents }},
	{"eof-at-once", kindProbability, "a new stream ends at once", "0.5", func(f *Faults) any { return &f.EOFAtOnce }},
	{"unimplemented", kindProbability, "a new stream fails with Unimplemented", "0.5", func(f *Faults) any { return &f.Unimplemented }},

	{"restart-exit", kindProbability, "a running container dies unseen while the runtime restarts", "0.3", func(f *Faults) any { return &f.RestartExit }},
	{"exit-lag", kindDuration, "finished_at is this much older than the visible exit", "120ms", func(f *Faults) any { return &f.ExitLag }},
	{"clock-skew", kindDuration, "the runtime's clock is off by this much", "-90s", func(f *Faults) any { return &f.ClockSkew }},
	{"clock-step", kindDuration, "the runtime's clock jumps by this much and back, in turns", "-30s", func(f *Faults) any { return &f.ClockStep }},
	{"clock-step-every", kindDuration, "time between two jumps (default 10s)", "", func(f *Faults) any { return &f.ClockStepEvery }},

	{"slow-list", kindDuration, "lists take this much longer", "50ms", func(f *Faults) any { return &f.SlowList }},
	{"slow-status", kindDuration, "statuses take this much longer", "5ms", func(f *Faults) any { return &f.SlowStatus }},
	{"slow-write", kindDuration, "changes take this much longer", "5ms", func(f *Faults) any { return &f.SlowWrite }},
	{"fail-list", kindProbability, "a list fails with fail-code", "0.1", func(f *Faults) any { return &f.FailList }},
	{"fail-status", kindProbability, "a status fails with fail-code", "0.1", func(f *Faults) any { return &f.FailStatus }},
	{"fail-write", kindProbability, "a change fails with fail-code", "0.05", func(f *Faults) any { return &f.FailWrite }},
	{"fail-code", kindCode, "the gRPC code of failing calls (default Unknown)", "", func(f *Faults) any { return &f.FailCode }},
	{"hang-list", kindProbability, "a list never answers", "0.02", func(f *Faults) any { return &f.HangList }},
	{"cut-list", kindProbability, "a streaming list breaks when half of it was sent", "0.05", func(f *Faults) any { return &f.CutList }},
	{"hang-status", kindProbability, "a status never answers", "0.01", func(f *Faults) any { return &f.HangStatus }},
	{"hang-write", kindProbability, "a change never answers", "0.01", func(f *Faults) any { return &f.HangWrite }},

	{"nil-fields", kindProbability, "an item of a reply has no metadata, image and creation time", "0.05", func(f *Faults) any { return &f.NilFields }},
	{"unknown-enum", kindProbability, "an item of a reply has an unknown state", "0.05", func(f *Faults) any { return &f.UnknownEnum }},
	{"invalid-utf8", kindProbability, "an item of a reply has text that is not UTF-8", "0.05", func(f *Faults) any { return &f.InvalidUTF8 }},
	{"duplicate-id", kindProbability, "a list shows an item twice, in two states", "0.1", func(f *Faults) any { return &f.DuplicateID }},
	{"orphan-container", kindProbability, "a list shows a container of an unknown sandbox", "0.1", func(f *Faults) any { return &f.OrphanContainer }},
}

// Set sets the named fault from its text form. A senseless name or value is an error, and changes
// nothing.
func (f *Faults) Set(name, value string) error {
	i := slices.IndexFunc(faultList, func(d Fault) bool { return d.Name == name })
	if i < 0 {
		return fmt.Errorf("fakeruntime: unknown fault %q: the known ones are %s", name, strings.Join(faultNames(), ", "))
	}
	next := *f
	var err error
	switch field := faultList[i].field(&next).(type) {
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
	switch field := d.field(f).(type) {
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
			errs = append(errs, fmt.Errorf("fakeruntime: fault %q has no value: write NAME=VALUE, such as drop=0.05", s))
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
		if v := d.text(&f); v != "" {
			out = append(out, d.Name+"="+v)
		}
	}
	return out
}

// text is the value of a fault, empty when zero.
func (d Fault) text(f *Faults) string {
	switch field := d.field(f).(type) {
	case *float64:
		if *field != 0 {
			return strconv.FormatFloat(*field, 'g', -1, 64)
		}
	case *time.Duration:
		if *field != 0 {
			return field.String()
		}
	case *int:
		if *field != 0 {
			return strconv.Itoa(*field)
		}
	case *Code:
		if *field != 0 {
			return field.String()
		}
	}
	return ""
}

// String joins [Faults.Strings] by spaces.
func (f Faults) String() string { return strings.Join(f.Strings(), " ") }

// MarshalJSON writes an object of the nonzero faults: {"drop":"0.05","delay-by":"2s"}.
func (f Faults) MarshalJSON() ([]byte, error) {
	m := map[string]string{}
	for _, d := range faultList {
		if v := d.text(&f); v != "" {
			m[d.Name] = v
		}
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads the form of MarshalJSON. Missing faults become zero.
func (f *Faults) UnmarshalJSON(data []byte) error {
	var m map[string]string
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("fakeruntime: faults: %w: write an object of names and texts", err)
	}
	var specs []string
	for name, value := range m {
		specs = append(specs, name+"="+value)
	}
	slices.Sort(specs)
	next, err := ParseFaults(specs...)
	if err != nil {
		return err
	}
	*f = next
	return nil
}

func faultNames() []string {
	names := make([]string, len(faultList))
	for i, d := range faultList {
		names[i] = d.Name
	}
	return names
}
