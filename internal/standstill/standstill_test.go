// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package standstill

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// process beats its meter, and does not run in the given times from its start.
func process(t *testing.T, m *Meter, stops ...[2]time.Duration) {
	start := time.Now()
	m.Beat(start)
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		for t.Context().Err() == nil {
			time.Sleep(Every)
			for _, stop := range stops {
				now := time.Since(start)
				if stop[0] <= now && now < stop[1] {
					time.Sleep(stop[1] - now)
				}
			}
			m.Beat(time.Now())
		}
	}()
}

// TestSpan divides times with and without standstills.
func TestSpan(t *testing.T) {
	const s = time.Second
	for _, test := range []struct {
		name        string
		stops       [][2]time.Duration
		begin, end  time.Duration
		ran, spread time.Duration // spread: the beats know a standstill only so well
	}{
		{"always on", nil, s, 5 * s, 4 * s, 0},
		{"a stop within", [][2]time.Duration{{2 * s, 42 * s}}, s, 50 * s, 9 * s, 2 * Every},
		{"two stops", [][2]time.Duration{{2 * s, 3 * s}, {4 * s, 9 * s}}, s, 10 * s, 3 * s, 4 * Every},
		{"a stop before", [][2]time.Duration{{s / 2, 5 * s}}, 6 * s, 7 * s, s, 0},
		{"measured before the meter has beaten again", [][2]time.Duration{{2 * s, 42 * s}}, s, 42*s - 1, s, 2 * Every},
		{"too short for a standstill", [][2]time.Duration{{2 * s, 2*s + Noticed - Every}}, s, 3 * s, 2 * s, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := new(Meter)
				process(t, m, test.stops...)
				time.Sleep(test.begin)
				span := m.Begin()
				time.Sleep(test.end - test.begin)
				ran, stood := span.Took()
				if off := (ran - test.ran).Abs(); off > test.spread || ran+stood != test.end-test.begin {
					t.Errorf("ran %v, stood %v; want to have run %v", ran, stood, test.ran)
				}
			})
		})
	}
}

// TestTally adds up what was in its time: not what was before, and of a standstill that begins
// before, or ends after, its part.
func TestTally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Meter)
		idle := m.Tally()
		beat := func(after ...time.Duration) {
			for _, d := range after {
				time.Sleep(d)
				m.Beat(time.Now())
			}
		}
		beat(0, Every+Noticed*9/10, Every+time.Minute)
		time.Sleep(Every + time.Second)
		end := m.Tally()
		time.Sleep(Every + 2*time.Second)
		beat(0, Every, Every+Noticed/2, Every+time.Second, Every)
		time.Sleep(Every + 3*time.Second)
		want := Totals{
			Times:   3,
			Stood:   6 * time.Second,
			Longest: 3 * time.Second,
			Lag:     Noticed / 2,
		}
		if got := end(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		beat(Every + time.Minute)
		m.Beat(time.Time{})
		time.Sleep(time.Hour)
		beat(0) // another run
		want = Totals{
			Times:   6,
			Stood:   127 * time.Second,
			Longest: time.Minute,
			Lag:     Noticed * 9 / 10,
		}
		if got := idle(); got != want {
			t.Errorf("from the meter's begin: %+v, want %+v", got, want)
		}
		if len(m.tallies) > 0 {
			t.Errorf("%d tallies go on after their end", len(m.tallies))
		}
	})
}

// TestTimeout ends contexts after the time in which the process ran.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Meter)
		process(t, m, [2]time.Duration{time.Second, 41 * time.Second})
		began := time.Now()
		ctx, cancel := m.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		<-ctx.Done()
		if took := time.Since(began); took < 43*time.Second || took > 43*time.Second+2*Every {
			t.Errorf("a timeout of 3 s, with 40 s in which the process did not run, took %v", took)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("the cause is %v", cause)
		}
		ctx, cancel = m.WithTimeout(t.Context(), time.Second)
		cancel()
		cancel()
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			t.Errorf("the cause of a canceled context is %v", cause)
		}
		none := (*Meter)(nil)
		began = time.Now()
		ctx, cancel = none.WithTimeout(t.Context(), time.Second)
		defer cancel()
		<-ctx.Done()
		if took := time.Since(began); took != time.Second {
			t.Errorf("without a meter a timeout of a second took %v", took)
		}
	})
}

// TestRun beats until the end of its context.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Meter)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			m.Run(ctx)
			close(ended)
		}()
		span := m.Begin()
		time.Sleep(time.Minute)
		stop()
		<-ended
		time.Sleep(time.Minute)
		if ran, stood := span.Took(); ran != 2*time.Minute || stood != 0 {
			t.Errorf("ran %v, stood %v, want two minutes and nothing", ran, stood)
		}
	})
}

// TestStart beats from the start to the stop, which may come twice.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, stop := Start()
		defer stop()
		if m.beat.IsZero() {
			t.Error("a standstill before the first beat is not noticed")
		}
		span := m.Begin()
		time.Sleep(time.Minute)
		if ran, stood := span.Took(); ran != time.Minute || stood != 0 {
			t.Errorf("ran %v, stood %v, want a minute and nothing", ran, stood)
		}
		stop()
		if !m.beat.IsZero() {
			t.Error("it beats after its stop")
		}
	})
}
