// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
)

const (
	// newsEvery is how often the parent asks for deliveries, and progressEvery for Progress.
	newsEvery     = 100 * time.Millisecond
	progressEvery = 300 * time.Millisecond
)

// Callbacks take the worker's news, one at a time. Nil callbacks discard.
type Callbacks struct {
	Progress   func(Progress)
	Deliveries func([]bench.Delivery)
}

// Process is a worker in a child process.
type Process struct {
	child     *child.Child
	callbacks Callbacks
	ended     chan struct{} // closed when no more news comes and failed is set
	failed    error

	telling sync.Mutex // held from a call that brings deliveries to the end of the callback
}

// Start starts a worker by running this program with args, and waits until its generator runs.
func Start(ctx context.Context, args []string, config Config, callbacks Callbacks, stderr io.Writer) (*Process, Hello, error) {
	c, err := child.Start("the "+config.Mode+" PLEG", args, stderr)
	if err != nil {
		return nil, Hello{}, err
	}
	p := &Process{child: c, callbacks: callbacks, ended: make(chan struct{})}
	hello, err := child.Ask[Hello](ctx, p.child.Calls, "Start", config)
	if err != nil {
		c.Kill()
		return nil, Hello{}, err
	}
	go p.listen() // ends with the process
	return p, hello, nil
}

// listen asks for news until the worker or its generator ends.
func (p *Process) listen() {
	defer close(p.ended)
	var progress time.Time
	for {
		wanted := time.Since(progress) >= progressEvery
		p.telling.Lock()
		news, err := child.Ask[News](context.Background(), p.child.Calls, "News", wanted)
		if err != nil {
			p.failed = err
			p.telling.Unlock()
			return
		}
		p.told(news.Deliveries)
		if news.Progress != nil && p.callbacks.Progress != nil {
			p.callbacks.Progress(*news.Progress)
		}
		p.telling.Unlock()
		if wanted {
			progress = time.Now()
		}
		select {
		case <-time.After(newsEvery):
		case <-p.child.Done():
		}
	}
}

func (p *Process) told(list []bench.Delivery) {
	if len(list) > 0 && p.callbacks.Deliveries != nil {
		p.callbacks.Deliveries(list)
	}
}

// Facts sends the worker the effects of the load.
func (p *Process) Facts(facts []load.Fact) error {
	if len(facts) == 0 {
		return nil
	}
	return child.Tell(context.Background(), p.child.Calls, "Facts", facts)
}

// Forget voids all facts.
func (p *Process) Forget() error {
	return child.Tell(context.Background(), p.child.Calls, "Forget", true)
}

// Probe sets how many reads a second the pod workers make.
func (p *Process) Probe(rate float64) error {
	return child.Tell(context.Background(), p.child.Calls, "Probe", rate)
}

// Relist asks the generator to list everything now.
func (p *Process) Relist() error {
	return child.Tell(context.Background(), p.child.Calls, "Relist", true)
}

// Report requests usage and counts.
func (p *Process) Report(ctx context.Context) (Report, error) {
	return child.Ask[Report](ctx, p.child.Calls, "Report", true)
}

// Snapshot requests the cache's content. Every event delivered by Watch before was handed to the
// callback when Snapshot returns.
func (p *Process) Snapshot(ctx context.Context) (Snapshot, error) {
	p.telling.Lock()
	defer p.telling.Unlock()
	s, err := child.Ask[Snapshot](ctx, p.child.Calls, "Snapshot", true)
	p.told(s.Deliveries)
	return s, err
}

// Ended is closed when the worker tells no more.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Stop ends the worker, and returns the reason of a failure.
func (p *Process) Stop() error {
	err := p.child.Stop(10 * time.Second)
	select {
	case <-p.ended:
		if !errors.Is(p.failed, child.ErrEnded) {
			err = errors.Join(p.failed, err)
		}
	case <-time.After(time.Second): // its pipe is held open by something else
	}
	return err
}
