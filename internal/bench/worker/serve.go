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
// the facts: a status older than the caller's knowledge is a stale read. Without a load of the
// parent's, the facts are the runtime's own lists from before the question (Config.Truth).
//
// Any program may stand for the worker that answers the calls of [Server].
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
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
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
	s := &Server{ctx: ctx, cancel: cancel, reading: make(chan struct{}, 1)}
	err := child.Serve(in, out, s)
	cancel(nil)
	s.group.Wait()
	if s.subject != nil {
		s.subject.close()
	}
	return err
}

// Server is a worker. Its exported methods are the parent's calls, the first of them Start.
type Server struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc // with the generator's error
	group   sync.WaitGroup
	subject *subject
	prober  *prober
	reading chan struct{} // capacity 1: held by the consumer for each event, and by Consume
	meter   standstill.Meter

	mu     sync.Mutex // owns the fields below
	buffer []bench.Delivery
	last   time.Time // of the last delivery
}

// Start starts the generator and its users.
func (s *Server) Start(c Config, hello *Hello) (err error) {
	s.group.Go(func() { s.meter.Run(s.ctx) })
	if s.subject, err = newSubject(s.ctx, c, &s.meter); err != nil {
		return err
	}
	s.prober = s.subject.prober
	s.group.Go(func() { s.cancel(s.subject.run(s.ctx)) })
	s.group.Go(func() { s.consume(s.subject.generator.Watch()) })
	s.group.Go(func() { s.prober.run(s.ctx) })
	*hello = s.subject.hello
	return nil
}

// Facts enters effects of the load.
func (s *Server) Facts(facts []load.Fact, _ *bool) error {
	s.prober.facts.learn(facts)
	return nil
}

// Probe sets the rate of the pod workers' reads.
func (s *Server) Probe(rate float64, _ *bool) error {
	s.prober.setRate(rate)
	return nil
}

// Relist asks the generator to list everything now.
func (s *Server) Relist(bool, *bool) error {
	s.subject.generator.RequestRelist("")
	return nil
}

// Report returns usage and counts.
func (s *Server) Report(_ bool, r *Report) error {
	r.News = s.news()
	r.Calls = s.subject.client.Stats().Calls
	r.Waits, r.ReadErrors = s.prober.results()
	r.StaleReads, r.Complaints = s.prober.facts.verdict()
	r.StaleReads += s.subject.checker.Count()
	r.Complaints = append(r.Complaints, bench.Complaints(&s.subject.checker)...)
	return nil
}

// Metrics returns the metrics in the text format.
func (s *Server) Metrics(_ bool, text *[]byte) error {
	families, err := s.subject.registry.Gather()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
			return err
		}
	}
	*text = out.Bytes()
	return nil
}

// Newer asks the cache for a status of the pod newer than now.
func (s *Server) Newer(uid string, n *Newer) error {
	begun := time.Now()
	status, err := s.subject.cache.GetNewerThan(s.ctx, cache.UID(uid), begun)
	*n = Newer{Pod: Show(cache.UID(uid), status, err), Took: time.Since(begun)}
	return nil
}

// StepClock sets the wall clock to the machine's plus the step.
func (s *Server) StepClock(step time.Duration, _ *bool) error {
	s.subject.step.Store(int64(step))
	return nil
}

// Consume stops or resumes the consumer of Watch.
func (s *Server) Consume(read bool, _ *bool) error {
	if read {
		<-s.reading
	} else {
		s.reading <- struct{}{}
	}
	return nil
}

// Cache returns the cache's content.
func (s *Server) Cache(_ bool, pods *[]bench.Pod) error {
	*pods = s.subject.snapshot()
	return nil
}

// Snapshot returns the cache's content once Watch is quiet.
func (s *Server) Snapshot(_ bool, snapshot *Snapshot) error {
	s.settle(s.ctx)
	snapshot.Pods = s.subject.snapshot()
	snapshot.News = s.news()
	return nil
}

// News returns the news. It fails if the generator has failed.
func (s *Server) News(_ bool, news *News) error {
	if err := context.Cause(s.ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	*news = s.news()
	return nil
}

// news returns the progress, and the deliveries since the last news.
func (s *Server) news() News {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := News{Deliveries: s.buffer, Progress: s.subject.progress()}
	news.Progress.Stood = s.meter.Stood()
	s.buffer = nil
	return news
}

// settle waits until Watch has been quiet for a moment.
func (s *Server) settle(ctx context.Context) {
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
func (s *Server) consume(watch <-chan pleg.Event) {
	for e := range watch { // ends with the generator
		select {
		case s.reading <- struct{}{}:
		case <-s.ctx.Done():
			continue
		}
		now := time.Now()
		d := bench.Delivery{
			Pod:     string(e.Pod),
			ID:      e.ID,
			Sandbox: e.Kind == pleg.Sandbox,
			Type:    e.Type,
			Claim:   e.Cause == pleg.CauseClaim,
			At:      bench.Stamp(now),
			Seen:    bench.Stamp(e.Seen),
			Stamp:   nanoseconds(e.Stamp),
		}
		if s.subject.config.Check {
			status, err := s.subject.cache.Get(e.Pod)
			shown := Show(e.Pod, status, err)
			s.subject.checker.Event(e, shown.Judged())
			d.FinishedAt = bench.Find([]bench.Pod{shown}, d.Pod, e.ID).FinishedAt
		}
		s.prober.delivered(e.Pod)
		s.mu.Lock()
		s.last = now
		s.buffer = append(s.buffer, d)
		s.mu.Unlock()
		<-s.reading
	}
}
