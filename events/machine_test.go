// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is a server as one series sees it, the slow and obvious way: objects by epoch.
type world struct {
	objects map[uint32]snapshot
}

// carry does an op and returns the input that answers it.
func (w *world) carry(s *state, o op) input {
	in := input{op: o}
	old, there := w.objects[o.epoch]
	switch {
	case o.kind == opCreate && there:
		in.kind = inExists
	case o.kind == opCreate:
		w.objects[o.epoch] = snapshot{ours: true, eventTime: s.eventTime, series: o.series, count: max(o.count, 1), last: o.last, state: o.state}
		if !o.series {
			seen := w.objects[o.epoch]
			seen.count, seen.last = 1, s.eventTime
			w.objects[o.epoch] = seen
		}
		in.kind = inDone
	case !there:
		in.kind = inMissing
	case o.kind == opRead:
		in.kind, in.seen = inDone, old
	case o.kind == opPoint:
		old.latest = o.latest
		w.objects[o.epoch] = old
		in.kind = inDone
	case o.kind == opPatch:
		old.series, old.count, old.last, old.state = true, o.count, o.last, o.state
		w.objects[o.epoch] = old
		in.kind = inDone
	}
	return in
}

// TestStepAgainstEverything drives one key through random occurrences, pauses, failures, lost answers, restarts and shutdowns, and
// checks after each run that the objects stored count every occurrence exactly once.
func TestStepAgainstEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policy{threshold: 6 * time.Minute, heartbeat: 30 * time.Minute}
		if rapid.Bool().Draw(t, "early") {
			p.early = []int64{3, 10}
		}
		now := time.Unix(1_000_000, 0)
		w := &world{objects: map[uint32]snapshot{}}
		var emitted, lost int64
		var live []*state // oldest first; the last one takes occurrences
		var memory *state // what the process remembers of a forgotten series

		take := func(s *state, e effects) {
			lost += e.lost
			if e.forget {
				for i := range live {
					if live[i] == s {
						live = append(live[:i:i], live[i+1:]...)
						break
					}
				}
				if s.stored > 0 && s.closing != suspended {
					memory = new(*s)
				}
			}
		}
		send := func(s *state, fail string) bool {
			var e effects
			*s, e = step(*s, input{kind: inSend, now: now, rand: rand.Float64()}, &p)
			take(s, e)
			if e.op.kind == opNone {
				return false
			}
			in := input{kind: inFailed, op: e.op}
			if fail != "before" {
				answer := w.carry(s, e.op)
				if fail == "" {
					in = answer
				}
			}
			in.now, in.rand = now, rand.Float64()
			*s, e = step(*s, in, &p)
			take(s, e)
			return true
		}
		flush := func() {
			for i := 0; len(live) > 0; i++ {
				s := live[0]
				var e effects
				*s, e = step(*s, input{kind: inClose, closing: suspended, now: now}, &p)
				take(s, e)
				for n := 0; len(live) > 0 && live[0] == s && send(s, ""); n++ {
					if n > 300 {
						t.Fatalf("a series does not end: %+v", *s)
					}
				}
				if i > 1000 {
					t.Fatalf("%d series do not end", len(live))
				}
			}
		}

		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"emit", "emit", "emit", "send", "send", "lost", "fail", "wait", "long", "tick", "restart", "evict"}).Draw(t, "do") {
			case "emit":
				emitted++
				if len(live) > 0 {
					s := live[len(live)-1]
					var e effects
					*s, e = step(*s, input{kind: inOccurred, now: now}, &p)
					if !e.reopen {
						lost += e.lost
						break
					}
					next := p.after(*s, now)
					live = append(live, &next)
					*s, e = step(*s, input{kind: inTick, now: now}, &p)
					take(s, e)
					break
				}
				next := begin(now)
				if memory != nil {
					if memory.closing == evicted && now.Sub(memory.last) < p.threshold {
						next = p.revive(*memory, now)
					} else {
						next = p.after(*memory, now)
					}
				}
				live = append(live, &next)
			case "send":
				if len(live) > 0 {
					send(live[0], "")
				}
			case "lost":
				if len(live) > 0 {
					send(live[0], "after")
				}
			case "fail":
				if len(live) > 0 {
					send(live[0], "before")
				}
			case "wait":
				now = now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "s")) * time.Second)
			case "long":
				now = now.Add(31 * time.Minute)
			case "tick":
				for _, s := range append([]*state(nil), live...) {
					var e effects
					*s, e = step(*s, input{kind: inTick, now: now, rand: 0.5}, &p)
					take(s, e)
				}
			case "evict":
				if len(live) == 1 {
					var e effects
					*live[0], e = step(*live[0], input{kind: inClose, closing: evicted, now: now}, &p)
					take(live[0], e)
				}
			case "restart":
				flush()
				memory = nil
			}
			now = now.Add(time.Millisecond)
		}
		flush()
		var stored int64
		for _, o := range w.objects {
			stored += o.count
		}
		if stored+lost != emitted {
			t.Fatalf("emitted %d, stored %d, lost %d: %+v", emitted, stored, lost, w.objects)
		}
	})
}

func TestNoCallsWhereNothingIsOwed(t *testing.T) {
	p := policy{threshold: 6 * time.Minute, heartbeat: 30 * time.Minute}
	now := time.Now()
	for _, s := range []state{
		{phase: single, count: 1, stored: 1, first: now, last: now, eventTime: now},
		{phase: ongoing, count: 9, stored: 2, first: now, last: now, eventTime: now, heartbeat: now.Add(time.Hour)},
		{phase: rejected, count: 3, stored: 3, heartbeat: now.Add(time.Minute)},
		{phase: closed},
	} {
		if _, e := step(s, input{kind: inSend, now: now}, &p); e.op.kind != opNone {
			t.Errorf("phase %d: %+v", s.phase, e.op)
		}
	}
}

func TestGate(t *testing.T) {
	now := time.Now()
	g := gate{base: time.Second, limit: 5 * time.Minute}
	if g.closed(now) != 0 || g.probing() {
		t.Error("it is not open at first")
	}
	for i := range 40 {
		for _, r := range []float64{0, 0.999} {
			d := g.fail(now, 0, r).closed(now)
			full := 5 * time.Minute
			if i < 9 {
				full = min(time.Second<<i, full)
			}
			if d < full/2 || d > full {
				t.Errorf("failure %d waits %v of %v", i, d, full)
			}
		}
		g = g.fail(now, 0, 0.5)
	}
	if d := g.fail(now, time.Hour, 0).closed(now); d != 5*time.Minute {
		t.Errorf("a Retry-After of an hour is %v", d)
	}
	g = g.succeed()
	if d := g.fail(now, 30*time.Second, 0).closed(now); d != 30*time.Second {
		t.Errorf("a Retry-After of 30 s is %v", d)
	}
	if g.closed(now.Add(time.Hour)) != 0 {
		t.Error("it does not open")
	}
}
