// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakeproc is the fake runtime as a process: a CRI server on a unix socket, and calls on
// its standard input and output for the authoritative history, by which a run is judged.
//
// # Model
//
// [Serve] runs until its context ends, or its input if it has one. [Control] is the parent's side:
// Control collects the history piece by piece, changes faults, and restarts the runtime in place
// (its containers survive, as a real runtime's do).
//
// # Concurrency
//
// Serve returns after everything it started has ended, but for a read of its input. A Control is
// safe for concurrent use.
//
// # Errors
//
// Serve refuses a socket with a listener, and removes a socket left behind.
package fakeproc

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Config is the configuration of [Serve].
type Config struct {
	// Socket is the path of the CRI socket.
	Socket string
	// Runtime is the runtime to serve. Serve closes it.
	Runtime *fakeruntime.Runtime
	// In and Out, when set, carry the calls of [Control]. Serve ends with In.
	In  io.Reader
	Out io.Writer
	// Ready, when set, is called once the socket accepts.
	Ready func()
}

// Serve serves the runtime until ctx ends, and removes its socket.
func Serve(ctx context.Context, config Config) error {
	defer config.Runtime.Close()
	lis, err := listen(config.Socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if config.In != nil {
		go func() { // ends with the parent
			defer cancel()
			_ = child.Serve(config.In, config.Out, receiver{config.Runtime}) // the methods are right
		}()
	}
	if config.Ready != nil {
		config.Ready()
	}
	return config.Runtime.Serve(ctx, lis)
}

// listen listens on a unix socket, after removing a socket without a listener.
func listen(path string) (net.Listener, error) {
	if err := deadmount.Check(path); err != nil {
		return nil, fmt.Errorf("fake: --socket: %w", err)
	}
	info, err := os.Lstat(path)
	if err == nil {
		err = bench.RemoveSocket(path, info, "cri.sock")
		if err != nil {
			return nil, fmt.Errorf("fake: --socket: %w", err)
		}
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("fake: cannot listen: %w", bench.ListenFailed(path, err))
	}
	return lis, nil
}

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
	// CPUSeconds is the process's CPU time.
	CPUSeconds float64 `json:"cpuSeconds"`
}

// states maps the runtime's states to those of a run. Other states mean nothing.
var states = map[fakeruntime.State]pleg.Phase{
	fakeruntime.StateCreated:  pleg.PhaseCreated,
	fakeruntime.StateRunning:  pleg.PhaseRunning,
	fakeruntime.StateReady:    pleg.PhaseRunning,
	fakeruntime.StateExited:   pleg.PhaseExited,
	fakeruntime.StateNotReady: pleg.PhaseExited,
	fakeruntime.StateUnknown:  pleg.PhaseUnknown,
	fakeruntime.StateRemoved:  pleg.PhaseRemoved,
}

// PhaseOf returns the phase of a state of the fake runtime.
func PhaseOf(s fakeruntime.State) pleg.Phase { return states[s] }

// receiver answers the calls of [Control].
type receiver struct{ rt *fakeruntime.Runtime }

// Report returns the changes from since on, and the counters.
func (r receiver) Report(since uint64, report *Report) error {
	*report = Report{Stats: r.rt.Stats(), CPUSeconds: bench.OwnUsage().CPUSeconds}
	report.Changes, report.Next = Changes(r.rt, since)
	report.Dropped = report.Next - since - uint64(len(report.Changes))
	return nil
}

// Changes returns the changes of the runtime's history from since on, and the number of the next.
func Changes(rt *fakeruntime.Runtime, since uint64) (changes []bench.Change, next uint64) {
	history, next := rt.History(since)
	for _, h := range history {
		ch := bench.Change{
			Pod:   h.PodUID,
			ID:    h.ContainerID,
			Name:  h.ContainerName,
			State: PhaseOf(h.New),
			At:    bench.Stamp(h.Time),
			Told:  h.Event == fakeruntime.Emitted,
		}
		if h.ContainerID == "" {
			ch.ID = h.SandboxID
			ch.Sandbox = true
		}
		changes = append(changes, ch)
	}
	return changes, next
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
