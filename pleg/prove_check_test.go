// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"maps"
	"slices"

	"github.com/evented-pleg/evented-pleg/cache"
)

// invariants returns an error for each invariant of the core and of the cache that does not hold.
func (v *prover) invariants() error {
	return errors.Join(v.core.checkInvariants(v.w.now), v.exec.check(v.core))
}

// look checks, after each turn, what the cache shows, and serves the waiter. Every phase shown was
// so at some moment since the read of which the entry is. So a waiter, who is served by a read
// begun later than his own calls have returned, never sees a state from before them.
func (v *prover) look() {
	shown := v.view()
	for i := range v.sc.lives {
		l, d := &v.sc.lives[i], &v.w.ids[i]
		was, at := v.before[i], v.asOf(l.pod)
		if shown[i] != was || at > v.beforeAt[i] { // earlier: the cache has pruned a tombstone
			v.checkFresh(i, shown[i], at)
		}
		if shown[i] != was {
			v.checkChange(i, was, shown[i])
		}
		if v.beforeAt[i] = at; !v.queued(l.pod) {
			d.fair = 0
		}
		if p := v.core.pods[l.pod]; p != nil && p.entry == statusEntry && v.recorded(i) != shown[i] {
			v.fail("RECORD: the cache shows %s %v, and the record %v", l.id, shown[i], v.recorded(i))
		}
	}
	v.remember()
	if v.w.waiting && v.asOf("p") > v.w.since {
		v.w.waiting, v.w.since = false, 0
	}
}

// remember takes the present state for the one before the next move.
func (v *prover) remember() {
	v.before = v.view()
	for i := range v.sc.lives {
		v.beforeAt[i], v.known[i], v.told[i] = v.asOf(v.sc.lives[i].pod), v.recorded(i) != phaseNone, noTold
	}
}

// recorded returns the phase in which the core has recorded that the cache shows an ID.
func (v *prover) recorded(i int) Phase {
	if p := v.core.pods[v.sc.lives[i].pod]; p != nil {
		for _, x := range p.items {
			if x.id == v.sc.lives[i].id {
				return x.shown
			}
		}
	}
	return phaseNone
}

// checkFresh checks that an ID was in the phase shown at some moment since the entry's time.
func (v *prover) checkFresh(i int, shown Phase, at instant) {
	l := &v.sc.lives[i]
	var low uint8
	if at != 0 {
		k := slices.IndexFunc(v.w.looks, func(l proveLook) bool { return l.at == at })
		if k < 0 {
			v.fail("AS OF: the cache has pod %s as of %d, when no read began", l.pod, at)
			return
		}
		low = v.w.looks[k].low[i]
	}
	if _, err := v.cfg.Cache.Get(l.pod); err == nil && !v.was(i, shown, low) && !v.excused(i) {
		v.fail("STALE: the cache shows %s %v, which was not so since its AsOf", l.id, shown)
	}
}

// was reports whether a read that looked at some moment since a stage may have shown an ID so. The
// removal of an ID may be told, and believed, as soon as it is decided.
func (v *prover) was(i int, p Phase, low uint8) bool {
	l, stage := &v.sc.lives[i], v.w.ids[i].stage
	if p == PhaseUnknown && v.sc.unknown || p == phaseNone && stage >= l.leaving() {
		return true
	}
	return slices.Contains(l.shows[low:stage+1], p)
}

// excused reports whether payloads may show what is not so: a stream that lies may, and one that is
// late, of a sandbox that recovers.
func (v *prover) excused(i int) bool {
	return v.sc.payloads && (v.sc.lies || v.sc.lives[i].kind == Sandbox)
}

// checkChange checks that no phase goes back, that what is gone does not return, and that Watch was
// told of the change after the cache showed it.
func (v *prover) checkChange(i int, was, shown Phase) {
	l, d := &v.sc.lives[i], &v.w.ids[i]
	switch {
	case v.told[i][i] == shown:
	case was == phaseNone && shown == PhaseCreated: // silent, as in the kubelet
	case shown == phaseNone && !v.known[i]: // an earlier generator knew the ID
	default:
		v.fail("UNTOLD: the cache shows %s %v after %v, and Watch was not told", l.id, shown, was)
	}
	if v.sc.lies || shown == phaseNone || shown == PhaseUnknown {
		return
	}
	if d.ever&sentRemoved != 0 {
		v.fail("RESURRECTION: the cache shows %s %v", l.id, shown)
	}
	if was != phaseNone && shown < was && l.kind == Container {
		v.fail("BACK: the cache shows %s %v after %v", l.id, shown, was)
	}
}

// noTold is the view of an event that was not sent.
var noTold = proveView{0xfe, 0xfe}

// hear checks the events sent, each with what the cache showed then.
func (v *prover) hear() {
	for _, shown := range v.views {
		select {
		case e := <-v.exec.out.ch:
			v.hearEvent(&e, &shown)
		default:
			v.fail("WATCH: an event was counted and not sent")
		}
	}
	if len(v.exec.out.ch)+len(v.exec.out.owed) > 0 {
		v.fail("WATCH: an event was sent and not counted")
	}
	v.views = v.views[:0]
}

