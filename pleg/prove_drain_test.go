// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "github.com/evented-pleg/evented-pleg/cache"

// drain ends all faults and says what is then wrong. Nothing is of use after it but the next load.
func (v *prover) drain() {
	w := &v.world
	for i := range v.scope.ids {
		if l := &v.scope.ids[i]; w.ids[i].stage == l.leaving() {
			v.advance(i)
		}
	}
	w.failed = false // it never works
	if w.calling {
		m := proveMove{kind: moveCallFails}
		if w.works {
			m.kind = moveCallReturns
		}
		v.agent(&m)
	}
	if v.core.mute.ending {
		v.do(&proveMove{kind: moveStreamEnds})
	}
	if w.opening {
		w.opening = false
		v.input(input[status]{kind: inputClaims, claims: &batch[status]{claims: 1}})
	}
	v.pinned = true
	v.settleAll("once faults have ended")
	v.pinned = false
	for i := range v.scope.ids {
		d, l := &w.ids[i], &v.scope.ids[i]
		if d.heard && !v.scope.lies && l.kind == Container && v.view()[i] != v.truth(i) && v.view()[i] != PhaseUnknown {
			v.fail("LOST: %s was told to be %v, and the cache shows %v once all reads are done", l.id, v.truth(i), v.view()[i])
		}
	}
	v.input(input[status]{kind: inputRequest})
	v.settleAll("after a list")
	v.agree()
	v.forgotten()
}

// whole is a read that looks at everything now.
func (v *prover) whole(kind proveKind, uid cache.UID) *proveMove {
	m := &proveMove{kind: kind}
	if uid != "" {
		m.id = wordNumber(string(uid)) - 1
	}
	for i := range m.looks {
		m.looks[i] = proveGlance{phaseNone, phaseNone}
	}
	for i := range v.scope.ids {
		m.looks[i] = proveGlance{v.truth(i), v.truth(i)}
	}
	return m
}

// finish ends the reads under way, and those that begin with their ends.
func (v *prover) finish(when string) {
	w := &v.world
	for n := 0; ; n++ {
		switch {
		case n == 12:
			v.fail("BUSY: %d reads %s, and no end", n, when)
			return
		case w.list != nil:
			v.endList(v.whole(moveListEnds, ""))
		case len(w.reads) > 0:
			r := w.reads[0]
			m := v.whole(moveReadEnds, r.uid)
			if r.interrupted {
				m.kind = moveListingFails
			}
			if r.listed {
				v.askedOnly(r, m)
			}
			v.endRead(m)
		default:
			return
		}
	}
}

// askedOnly leaves out of what a read shows the IDs that it does not ask for.
func (v *prover) askedOnly(r *proveRead, m *proveMove) {
	for i := range v.scope.ids {
		asked := false
		for _, it := range r.items {
			asked = asked || it.ID == v.scope.ids[i].id
		}
		if !asked {
			m.looks[i] = proveGlance{phaseNone, phaseNone}
		}
	}
}

// settleAll makes the reads that are wanted until none is.
func (v *prover) settleAll(when string) {
	for n := 0; ; n++ {
		v.finish(when)
		if v.wrong != "" || !v.unsettled() && n > 0 {
			return
		}
		if n == 6 {
			v.fail("BUSY: no pod is settled after %d rounds %s: %d are open", n, when, len(v.core.dirty))
			return
		}
		v.do(&proveMove{kind: moveTime})
	}
}

// unsettled says that a read is still to come, but for those that look whether a pod has gone.
func (v *prover) unsettled() bool {
	for _, p := range v.core.dirty {
		if p.unsure() || p.asked() {
			return true
		}
	}
	return v.world.waiting || v.world.list != nil || len(v.world.reads) > 0
}

// agree says what the cache does not show as it is, and what Watch has not been told.
func (v *prover) agree() {
	shown := v.view()
	for i := range v.scope.ids {
		l, d := &v.scope.ids[i], &v.world.ids[i]
		if shown[i] != v.truth(i) {
			v.fail("UNSETTLED: %s is %v, and the cache shows %v after a list", l.id, v.truth(i), shown[i])
		}
		if shown[i] != d.knows && !(v.silent(shown[i]) && v.silent(d.knows)) {
			v.fail("UNTOLD: the cache shows %s %v, and when Watch was last told it showed %v", l.id, shown[i], d.knows)
		}
	}
}

// silent says that an ID is shown in no phase for which Watch gets an event.
func (v *prover) silent(p Phase) bool { return p == phaseNone || p == PhaseCreated }

// forgotten says what is remembered of pods that have gone.
func (v *prover) forgotten() {
	for i := range v.scope.ids {
		if v.truth(i) != phaseNone || v.world.ids[i].stage == 0 {
			return
		}
	}
	for range 4 {
		v.do(&proveMove{kind: moveTime})
		v.finish("after the end")
	}
	if n := len(v.core.pods); n > 0 || v.cache.Len() > 0 {
		v.fail("REMEMBERED: %d pods, %d in the cache, of which nothing is left", n, v.cache.Len())
	}
}
