// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeproc

import (
	"context"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
)

// Report is the runtime's history and counters.
type Report struct {
	// Changes are those of the history from the requested number on; Next is the number of the next
	// change.
	Changes []bench.Change `json:"changes"`
	Next    uint64         `json:"next"`
	// Dropped is the number of requested changes that the history no longer has.
	Dropped uint64 `json:"dropped"`
	// Stats are the runtime's counters.
	Stats fakeruntime.Stats `json:"stats"`
	// CPUSeconds is the process's CPU time, Now a bench.Stamp of the report.
	CPUSeconds float64 `json:"cpuSeconds"`
	Now        int64   `json:"now"`
}

// states maps the runtime's states to those of a run. Other states mean nothing.
var states = map[fakeruntime.State]bench.State{
	fakeruntime.StateCreated:  bench.Created,
	fakeruntime.StateRunning:  bench.Running,
	fakeruntime.StateReady:    bench.Running,
	fakeruntime.StateExited:   bench.Exited,
	fakeruntime.StateNotReady: bench.Exited,
	fakeruntime.StateUnknown:  bench.Unknown,
	fakeruntime.StateRemoved:  bench.Removed,
}

// receiver answers the calls of [Control].
type receiver struct{ rt *fakeruntime.Runtime }

// Report returns the changes from since on, and the counters.
func (r receiver) Report(since uint64, report *Report) error {
	history, next := r.rt.History(since)
	*report = Report{Next: next, Stats: r.rt.Stats(), CPUSeconds: bench.OwnUsage().CPUSeconds, Now: bench.Now()}
	report.Dropped = next - since - uint64(len(history))
	for _, h := range history {
		ch := bench.Change{Pod: h.PodUID, ID: h.ContainerID, State: states[h.New], At: bench.Stamp(h.Time), Told: h.Event == fakeruntime.Emitted}
		if h.ContainerID == "" {
			ch.ID, ch.Sandbox = h.SandboxID, true
		}
		report.Changes = append(report.Changes, ch)
	}
	return nil
}

// Outage is how long a restarted runtime is down, and then initializes.
type Outage struct{ Down, Initializing time.Duration }

// Restart restarts the runtime.
func (r receiver) Restart(o Outage, _ *bool) error {
	r.rt.Restart(o.Down, o.Initializing)
	return nil
}

// SetFaults replaces the faults in force.
func (r receiver) SetFaults(f fakeruntime.Faults, _ *bool) error { return r.rt.SetFaults(f) }

// Control calls a fake runtime's process.
type Control struct{ Calls child.Calls }

// Report asks for the changes from since on, and the counters. The first answer comes when the
// runtime accepts connections.
func (c Control) Report(ctx context.Context, since uint64) (Report, error) {
	return child.Ask[Report](ctx, c.Calls, "Report", since)
}

// Restart restarts the runtime in place.
func (c Control) Restart(ctx context.Context, o Outage) error {
	return child.Tell(ctx, c.Calls, "Restart", o)
}

// SetFaults replaces the faults in force.
func (c Control) SetFaults(ctx context.Context, f fakeruntime.Faults) error {
	return child.Tell(ctx, c.Calls, "SetFaults", f)
}
