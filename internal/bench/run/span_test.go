// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

// TestSpanOfBothProcesses: the time in which the generator's process, or this one, did not run is
// no time in which the cache could become right.
func TestSpanOfBothProcesses(t *testing.T) {
	for _, test := range []struct{ ours, theirs, ran time.Duration }{
		{0, 0, 60 * time.Second},
		{0, 20 * time.Second, 40 * time.Second},
		{20 * time.Second, 0, 40 * time.Second},
		{20 * time.Second, 25 * time.Second, 35 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &side{meter: new(standstill.Meter)}
			s.onNews(worker.News{Progress: worker.Progress{Stood: time.Hour}})
			s.meter.Beat(time.Now())
			span := s.span()
			time.Sleep(standstill.Every + test.ours)
			s.meter.Beat(time.Now())
			s.meter.Beat(time.Time{})
			s.onNews(worker.News{Progress: worker.Progress{Stood: time.Hour + test.theirs}})
			time.Sleep(time.Minute - standstill.Every - test.ours)
			if ran := span.ran(); ran != test.ran {
				t.Errorf("stood %v, the other %v: ran %v of a minute, want %v", test.ours, test.theirs, ran, test.ran)
			}
		})
	}
}

// TestPatience: on a machine on which a process stood still, the comparison waits for longer.
func TestPatience(t *testing.T) {
	for _, test := range []struct{ stood, want time.Duration }{
		{0, time.Second},
		{400 * time.Millisecond, time.Second},
		{500 * time.Millisecond, 10 * time.Second},
	} {
		ours := &side{meter: new(standstill.Meter)}
		began := time.Now()
		ours.meter.Beat(began)
		ours.meter.Beat(began.Add(standstill.Every + test.stood))
		ours.meter.Beat(time.Time{})
		theirs := &side{meter: new(standstill.Meter)}
		theirs.onNews(worker.News{Progress: worker.Progress{Stood: test.stood}})
		for name, s := range map[string]*side{"this process": ours, "the other": theirs} {
			if got := s.patience(time.Second); got != test.want {
				t.Errorf("%s stood for %v: %v, want %v", name, test.stood, got, test.want)
			}
		}
	}
}
