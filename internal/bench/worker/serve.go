// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package worker is the generator under test as a process, with CPU time and memory of its own.
//
// # Model
//
// The worker holds the parts of a node agent: a client of the runtime, the cache, the generator, a
// consumer of Watch, and pod workers that wait in the cache. [Serve] answers the parent's calls;
// [Process] makes them.
//
// The parent sends the worker the effects of its load (facts). A pod worker picks a pod, takes the
// facts known by then, asks the cache for a status newer than now, and checks the answer against
// the facts: a status older than the caller's knowledge is a stale read.
//
// # Concurrency
//
// Serve returns when its input ends and everything it started has ended. A Process is safe for
// concurrent use; one callback runs at a time.
//
// # Errors
//
// A failure of the generator ends the news. [Process.Stop] returns the reason.
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
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Watch must be silent for quiet before a Snapshot is taken, which comes drain after the request at
// the latest.
const (
	quiet = 20 * time.Millisecond
	drain = time.Second
)

// Serve answers the parent's calls on in and out until in ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &server{ctx: ctx, cancel: cancel}
	err := child.Serve(in, out, s)
	cancel(nil)
	s.group.Wait()
	if s.subject != nil {
		s.subject.close()
	}
	return err
}

// server is a worker. Its exported methods are the parent's calls, the first of them Start.
type server struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc // with the generator's error
	group   sync.WaitGroup
	subject *subject
	prober  *prober

	mu     sync.Mutex // owns the fields below
	buffer []bench.Delivery
	last   time.Time // of the last delivery
}

// Start starts the generator and its users.
func (s *server) Start(c Config, hello *Hello) (err error) {
	if s.subject, err = newSubject(s.ctx, c); err != nil {
		return err
	}
	s.prober = newProber(s.subject.cache, c.Seed)
	s.group.Go(func() { s.cancel(s.subject.run(s.ctx)) })
	s.group.Go(func() { s.consume(s.subject.generator.Watch()) })
	s.group.Go(func() { s.prober.run(s.ctx) })
	*hello = s.subject.hello
	return nil
}

// Facts enters effects of the load.
func (s *server) Facts(facts []load.Fact, _ *bool) error {
	s.prober.facts.learn(facts)
	return nil
}

// Forget voids all facts: the runtime has lost everything.
func (s *server) Forget(bool, *bool) error {
	s.prober.facts.forget()
	return nil
}

// Probe sets the rate of the pod workers' reads.
func (s *server) Probe(rate float64, _ *bool) error {
	s.prober.setRate(rate)
	return nil
}

// Relist asks the generator to list everything now.
func (s *server) Relist(bool, *bool) error {
	s.subject.generator.RequestRelist("")
	return nil
}

// Report returns usage and counts.
func (s *server) Report(_ bool, r *Report) error {
	r.News, r.Calls = s.news(), s.subject.client.Stats().Calls
	r.Waits, r.ReadErrors = s.prober.results()
	r.StaleReads, r.Complaints = s.prober.facts.verdict()
	return nil
}

// Tail returns the tail of the latency histogram.
func (s *server) Tail(_ bool, t *Tail) (err error) {
	*t, err = s.subject.tail()
	return err
}

// Snapshot returns the cache's content once Watch is quiet.
func (s *server) Snapshot(_ bool, snapshot *Snapshot) error {
	s.settle(s.ctx)
	snapshot.Pods = s.subject.snapshot()
	snapshot.News = s.news()
	return nil
}

// News returns the news. It fails if the generator has failed.
func (s *server) News(_ bool, news *News) error {
	if err := context.Cause(s.ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	*news = s.news()
	return nil
}

// news returns the progress, and the deliveries since the last news.
func (s *server) news() News {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := News{Deliveries: s.buffer, Progress: s.subject.progress()}
	s.buffer = nil
	return news
}

// settle waits until Watch has been quiet for a moment.
func (s *server) settle(ctx context.Context) {
	for begun := time.Now(); time.Since(begun) < drain && ctx.Err() == nil; {
		s.mu.Lock()
		since := time.Since(s.last)
		s.mu.Unlock()
		if since > quiet {
			return
		}
		_ = bench.Sleep(ctx, quiet)
	}
}

// consume is the consumer of Watch: it stamps what it receives.
func (s *server) consume(watch <-chan pleg.Event) {
	for e := range watch { // ends with the generator
		now := time.Now()
		d := bench.Delivery{
			Pod: string(e.Pod), ID: e.ID, Sandbox: e.Kind == pleg.Sandbox, State: stateOfEvent[e.Type], Claim: e.Cause == pleg.CauseClaim, At: bench.Stamp(now),
			Stamp: nanoseconds(e.Stamp),
		}
		s.mu.Lock()
		s.last = now
		s.buffer = append(s.buffer, d)
		s.mu.Unlock()
	}
}
