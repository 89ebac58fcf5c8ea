// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
)

// The parent asks for news every newsEvery, and every hurriedly while somebody waits for an answer:
// each question costs the worker CPU that is not the generator's.
const (
	newsEvery = time.Second
	hurriedly = 100 * time.Millisecond
)

// Process is a worker in a child process.
type Process struct {
	child  *child.Child
	onNews func(News)
	ended  chan struct{} // closed when no more news comes and failed is set
	failed error

	waiting atomic.Int32  // calls of Hurry under way
	kick    chan struct{} // capacity 1: waiting was 0

	telling sync.Mutex // held from a call that brings news to the end of onNews
}

// Start starts a worker by running this program with args, and waits until its generator runs. One
// call of onNews runs at a time.
func Start(ctx context.Context, args []string, config Config, onNews func(News), stderr io.Writer) (*Process, Hello, error) {
	c, err := child.Start("the "+config.Mode+" PLEG", args, stderr)
	if err != nil {
		return nil, Hello{}, err
	}
	p := &Process{child: c, onNews: onNews, ended: make(chan struct{}), kick: make(chan struct{}, 1)}
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
	for {
		if _, p.failed = bring[News](context.Background(), p, "News"); p.failed != nil {
			return
		}
		pause := newsEvery
		if p.waiting.Load() > 0 {
			pause = hurriedly
		}
		select {
		case <-time.After(pause):
		case <-p.kick:
		case <-p.child.Done():
		}
	}
}

// Hurry has news asked for more often, until the returned function is called.
func (p *Process) Hurry() (enough func()) {
	if p.waiting.Add(1) == 1 {
		select {
		case p.kick <- struct{}{}:
		default:
		}
	}
	return func() { p.waiting.Add(-1) }
}

// bring makes a call whose answer holds news, and hands them over before it returns.
func bring[A interface{ news() News }](ctx context.Context, p *Process, method string) (A, error) {
	p.telling.Lock()
	defer p.telling.Unlock()
	answer, err := child.Ask[A](ctx, p.child.Calls, method, true)
	if err == nil {
		p.onNews(answer.news())
	}
	return answer, err
}

func (n News) news() News { return n }

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

// Report requests the account of the whole run.
func (p *Process) Report(ctx context.Context) (Report, error) {
	return bring[Report](ctx, p, "Report")
}

// Metrics returns the generator's metrics as [bench.Scrape] does.
func Metrics(ctx context.Context, c child.Calls) (map[string]float64, error) {
	text, err := child.Ask[[]byte](ctx, c, "Metrics", true)
	return bench.Scrape(text), err
}

// Tail requests the tail of the latency histogram.
func (p *Process) Tail(ctx context.Context) (Tail, error) {
	m, err := Metrics(ctx, p.child.Calls)
	count := m[MetricLatency+"_count"]
	return Tail{uint64(count), uint64(count - m[MetricLatency+`_bucket{le="1"}`])}, err
}

// Snapshot requests the cache's content. Every event delivered by Watch before was handed to
// onNews when Snapshot returns.
func (p *Process) Snapshot(ctx context.Context) (Snapshot, error) {
	return bring[Snapshot](ctx, p, "Snapshot")
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
