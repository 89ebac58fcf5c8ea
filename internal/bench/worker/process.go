// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
)

// Callbacks take the worker's unrequested messages, from a single goroutine. Nil callbacks discard.
type Callbacks struct {
	Progress   func(Progress)
	Deliveries func([]bench.Delivery)
}

// Process is a worker in a child process.
type Process struct {
	child     *child.Child
	callbacks Callbacks
	hello     chan Hello
	reports   chan Report
	snapshots chan Snapshot
	read      chan struct{} // closed when the answers have ended and failed is set
	failed    error

	mu  sync.Mutex // owns out
	out *gob.Encoder
}

// Start starts a worker by running this program with args, and waits until its generator runs.
func Start(ctx context.Context, args []string, config Config, callbacks Callbacks, stderr io.Writer) (*Process, Hello, error) {
	c, err := child.Start("the "+config.Mode+" PLEG", args, stderr)
	if err != nil {
		return nil, Hello{}, err
	}
	p := &Process{
		child: c, callbacks: callbacks, out: gob.NewEncoder(c.Stdin()),
		hello: make(chan Hello, 1), reports: make(chan Report, 1), snapshots: make(chan Snapshot, 1), read: make(chan struct{}),
	}
	go p.readAnswers(c.Stdout()) // ends with the process
	if err := p.send(order{Config: &config}); err != nil {
		p.child.Kill()
		<-p.read
		return nil, Hello{}, errors.Join(p.failed, err)
	}
	select {
	case hello := <-p.hello:
		return p, hello, nil
	case <-p.read:
		<-p.child.Done()
		if p.failed == nil {
			p.failed = errors.Join(errors.New("the worker ended before it began"), p.child.Err())
		}
		return nil, Hello{}, p.failed
	case <-ctx.Done():
		p.child.Kill()
		<-p.read
		return nil, Hello{}, context.Cause(ctx)
	}
}

func (p *Process) readAnswers(r io.Reader) {
	defer close(p.read)
	in := gob.NewDecoder(r)
	for {
		var a answer
		if err := in.Decode(&a); err != nil {
			if !errors.Is(err, io.EOF) && p.failed == nil {
				p.failed = fmt.Errorf("read the worker's answer: %w", err)
			}
			return
		}
		switch {
		case a.Hello != nil:
			p.hello <- *a.Hello
		case a.Progress != nil && p.callbacks.Progress != nil:
			p.callbacks.Progress(*a.Progress)
		case a.Deliveries != nil && p.callbacks.Deliveries != nil:
			p.callbacks.Deliveries(a.Deliveries)
		case a.Report != nil:
			p.reports <- *a.Report
		case a.Snapshot != nil:
			p.snapshots <- *a.Snapshot
		case a.Failed != "":
			p.failed = errors.New(a.Failed)
		}
	}
}

func (p *Process) send(o order) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.out.Encode(o); err != nil {
		return fmt.Errorf("order to the worker: %w", err)
	}
	return nil
}

// Facts sends the worker the effects of the load.
func (p *Process) Facts(facts []load.Fact) error {
	if len(facts) == 0 {
		return nil
	}
	return p.send(order{Facts: facts})
}

// Forget voids all facts.
func (p *Process) Forget() error { return p.send(order{Forget: true}) }

// Probe sets how many reads a second the pod workers make.
func (p *Process) Probe(rate float64) error { return p.send(order{Probe: &rate}) }

// Relist asks the generator to list everything now.
func (p *Process) Relist() error { return p.send(order{Relist: true}) }

// Report requests usage and counts. It must not be called concurrently.
func (p *Process) Report(ctx context.Context) (Report, error) {
	return ask(ctx, p, order{Report: true}, p.reports)
}

// Snapshot requests the cache's content. Every event delivered by Watch before was handed to the
// callback when Snapshot returns. It must not be called concurrently.
func (p *Process) Snapshot(ctx context.Context) (Snapshot, error) {
	return ask(ctx, p, order{Snapshot: true}, p.snapshots)
}

func ask[T any](ctx context.Context, p *Process, o order, answers <-chan T) (T, error) {
	var none T
	if err := p.send(o); err != nil {
		return none, errors.Join(err, p.failure())
	}
	select {
	case a := <-answers:
		return a, nil
	case <-p.read:
		return none, p.failure()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// failure waits for the end of the answers, for a moment, and returns why they ended.
func (p *Process) failure() error {
	select {
	case <-p.read:
	case <-time.After(time.Second):
		return nil
	}
	if p.failed != nil {
		return p.failed
	}
	return errors.New("the worker has ended")
}

// Ended is closed when the worker sends no more.
func (p *Process) Ended() <-chan struct{} { return p.read }

// Stop ends the worker, and returns the reason of a failure.
func (p *Process) Stop() error {
	err := p.child.Stop(10 * time.Second)
	select {
	case <-p.read:
		return errors.Join(p.failed, err)
	case <-time.After(time.Second): // its pipe is held open by something else
		return err
	}
}
