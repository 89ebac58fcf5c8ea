// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is the object of a series, with the version of its last write: a slow and obvious server.
type world struct {
	object  *found
	version int
}

// carry does a call and returns the verdict.
func (w *world) carry(s *state, c call) verdict {
	switch {
	case c.kind == callCreate && w.object != nil:
		return verdictConflict
	case c.kind != callCreate && w.object == nil:
		return verdictMissing
	case c.kind == callRead:
		return verdictOK
	case c.kind == callPatch && c.version != w.object.version:
		return verdictConflict
	}
	w.version++
	w.object = &found{count: c.count, begun: s.begun, last: c.last, state: c.state, loose: c.loose, version: string(rune(w.version))}
	return verdictOK
}

// TestSeriesAgainstEverything drives a series and another process with the same object through
// random occurrences, pauses, failures, lost answers, expiry and an end. The object must count
// every occurrence of both exactly once.
func TestSeriesAgainstEverything(t *testing.T) {
	p := Options{FinishAfter: 6 * time.Minute, Heartbeat: 30 * time.Minute}
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		w := &world{}
		s := begin(now)
		total, acked, own := int64(1), int64(0), int64(1)
		expires := rapid.Bool().Draw(t, "expires") // an object that goes takes what the other process wrote with it
		send := func(s *state, fail string) {
			c := s.next(now, &p)
			if c.kind == callNone {
				return
			}
			v := verdictTrouble
			if fail != "before" {
				v = w.carry(s, c)
			}
			if fail == "after" {
				s.doubtful(c)
				return
			}
			switch v {
			case verdictOK:
				if c.kind != callRead {
					acked += s.done(c, w.object.version, now, 0.5, &p)
				} else {
					acked += s.merge(*w.object, now)
				}
			case verdictMissing:
				s.missing()
			case verdictConflict:
				s.phase = phaseUnread
			}
		}
		do := []string{"emit", "emit", "emit", "send", "send", "lost", "fail", "wait"}
		if expires {
			do = append(do, "expire")
		} else {
			do = append(do, "other")
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom(do).Draw(t, "do") {
			case "emit":
				if s.occur(now, &p) {
					total, own = total+1, own+1
				}
			case "wait":
				now = now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "s")) * time.Second)
			case "send":
				send(&s, "")
			case "lost":
				send(&s, "after")
			case "fail":
				send(&s, "before")
			case "expire":
				w.object = nil
			case "other": // one that rebases as this one does
				if w.object != nil && s.sent == 0 {
					n := int64(rapid.IntRange(1, 3).Draw(t, "n"))
					w.version++
					o := *w.object
					o.count, o.last, o.state, o.version = o.count+n, now, stateOngoing, string(rune(w.version))
					w.object = &o
					total += n
				}
			}
			now = now.Add(time.Millisecond)
		}
		s.end = suspended
		for i := 0; s.owes(now); i++ {
			if send(&s, ""); i > 10 {
				t.Fatalf("it does not end: %+v", s)
			}
		}
		if w.object != nil && w.object.loose && w.object.count <= total { // a lost answer and another process at once
			return
		}
		if gone := expires && w.object == nil; !gone && (w.object == nil || w.object.count != total) {
			t.Fatalf("%d occurrences, stored %+v, state %+v", total, w.object, s)
		}
		if acked != own {
			t.Fatalf("%d own occurrences, %d acknowledged: %+v", own, acked, s)
		}
	})
}

// TestEvictedTwiceInOneCall: a series is evicted, takes occurrences during its last call, and is
// evicted again before the answer. The new occurrences are still owed.
func TestEvictedTwiceInOneCall(t *testing.T) {
	p := Options{FinishAfter: 6 * time.Minute, Heartbeat: 30 * time.Minute}
	now := time.Now()
	s := state{phase: phaseStored, end: evicted, count: 5, stored: 2, last: now, begun: now, due: now.Add(time.Hour)}
	c := s.next(now, &p)
	for range 3 {
		s.occur(now, &p)
	}
	s.end = evicted
	s.done(c, "1", now, 0, &p)
	if s.over(now) || !s.owes(now) || s.count != 8 || s.stored != 5 {
		t.Fatalf("%+v: three occurrences are to be written", s)
	}
	if s.done(s.next(now, &p), "2", now, 0, &p); !s.over(now) || s.stored != 8 {
		t.Errorf("the last call leaves %+v", s)
	}
}

func TestNoCallsWhereNothingIsOwed(t *testing.T) {
	p := Options{FinishAfter: 6 * time.Minute, Heartbeat: 30 * time.Minute}
	now := time.Now()
	for _, s := range []state{
		{phase: phaseStored, count: 1, stored: 1, last: now, begun: now, due: now},
		{phase: phaseStored, count: 9, stored: 2, last: now, begun: now, due: now.Add(time.Hour)},
		{phase: phaseResting, count: 3, stored: 3, last: now, due: now.Add(time.Minute)},
		{phase: phaseDone},
	} {
		if c := s.next(now, &p); c.kind != callNone {
			t.Errorf("phase %d: %+v", s.phase, c)
		}
	}
}

func TestGate(t *testing.T) {
	now := time.Now()
	o := &Options{BackoffBase: time.Second, BackoffMax: 30 * time.Second}
	var g *gate
	if g.closed(now) != 0 {
		t.Error("it is not open at first")
	}
	g = newGate(o, now)
	for i := range 40 {
		g.fail(now, 0)
		full := 30 * time.Second
		if i < 5 {
			full = min(time.Second<<i, full)
		}
		if d := g.closed(now); d < full/2 || d > full {
			t.Errorf("failure %d waits %v of %v", i, d, full)
		}
	}
	var waits []time.Duration
	for _, asked := range []time.Duration{time.Hour, 40 * time.Second} {
		g = newGate(o, now)
		g.fail(now, asked)
		waits = append(waits, g.closed(now))
	}
	if !slices.Equal(waits, []time.Duration{5 * time.Minute, 40 * time.Second}) {
		t.Errorf("a Retry-After of an hour and one of 40 s are %v", waits)
	}
	if g.closed(now.Add(time.Hour)) != 0 {
		t.Error("it does not open")
	}
}
