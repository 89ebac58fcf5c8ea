// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package standstill measures the time in which this process did not run, so that nobody holds
// that time against whoever was to answer.
//
// # Model
//
// A process stands still while it is stopped (SIGSTOP, a debugger), its machine is paused, or it
// gets no CPU (a throttled cgroup, a crowded machine). Its clock goes on. A [Meter] beats many
// times a second, and takes the gap between two beats for a standstill, if the gap is long. A
// [Span] divides the time since its begin into the time in which the process ran, and the rest.
// It counts the gap under way, too: after a standstill any goroutine may be the first to run.
// [Meter.Tally] counts the standstills of a while, and the short waits for a CPU beside them. A
// timer of [Meter.WithTimeout] counts the time in which the process ran alone; [WithTimeout] is for
// those who wait for one thing and have no meter.
//
// # Concurrency
//
// A Meter is safe for concurrent use. Run beats until its context ends. WithTimeout starts a
// goroutine that ends with the context.
//
// # Errors
//
// None. A meter that does not beat, or a nil Meter, takes the process for one that always runs.
package standstill

import (
	"context"
	"sync"
	"time"
)

const (
	// Every is the time between two beats.
	Every = 20 * time.Millisecond
	// Noticed is how late a beat is at least after a standstill. Shorter waits for a CPU are
	// usual.
	Noticed = 100 * time.Millisecond
)

// Meter measures the standstills of this process.
type Meter struct {
	mu    sync.Mutex    // owns the fields below
	beat  time.Time     // the last beat; zero: the meter does not beat
	stood time.Duration // the sum of the standstills
	// tallies are those that have not ended.
	tallies map[*Totals]struct{}
}

// Totals are the standstills of a tally.
type Totals struct {
	// Times counts the standstills, Stood adds them up.
	Times          int
	Stood, Longest time.Duration
	// Lag is the longest wait for a CPU that was too short for a standstill.
	Lag time.Duration
}

// Run beats until ctx ends.
func (m *Meter) Run(ctx context.Context) {
	ticker := time.NewTicker(Every)
	defer ticker.Stop()
	for {
		m.Beat(time.Now()) // not the ticker's time, which may be from before a standstill
		select {
		case <-ticker.C:
		case <-ctx.Done():
			m.Beat(time.Time{})
			return
		}
	}
}

// Start returns a meter that beats until stop is called, for work of several steps: a standstill
// right after it counts, and one across the end of the work's context as well. stop returns once
// the meter beats no more; later calls do nothing.
func Start() (m *Meter, stop func()) {
	m = new(Meter)
	m.Beat(time.Now()) // Run may begin late
	ctx, cancel := context.WithCancel(context.Background())
	var beats sync.WaitGroup
	beats.Go(func() { m.Run(ctx) })
	return m, func() {
		cancel()
		beats.Wait()
	}
}

// Beat notes that the process runs, for a caller with a loop of its own; a zero time ends the
// beats.
func (m *Meter) Beat(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(now)
}

// note is Beat. The caller holds mu.
func (m *Meter) note(now time.Time) {
	gap := m.gap(now)
	m.stood += gap
	for t := range m.tallies {
		switch {
		case gap > 0:
			t.Times++
			t.Stood += gap
			t.Longest = max(t.Longest, gap)
		case !m.beat.IsZero() && !now.IsZero():
			t.Lag = max(t.Lag, now.Sub(m.beat)-Every)
		}
	}
	m.beat = now
}

// noteNow is note for those who may find the meter without a beat. The caller holds mu.
func (m *Meter) noteNow() {
	if !m.beat.IsZero() {
		m.note(time.Now())
	}
}

// gap returns the standstill between the last beat and now, 0 for none. The caller holds mu.
func (m *Meter) gap(now time.Time) time.Duration {
	if m.beat.IsZero() || now.IsZero() {
		return 0
	}
	late := now.Sub(m.beat) - Every
	if late < Noticed {
		return 0
	}
	return late
}

// stoodUntil returns the sum of the standstills until now.
func (m *Meter) stoodUntil(now time.Time) time.Duration {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stood + m.gap(now)
}

// Stood returns the sum of the standstills so far, with the one under way.
func (m *Meter) Stood() time.Duration { return m.stoodUntil(time.Now()) }

// Tally begins a tally. Its end returns the standstills since, with the part that it has of one
// under way at the begin or at the end.
func (m *Meter) Tally() (end func() Totals) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noteNow()
	if m.tallies == nil {
		m.tallies = make(map[*Totals]struct{})
	}
	t := new(Totals)
	m.tallies[t] = struct{}{}
	return func() Totals {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.noteNow()
		delete(m.tallies, t)
		return *t
	}
}

// Span is a time from its begin to the present.
type Span struct {
	meter *Meter
	began time.Time
	stood time.Duration // of the meter, at the begin
}

// Begin begins a span.
func (m *Meter) Begin() Span {
	now := time.Now()
	return Span{
		meter: m,
		began: now,
		stood: m.stoodUntil(now),
	}
}

// Took divides the span into the time in which this process ran, and the time in which it stood
// still.
func (s Span) Took() (ran, stood time.Duration) {
	now := time.Now()
	stood = s.meter.stoodUntil(now) - s.stood
	return now.Sub(s.began) - stood, stood
}

// WithTimeout returns a context that ends once the process has run for a time. The context has
// no deadline to name, since nobody knows the standstills to come. Its error is
// [context.Canceled], its cause [context.DeadlineExceeded].
func (m *Meter) WithTimeout(ctx context.Context, long time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	t := &timeout{
		span: m.Begin(),
		long: long,
		end:  end,
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(max(1, long), t.look)
	return ctx, t.cancel
}

// WithTimeout is [Meter.WithTimeout] with a meter of its own, which beats until the context ends.
func WithTimeout(ctx context.Context, long time.Duration) (context.Context, context.CancelFunc) {
	m := new(Meter)
	m.Beat(time.Now()) // a standstill before Run has begun counts, too
	ctx, cancel := m.WithTimeout(ctx, long)
	go m.Run(ctx) // ends with the context
	return ctx, cancel
}

// Expired reports whether a context of WithTimeout, or one made from it, ended because the time was
// up.
func Expired(ctx context.Context) bool { return context.Cause(ctx) == context.DeadlineExceeded }

// timeout ends a context.
type timeout struct {
	span Span
	long time.Duration
	end  context.CancelCauseFunc

	mu    sync.Mutex // owns timer
	timer *time.Timer
}

// look ends the context if the time is up, and else looks again later.
func (t *timeout) look() {
	ran, _ := t.span.Took()
	if ran >= t.long {
		t.end(context.DeadlineExceeded)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Reset(max(1, t.long-ran))
	}
}

func (t *timeout) cancel() {
	t.end(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}
