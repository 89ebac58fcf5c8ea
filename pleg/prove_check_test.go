// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"

	"github.com/evented-pleg/evented-pleg/cache"
)

// was says that a read that looked at some moment between a stage of an ID and the present one may
// have shown it in that phase. That an ID has gone may be told, and believed, as soon as it is
// decided.
func (v *prover) was(i int, p Phase, low uint8) bool {
	l, stage := &v.scope.ids[i], v.world.ids[i].stage
	if p == PhaseUnknown && v.scope.unknown || p == phaseNone && stage >= l.leaving() {
		return true
	}
	return slices.Contains(l.shows[low:stage+1], p)
}

// look checks what holds in every state: that what the cache shows of each ID was so at some moment
// since the read that it is as of. It serves the waiter.
func (v *prover) look() {
	shown := v.view()
	for i := range v.scope.ids {
		l := &v.scope.ids[i]
		was, at := v.before[i], v.asOfNow(l.pod)
		if shown[i] != was || at > v.beforeAt[i] { // it is earlier when the cache has pruned a tombstone
			v.checkFresh(i, shown[i], at)
		}
		v.beforeAt[i] = at
		if !v.queued(l.pod) {
			v.world.ids[i].fair = 0
		}
		v.checkChange(i, was, shown[i])
	}
	v.before = shown
	if v.world.waiting && v.asOfNow("p") > v.world.since {
		v.world.waiting, v.world.since = false, 0
	}
}

func (v *prover) checkFresh(i int, shown Phase, at instant) {
	l := &v.scope.ids[i]
	low, ok := v.lowAt(at)
	if !ok {
		v.fail("AS OF: the cache has pod %s as of %d, when no read began", l.pod, at)
	}
	_, err := v.cache.Get(l.pod)
	if err == nil && !v.was(i, shown, low[i]) && !v.excused(i) {
		v.fail("STALE: the cache shows %s %v, which was not so since its AsOf", l.id, shown)
	}
}

// checkChange checks that nothing goes back, and that what has gone does not come back, unless
// this generator has never known it: what it drops of an older one's status, a read that overlaps
// with its first list may show once more.
func (v *prover) checkChange(i int, was, shown Phase) {
	l, d := &v.scope.ids[i], &v.world.ids[i]
	d.over = d.over || was != phaseNone && shown == phaseNone && v.core.index[l.id] != nil
	if v.scope.lies || shown == was || shown == phaseNone || shown == PhaseUnknown {
		return
	}
	if d.ever&maskRemoved != 0 || d.over {
		v.fail("RESURRECTION: the cache shows %s %v", l.id, shown)
	}
	if was != phaseNone && shown < was && l.kind == Container {
		v.fail("BACK: the cache shows %s %v after %v", l.id, shown, was)
	}
}

// excused says that a stream that lies, or a sandbox that comes back, may have what it told shown.
func (v *prover) excused(i int) bool {
	return (v.scope.lies || v.scope.ids[i].kind == Sandbox) && v.scope.payloads
}

// asOfNow is the time that the cache gives for a pod; 0 if none.
func (v *prover) asOfNow(uid cache.UID) instant {
	at := v.cache.AsOf(uid)
	if at.IsZero() {
		return 0
	}
	return v.clk.instant(at)
}

// lowAt returns the stages at the begin of a read.
func (v *prover) lowAt(at instant) (low [proveIDs]uint8, ok bool) {
	if at == 0 {
		return low, true
	}
	for _, l := range v.world.looks {
		if l.at == at {
			return l.low, true
		}
	}
	return low, false
}
