// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/fakeproc"
)

// startTimeout is how long a child may take to begin.
const startTimeout = 20 * time.Second

// fake is the fake runtime of a run, through all its incarnations.
type fake struct {
	options Options
	socket  string
	failed  func(error) // called when a child ends unasked

	// collecting is held while history is collected, so that no change is entered twice. It owns
	// since.
	collecting sync.Mutex
	since      uint64

	// starts counts the children; a single goroutine starts them.
	starts int

	mu      sync.Mutex // owns the fields below
	child   *child.Child
	control fakeproc.Control // of the last child
	// emitted and cpu are of the incarnations before, lastEmitted and lastCPU of the present
	// incarnation as last reported.
	emitted, lastEmitted uint64
	cpu, lastCPU         float64
	lost                 uint64 // changes dropped by the history before they were collected
}

func newFake(dir string, o Options, failed func(error)) *fake {
	return &fake{options: o, failed: failed, socket: filepath.Join(dir, "cri.sock")}
}

// start starts a child and waits until the child accepts connections.
func (f *fake) start(ctx context.Context) error {
	c, err := child.Start("the fake runtime", f.options.FakeArgs(f.socket, f.starts), f.options.Stderr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the fake runtime was not ready after %v", startTimeout))
	defer cancel()
	control := fakeproc.Control{Calls: c.Calls}
	if _, err := control.Report(ctx, 0); err != nil {
		if errors.Is(err, child.ErrEnded) {
			return errors.Join(errors.New("the fake runtime did not start"), c.Stop(time.Second))
		}
		c.Kill()
		return err
	}
	f.mu.Lock()
	f.child, f.control = c, control
	f.mu.Unlock()
	f.starts++
	go f.watch(c) // ends with the child
	return nil
}

// watch calls failed if the child ends before it is stopped or killed.
func (f *fake) watch(c *child.Child) {
	<-c.Done()
	f.mu.Lock()
	unasked := f.child == c
	f.mu.Unlock()
	if unasked {
		f.failed(errors.Join(errors.New("the fake runtime ended in the middle of the run"), c.Err()))
	}
}

// take takes the child out, so that its end is expected.
func (f *fake) take() *child.Child {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.child
	f.child = nil
	return c
}

// calls returns the calls of the last child.
func (f *fake) calls() fakeproc.Control {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.control
}

func (f *fake) stop() error {
	if c := f.take(); c != nil {
		return c.Stop(5 * time.Second)
	}
	return nil
}

// kill kills the present child; the next child starts with nothing.
func (f *fake) kill() {
	c := f.take()
	if c == nil {
		return
	}
	c.Kill()
	f.collecting.Lock()
	f.since = 0
	f.collecting.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.emitted, f.lastEmitted = f.emitted+f.lastEmitted, 0
	f.cpu, f.lastCPU = f.cpu+f.lastCPU, 0
}

// collect hands over the changes since the last time.
func (f *fake) collect(ctx context.Context, enter func([]bench.Change)) error {
	f.collecting.Lock()
	defer f.collecting.Unlock()
	r, err := f.calls().Report(ctx, f.since)
	if err != nil {
		return err
	}
	f.since = r.Next
	f.mu.Lock()
	f.lastEmitted, f.lastCPU = r.Stats.Events.Emitted, r.CPUSeconds
	f.lost += r.Dropped
	f.mu.Unlock()
	enter(r.Changes)
	return nil
}

// totals returns the emitted events and the CPU time of all incarnations.
func (f *fake) totals() (emitted uint64, cpu float64, lost uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.emitted + f.lastEmitted, f.cpu + f.lastCPU, f.lost
}

// liftFaults ends all misbehaviour.
func (f *fake) liftFaults(ctx context.Context) error {
	return f.calls().SetFaults(ctx, fakeruntime.Faults{})
}
