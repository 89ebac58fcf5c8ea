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
	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

// newsEvery is how often news is asked for: each question costs the worker CPU that is not the
// generator's.
const newsEvery = time.Second

// Process is a worker in a child process.
type Process struct {
	child  *child.Child
	onNews func(News)
	ended  chan struct{} // closed when no more news comes and failed is set
	failed error

	telling sync.Mutex // held from a call that brings news to the end of onNews
}

// Start starts a worker by running this program with args, and waits until its generator runs. One
// call of onNews runs at a time.
func Start(
	ctx context.Context,
	args []string,
	config Config,
	onNews func(News),
	stderr io.Writer,
) (*Process, Hello, error) {
	c, err := child.Start("the "+config.Mode+" PLEG", args, stderr)
	if err != nil {
		return nil, Hello{}, err
	}
	p := &Process{child: c, onNews: onNews, ended: make(chan struct{})}
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
	for p.failed == nil {
		select {
		case <-time.After(newsEvery):
		case <-p.child.Done():
		}
		p.failed = p.News()
	}
}

// News asks for news now, and returns after their onNews.
func (p *Process) News() error {
	_, err := bring[News](context.Background(), p, "News")
	return err
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

// Tell makes a call of the [Server] without an answer.
func (p *Process) Tell(method string, argument any) error {
	return child.Tell(context.Background(), p.child.Calls, method, argument)
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
	late, cancel := standstill.WithTimeout(context.Background(), time.Second)
	defer cancel()
	select {
	case <-p.ended:
		if !errors.Is(p.failed, child.ErrEnded) {
			err = errors.Join(p.failed, err)
		}
	case <-late.Done(): // its pipe is held open by something else
	}
	return err
}
