// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is a server as the series of one key see it, the slow and obvious way: an object for each series.
type world struct {
	objects map[int]found
}

// life is one series of a process, and the object that it writes.
type life struct {
	state
	object int
}

// carry does an op and returns the input that answers it.
func (w *world) carry(s *life, o op) input {
	in := input{op: o, kind: inDone}
	_, there := w.objects[s.object]
	switch {
	case o.kind == opCreate && there:
		in.kind = inExists
	case o.kind == opPatch && !there:
		in.kind = inMissing
	case o.series:
		w.objects[s.object] = found{eventTime: s.eventTime, series: true, count: o.count, last: o.last, state: o.state}
	default:
		w.objects[s.object] = found{eventTime: s.eventTime, count: 1, last: s.eventTime}
	}
	return in
}

// process drives one key through everything that can happen to it.
type process struct {
	t             *rapid.T
	p             policy
	now           time.Time
	w             *world
	emitted, lost int64
	live          []*life // oldest first; the last one takes occurrences
	memory        *life   // of an evicted series
	objects       int
}

func (p *process) feed(s *life, in input) effects {
	in.now, in.rand = p.now, rand.Float64()
	var e effects
	s.state, e = step(s.state, in, &p.p)
	p.lost += e.lost
	if e.forget {
		p.live = slices.DeleteFunc(p.live, func(l *life) bool { return l == s })
		if s.stored > 0 && s.closing == evicted {
			p.memory = new(*s)
		}
	}
	return e
}

// send makes one call, which may fail before or after it was carried out; meanwhile happens before the answer.
func (p *process) send(s *life, fail string, meanwhile func()) bool {
	o := p.feed(s, input{kind: inSend}).op
	if o.kind == opNone {
		return false
	}
	in := input{kind: inFailed, op: o}
	if fail != "before" {
		if answer := p.w.carry(s, o); fail == "" {
			in = answer
		}
	}
	if meanwhile != nil {
		meanwhile()
	}
	if slices.Contains(p.live, s) {
		p.feed(s, in)
	}
	return true
}

func (p *process) emit() {
	p.emitted++
	if n := len(p.live); n > 0 {
		if !p.feed(p.live[n-1], input{kind: inOccurred}).reopen {
			return
		}
		p.feed(p.live[n-1], input{kind: inTick})
	}
	p.objects++
	next := &life{begin(p.now), p.objects}
	if m := p.memory; m != nil && len(p.live) == 0 && p.now.Sub(m.last) < p.p.threshold {
		next = &life{revive(m.state, p.now), m.object}
	}
	p.memory = nil
	p.live = append(p.live, next)
}

// flush shuts the process down.
func (p *process) flush() {
	for i := 0; len(p.live) > 0; i++ {
		s := p.live[0]
		p.feed(s, input{kind: inClose, closing: suspended})
		for len(p.live) > 0 && p.live[0] == s && p.send(s, "", nil) {
			if i++; i > 1000 {
				p.t.Fatalf("a series does not end: %+v", *s)
			}
		}
	}
}

// restart takes over the latest stored series, if it may.
func (p *process) restart() {
	p.flush()
	p.memory = nil
	for o := p.objects; o > 0; o-- {
		if f, ok := p.w.objects[o]; ok {
			if st, continues, _ := p.p.adopt(state{}, f, p.now, 0.5); continues {
				p.live = append(p.live, &life{st, o})
				return
			}
		}
	}
}

// TestStepAgainstEverything drives one key through random occurrences, pauses, failures, lost answers, evictions in the
// middle of calls, restarts and shutdowns, and checks that the objects stored count every occurrence exactly once.
func TestStepAgainstEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &process{
			t: t, p: policy{threshold: 6 * time.Minute, heartbeat: 30 * time.Minute}, now: time.Unix(1_000_000, 0),
			w: &world{objects: map[int]found{}},
		}
		if rapid.Bool().Draw(t, "early") {
			p.p.early = []int64{3, 10}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			do := rapid.SampledFrom([]string{"emit", "emit", "emit", "send", "send", "lost", "fail", "wait", "long", "tick", "restart", "evict", "overtaken"}).Draw(t, "do")
			switch {
			case do == "emit":
				p.emit()
			case do == "wait":
				p.now = p.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "s")) * time.Second)
			case do == "long":
				p.now = p.now.Add(31 * time.Minute)
			case do == "tick":
				for _, s := range slices.Clone(p.live) {
					p.feed(s, input{kind: inTick})
				}
			case do == "restart":
				p.restart()
			case len(p.live) == 0:
			case do == "send":
				p.send(p.live[0], "", nil)
			case do == "lost":
				p.send(p.live[0], "after", nil)
			case do == "fail":
				p.send(p.live[0], "before", nil)
			case do == "evict" && len(p.live) == 1:
				p.feed(p.live[0], input{kind: inClose, closing: evicted})
			case do == "overtaken" && len(p.live) == 1:
				s := p.live[0]
				p.send(s, "", func() {
					for range rapid.IntRange(0, 2).Draw(t, "meanwhile") {
						p.emit()
					}
					if len(p.live) == 1 {
						p.feed(s, input{kind: inClose, closing: evicted})
					}
				})
			}
			p.now = p.now.Add(time.Millisecond)
		}
		p.flush()
		var stored int64
		for _, o := range p.w.objects {
			stored += o.count
		}
		if stored+p.lost != p.emitted {
			t.Fatalf("emitted %d, stored %d, lost %d: %+v", p.emitted, stored, p.lost, p.w.objects)
		}
	})
}

// TestEvictedTwiceInOneCall: a series is evicted, takes occurrences while its last call is under way,
// and is evicted again before the answer: what came in between is still owed.
func TestEvictedTwiceInOneCall(t *testing.T) {
	p := policy{threshold: 6 * time.Minute, heartbeat: 30 * time.Minute}
	now := time.Now()
	s := state{phase: ongoing, count: 5, stored: 2, last: now, eventTime: now, heartbeat: now.Add(time.Hour)}
	s, _ = step(s, input{kind: inClose, closing: evicted, now: now}, &p)
	s, e := step(s, input{kind: inSend, now: now}, &p)
	call := e.op
	for range 3 {
		s, _ = step(s, input{kind: inOccurred, now: now}, &p)
	}
	s, _ = step(s, input{kind: inClose, closing: evicted, now: now}, &p)
	s, e = step(s, input{kind: inDone, op: call, now: now}, &p)
	if e.forget || !e.owes || s.count != 8 || s.stored != 5 {
		t.Fatalf("forget %t, owes %t, state %+v: three occurrences are to be told", e.forget, e.owes, s)
	}
	s, e = step(s, input{kind: inSend, now: now}, &p)
	if s, e = step(s, input{kind: inDone, op: e.op, now: now}, &p); !e.forget || s.stored != 8 {
		t.Errorf("the last call leaves %+v", s)
	}
}

func TestNoCallsWhereNothingIsOwed(t *testing.T) {
	p := policy{threshold: 6 * time.Minute, heartbeat: 30 * time.Minute}
	now := time.Now()
	for _, s := range []state{
		{phase: single, count: 1, stored: 1, last: now, eventTime: now},
		{phase: ongoing, count: 9, stored: 2, last: now, eventTime: now, heartbeat: now.Add(time.Hour)},
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
	g := gate{base: time.Second, limit: 30 * time.Second}
	if g.closed(now) != 0 || g.probing() {
		t.Error("it is not open at first")
	}
	for i := range 40 {
		for _, r := range []float64{0, 0.999} {
			d := g.fail(now, 0, r).closed(now)
			full := 30 * time.Second
			if i < 5 {
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