// hearEvent checks that each event is sent once in the life of an ID, in order, and after the
// cache.
func (v *prover) hearEvent(e *Event, shown *proveView) {
	for i := range v.sc.lives {
		l, d := &v.sc.lives[i], &v.w.ids[i]
		if l.pod != e.Pod {
			continue
		}
		v.told[i] = *shown
		if e.ID != l.id {
			continue
		}
		var sent, unless uint8
		ok := shown[i] == phaseNone
		switch e.Type {
		case ContainerStarted:
			sent, unless, ok = sentStarted, sentStarted|sentDied|sentRemoved, shown[i] == PhaseRunning
		case ContainerDied:
			sent, unless, ok = sentDied, sentDied|sentRemoved, ok || shown[i] == PhaseExited
		case ContainerRemoved:
			sent, unless = sentRemoved, sentRemoved
		}
		if d.ever&unless != 0 {
			v.fail("EVENTS: %s of %s after %03b", e.Type, l.id, d.ever)
		}
		if _, err := v.cfg.Cache.Get(l.pod); !ok && err == nil { // beside an error stands an older status
			v.fail("WATCH BEFORE CACHE: %s of %s, and the cache shows %v", e.Type, l.id, shown[i])
		}
		d.ever |= sent
	}
}

// checkFair checks that a pod that waits for a worker waits for one read of each other pod at most.
func (v *prover) checkFair(uid cache.UID) {
	for i := range v.sc.lives {
		if l, d := &v.sc.lives[i], &v.w.ids[i]; l.pod != uid && v.queued(l.pod) {
			if d.fair++; d.fair > 1 {
				v.fail("UNFAIR: pod %s waits for a worker while %d reads of another begin", l.pod, d.fair)
			}
		}
	}
}

// queued reports whether a pod waits for a worker.
func (v *prover) queued(uid cache.UID) bool {
	p := v.core.pods[uid]
	return p != nil && p.queued
}

// drain ends all faults, and checks where that leads. Only a load may follow.
func (v *prover) drain() {
	w := &v.w
	for i := range v.sc.lives {
		if w.ids[i].stage == v.sc.lives[i].leaving() {
			v.advance(i)
		}
	}
	w.late = proveCall{} // never works
	if w.call.is {
		m := proveMove{kind: moveCallFails}
		if w.call.works {
			m.kind = moveCallReturns
		}
		v.do(&m)
	}
	if v.core.trust.mute.ending {
		v.do(&proveMove{kind: moveStreamEnds})
	}
	if w.opening {
		w.opening = false
		v.input(input[proveStatus]{kind: inputClaims, claims: &batch[proveStatus]{claims: 1}})
	}
	v.draining = true
	v.settle("once faults have ended")
	for i := range v.sc.lives {
		d, l := &w.ids[i], &v.sc.lives[i]
		switch shown := v.view()[i]; {
		case !d.heard || v.sc.lies || l.kind == Sandbox || shown == v.truth(i):
		case shown == PhaseUnknown: // a grace later, the runtime did not know: lists find the phase
		default:
			v.fail("LOST: %s was told to be %v, and the cache shows %v once all reads are done", l.id, v.truth(i), shown)
		}
	}
	v.input(input[proveStatus]{kind: inputRequest})
	v.settle("after a list")
	if v.core.lists.doubted { // it lost more than it kept, and is made again
		v.input(input[proveStatus]{kind: inputRequest})
		v.settle("after two lists")
	}
	for i := range v.sc.lives {
		if shown := v.view()[i]; shown != v.truth(i) {
			v.fail("UNSETTLED: %s is %v, and the cache shows %v after a list", v.sc.lives[i].id, v.truth(i), shown)
		}
	}
	v.checkForgotten()
	if err := v.invariants(); err != nil {
		v.fail("INVARIANT in the end: %v", err)
	}
	v.draining = false
}

// settle makes the reads that are wanted until none is.
func (v *prover) settle(when string) {
	for n := 0; ; n++ {
		v.finish(when)
		if v.wrong != "" || n > 0 && !v.unsettled() {
			return
		}
		if n == 6 {
			v.fail("BUSY: no pod is settled after %d rests %s: %d are dirty", n, when, len(v.core.reads.dirty))
			return
		}
		v.do(&proveMove{kind: moveTime})
	}
}

// unsettled reports whether a read is still to come, other than of a pod that goes away.
func (v *prover) unsettled() bool {
	for p := range v.core.reads.dirty {
		if p.unmet() || p.failed() || max(p.want, p.due, p.changed, p.force) != 0 {
			return true
		}
	}
	return v.w.waiting || v.w.list != nil || len(v.w.reads) > 0
}

// finish ends the reads under way, and the reads that begin with their ends.
func (v *prover) finish(when string) {
	for n := 0; v.w.list != nil || len(v.w.reads) > 0; n++ {
		switch {
		case n == 12:
			v.fail("BUSY: %d reads %s, and no end", n, when)
			return
		case v.w.list != nil:
			v.endList(v.whole(moveListEnds, nil))
		default:
			v.endRead(v.whole(moveReadEnds, v.w.reads[0]))
		}
	}
}

// whole returns the end of a read that looks at everything now.
func (v *prover) whole(kind proveKind, r *proveRead) *proveMove {
	m := &proveMove{kind: kind, sees: noSight}
	if r != nil {
		m.pod = r.uid
	}
	for i := range v.sc.lives {
		if r == nil || !r.listed || r.asks(v.sc.lives[i].id) {
			m.sees[i] = proveSight{v.truth(i), v.truth(i)}
		}
	}
	return m
}

// checkForgotten checks that nothing is remembered of pods that are gone.
func (v *prover) checkForgotten() {
	for i := range v.sc.lives {
		if v.truth(i) != phaseNone {
			return
		}
	}
	for range 4 {
		v.do(&proveMove{kind: moveTime})
		v.finish("after the end")
	}
	c := v.core
	maps.DeleteFunc(c.gone, func(_ string, g removal) bool { return !g.open }) // remembered for a minute
	if n := len(c.pods) + len(c.index) + len(c.evidence.early) + len(c.gone) + len(c.calls.under); n > 0 || v.cfg.Cache.Len() > 0 {
		v.fail("REMEMBERED: %d records, and %d pods in the cache, of which nothing is left", n, v.cfg.Cache.Len())
	}
}
