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

// TestPatience: on a machine on which a process stood still, the comparison waits for longer, and
// for longest while the generator knows of pods to be read.
func TestPatience(t *testing.T) {
	for _, test := range []struct {
		stood           time.Duration
		dirty, underway int
		want            time.Duration
	}{
		{0, 0, 0, time.Second},
		{0, 1, 1, time.Second},
		{400 * time.Millisecond, 1, 0, time.Second},
		{500 * time.Millisecond, 0, 0, 10 * time.Second},
		{500 * time.Millisecond, 1, 0, time.Minute},
		{500 * time.Millisecond, 0, 1, time.Minute},
	} {
		var known worker.Progress
		known.DirtyPods = test.dirty
		known.Inspecting = test.underway
		ours := &side{meter: new(standstill.Meter)}
		began := time.Now()
		ours.meter.Beat(began)
		ours.meter.Beat(began.Add(standstill.Every + test.stood))
		ours.meter.Beat(time.Time{})
		ours.onNews(worker.News{Progress: known})
		theirs := &side{meter: new(standstill.Meter)}
		known.Stood = test.stood
		theirs.onNews(worker.News{Progress: known})
		for name, s := range map[string]*side{"this process": ours, "the other": theirs} {
			if got := s.patience(time.Second); got != test.want {
				t.Errorf("%s, %+v: %v", name, test, got)
			}
		}
	}
}
