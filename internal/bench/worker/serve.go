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
	"github.com/evented-pleg/evented-pleg/pleg"
)

const (
	// flushEvery is the period of sending deliveries, and progressEvery the period of Progress.
	flushEvery    = 100 * time.Millisecond
	progressEvery = 300 * time.Millisecond
	// quiet is how long Watch must be silent before a Snapshot is taken, at most drain after the
	// request.
	quiet = 20 * time.Millisecond
	drain = time.Second
)

// Serve takes orders from in and answers on out until in ends. Failures of the work go to the
// parent; only failures to send are returned.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	s := &server{out: gob.NewEncoder(out)}
	if err := s.serve(ctx, gob.NewDecoder(in)); err != nil {
		return s.answer(answer{Failed: err.Error()})
	}
	return nil
}

// server is a worker.
type server struct {
	subject *subject
	prober  *prober

	outMu sync.Mutex // owns out
	out   *gob.Encoder

	mu     sync.Mutex // owns the fields below
	buffer []bench.Delivery
	last   time.Time // of the last delivery
}

func (s *server) answer(a answer) error {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	if err := s.out.Encode(a); err != nil {
		return fmt.Errorf("worker: answer: %w", err)
	}
	return nil
}

func (s *server) serve(ctx context.Context, in *gob.Decoder) error {
	var first order
	if err := in.Decode(&first); err != nil || first.Config == nil {
		return fmt.Errorf("worker: the first order must be a configuration: %w", err)
	}
	subject, err := newSubject(ctx, *first.Config)
	if err != nil {
		return err
	}
	defer subject.close()
	s.subject = subject
	s.prober = newProber(subject.cache, first.Config.Seed)

	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	group.Go(func() { cancel(subject.run(ctx)) })
	group.Go(func() { s.consume(subject.generator.Watch()) })
	group.Go(func() { s.prober.run(ctx) })
	group.Go(func() { s.flushLoop(ctx) })
	// ends with the orders, which end with the parent; not waited for, because nothing else ends a
	// read of them
	go func() {
		defer cancel(nil)
		if err := s.answer(answer{Hello: &subject.hello}); err != nil {
			return
		}
		for {
			var o order
			if err := in.Decode(&o); err != nil {
				return
			}
			if err := s.obey(ctx, o); err != nil {
				cancel(err)
				return
			}
		}
	}()
	group.Wait()
	if err := context.Cause(ctx); outer.Err() == nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (s *server) obey(ctx context.Context, o order) error {
	switch {
	case o.Facts != nil:
		s.prober.facts.learn(o.Facts)
	case o.Forget:
		s.prober.facts.forget()
	case o.Probe != nil:
		s.prober.setRate(*o.Probe)
	case o.Relist:
		s.subject.generator.RequestRelist("")
	case o.Report:
		r := s.subject.report()
		r.Waits, r.ReadErrors = s.prober.results()
		r.StaleReads, r.Complaints = s.prober.facts.verdict()
		return s.answer(answer{Report: &r})
	case o.Snapshot:
		s.settle(ctx)
		snapshot := s.subject.snapshot()
		if err := s.flush(); err != nil {
			return err
		}
		return s.answer(answer{Snapshot: &snapshot})
	}
	return nil
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

// flush sends the deliveries since the last flush.
func (s *server) flush() error {
	s.mu.Lock()
	buffer := s.buffer
	s.buffer = nil
	s.mu.Unlock()
	if len(buffer) == 0 {
		return nil
	}
	return s.answer(answer{Deliveries: buffer})
}

func (s *server) flushLoop(ctx context.Context) {
	var told time.Time
	for ctx.Err() == nil {
		_ = bench.Sleep(ctx, flushEvery)
		err := s.flush()
		if err == nil && time.Since(told) >= progressEvery {
			told = time.Now()
			p := s.subject.progress()
			err = s.answer(answer{Progress: &p})
		}
		if err != nil {
			return // the parent has gone: the orders end too
		}
	}
}
