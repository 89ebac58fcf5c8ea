// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"io"
	"slices"

	"github.com/evented-pleg/evented-pleg/cache"
)

// proveKind is the kind of a move.
type proveKind uint8

const (
	moveTruth proveKind = iota
	moveTime
	moveClaim
	moveWait
	moveForce
	moveList
	moveListEnds
	moveListFails
	moveReadEnds
	moveReadFails
	moveListingFails
	moveCall
	moveCallWorks
	moveCallReturns
	moveCallFails
	moveCallLate
	moveStreamEnds
	moveRestart
)

var proveKindNames = [...]string{
	"truth:", "time passes", "claim", "GetNewerThan(now) of pod", "RequestReinspect of pod", "a list is asked for", "list ends:", "list fails",
	"read ends:", "read fails, having listed:", "read fails", "call begins:", "call works", "call returns", "call fails or times out",
	"the call that failed works", "the stream ends", "a new generator takes over",
}

// proveSight is what a read sees of an ID: in its listing, and in its statuses.
type proveSight struct{ listing, status Phase }

var noSight = [proveIDs]proveSight{{phaseNone, phaseNone}, {phaseNone, phaseNone}}

// proveMove is one thing that may happen next.
type proveMove struct {
	kind     proveKind
	id       uint8
	pod      cache.UID
	phase    Phase
	payload  bool                 // moveClaim: sees is the payload
	nameless bool                 // moveClaim: the claim names no pod
	lost     bool                 // moveCall: there is no room for the call
	sees     [proveIDs]proveSight // what a read, or a payload, shows
}

func (m *proveMove) String() string {
	s := proveKindNames[m.kind]
	switch m.kind {
	case moveTruth, moveClaim, moveCall:
		s += fmt.Sprintf(" %c %v", 'a'+m.id, m.phase)
	}
	if m.pod != "" {
		s += " " + string(m.pod)
	}
	if m.nameless {
		s += ", no pod named"
	}
	if m.lost {
		s += ", no room"
	}
	if m.payload {
		s += ", payload"
	}
	if m.payload || m.kind == moveListEnds || m.kind == moveReadEnds || m.kind == moveReadFails {
		s += fmt.Sprint(" ", m.sees)
	}
	return s
}

// String returns the listing's phase and the status's.
func (g proveSight) String() string {
	name := func(p Phase) string {
		if p == phaseNone {
			return "-"
		}
		return p.String()
	}
	return name(g.listing) + "/" + name(g.status)
}

// moves returns all that may happen in the present state.
func (v *prover) moves() []proveMove {
	v.list = v.list[:0]
	sc, w := v.sc, &v.w
	for i := range sc.lives {
		if l := &sc.lives[i]; w.ids[i].stage < l.gone() && !(sc.knows && v.byCalls(i)) {
			v.may(proveMove{kind: moveTruth, id: uint8(i), phase: l.shows[w.ids[i].stage+1]})
		}
	}
	if v.timeMayPass() {
		v.may(proveMove{kind: moveTime})
	}
	if sc.claims && !w.opening {
		v.claimMoves()
	}
	if sc.waits && !w.waiting {
		v.may(proveMove{kind: moveWait, pod: "p"})
	}
	if p := v.core.pods["p"]; sc.forces && (p == nil || p.force == 0) {
		v.may(proveMove{kind: moveForce, pod: "p"})
	}
	if sc.lists && w.list == nil {
		v.may(proveMove{kind: moveList})
	}
	if w.list != nil {
		v.endsOf(w.list, moveListEnds)
		if sc.fails {
			v.may(proveMove{kind: moveListFails})
		}
	}
	for _, r := range w.reads {
		v.endsOf(r, moveReadEnds)
		if sc.fails {
			v.may(proveMove{kind: moveListingFails, pod: r.uid})
			if !r.listed {
				v.endsOf(r, moveReadFails)
			}
		}
	}
	if sc.acks {
		v.callMoves()
	}
	if sc.streams && v.core.stream.up() {
		v.may(proveMove{kind: moveStreamEnds})
	}
	if sc.restarts {
		v.may(proveMove{kind: moveRestart})
	}
	return v.list
}

func (v *prover) may(m proveMove) { v.list = append(v.list, m) }

// byCalls reports whether the next stage of an ID is reached by a call alone.
func (v *prover) byCalls(i int) bool {
	l, stage := &v.sc.lives[i], v.w.ids[i].stage
	return stage == 0 || l.kind == Container && l.shows[stage+1] == PhaseRunning
}

// timeMayPass reports whether a rest may pass: no removal takes longer than the grace from when it
// is decided, and no read if the scope says so.
func (v *prover) timeMayPass() bool {
	slow := func(r *proveRead) bool { return v.sc.quick && r != nil && restOf(r.started) < restOf(v.w.now) }
	for i := range v.sc.lives {
		if v.w.ids[i].late > 0 {
			return false
		}
	}
	return !slow(v.w.list) && !slices.ContainsFunc(v.w.reads, slow)
}

// claimMoves lets the stream announce anything that is or was so, in any order and any number of
// times: late, twice, with an old payload. A removal may be announced when it is decided. A stream
// that lies may announce anything.
func (v *prover) claimMoves() {
	var can [proveIDs][PhaseRemoved + 1]bool
	for i := range v.sc.lives {
		l, stage := &v.sc.lives[i], v.w.ids[i].stage
		for _, p := range l.shows[1 : stage+1] {
			if p != phaseNone {
				can[i][p] = true
			}
		}
		can[i][PhaseRemoved] = stage >= l.leaving()
		if v.sc.lies {
			can[i] = [PhaseRemoved + 1]bool{false, l.shows[1] == PhaseCreated, true, true, true}
		}
	}
	for i := range v.sc.lives {
		for p := PhaseCreated; p <= PhaseRemoved; p++ {
			if !can[i][p] {
				continue
			}
			m := proveMove{kind: moveClaim, id: uint8(i), phase: p, sees: noSight}
			v.may(m)
			if v.sc.nameless {
				nameless := m
				nameless.nameless = true
				v.may(nameless)
			}
			if v.sc.payloads {
				v.payloadMoves(m, &can)
			}
		}
	}
}

// payloadMoves gives a claim each payload that was so: with its own ID, and without the other ID of
// the pod or with it.
func (v *prover) payloadMoves(m proveMove, can *[proveIDs][PhaseRemoved + 1]bool) {
	if m.payload = true; m.phase != PhaseRemoved {
		m.sees[m.id] = proveSight{m.phase, m.phase}
	}
	v.may(m)
	k := 1 - m.id
	if int(k) >= len(v.sc.lives) || v.sc.lives[k].pod != v.sc.lives[m.id].pod {
		return
	}
	for q := PhaseCreated; q <= PhaseExited; q++ {
		if can[k][q] {
			m.sees[k] = proveSight{q, q}
			v.may(m)
		}
	}
}

// endsOf lets a read end in each way in which it may have looked: at each ID at a moment of its own
// since the read was started, at its status no sooner than at its listing.
func (v *prover) endsOf(r *proveRead, kind proveKind) {
	m := proveMove{kind: kind, pod: r.uid, sees: noSight}
	others := []proveSight{noSight[1]}
	if len(v.sc.lives) > 1 {
		others = v.sights(r, 1, kind)
	}
	for _, a := range v.sights(r, 0, kind) {
		for _, b := range others {
			m.sees = [proveIDs]proveSight{a, b}
			v.may(m)
		}
	}
}

// sights returns the ways in which a read may have looked at one ID.
func (v *prover) sights(r *proveRead, i int, kind proveKind) (can []proveSight) {
	l, stage := &v.sc.lives[i], v.w.ids[i].stage
	if r.uid != "" && r.uid != l.pod {
		return noSight[:1]
	}
	add := func(listing, status Phase) {
		if listing == phaseNone && r.uid != "" && !r.listed {
			status = phaseNone // not asked for
		}
		if kind != moveReadEnds {
			status = listing
		}
		if s := (proveSight{listing, status}); !slices.Contains(can, s) {
			can = append(can, s)
		}
	}
	for g := r.low[i]; g <= stage; g++ {
		listing := l.shows[g]
		if r.listed {
			listing = phaseNone
		}
		for k := g; k <= stage; k++ {
			status := l.shows[k]
			if r.listed && !r.asks(l.id) {
				status = phaseNone
			}
			add(listing, status)
			if v.sc.unknown && listing != phaseNone {
				add(PhaseUnknown, status)
			}
			if v.sc.unknown && status != phaseNone {
				add(listing, PhaseUnknown)
				if listing != phaseNone {
					add(PhaseUnknown, PhaseUnknown)
				}
			}
		}
	}
	return can
}

// asks reports whether a read of given IDs asks for one.
func (r *proveRead) asks(id string) bool {
	return slices.ContainsFunc(r.items, func(it Item) bool { return it.ID == id })
}

// callMoves lets the agent make, start, stop and remove containers, one call at a time.
func (v *prover) callMoves() {
	w := &v.w
	if w.late.is {
		v.may(proveMove{kind: moveCallLate})
	}
	if w.call.is {
		if w.call.works {
			v.may(proveMove{kind: moveCallReturns})
		} else {
			v.may(proveMove{kind: moveCallWorks})
		}
		v.may(proveMove{kind: moveCallFails})
		return
	}
	for i := range v.sc.lives {
		l, stage := &v.sc.lives[i], w.ids[i].stage
		makes := l.shows[1]
		for p := makes; p <= PhaseRemoved; p++ {
			switch {
			case (v.sc.makes || l.kind == Sandbox) && p != makes:
			case (p == makes) != (stage == 0):
			case p == PhaseRunning && p != makes && stage != 1: // started before
			case p > PhaseRunning && stage == l.gone():
			default:
				v.may(proveMove{kind: moveCall, id: uint8(i), phase: p})
				if v.sc.loses {
					v.may(proveMove{kind: moveCall, id: uint8(i), phase: p, lost: true})
				}
			}
		}
	}
}

// do makes a move.
func (v *prover) do(m *proveMove) {
	w := &v.w
	v.ticked = false
	v.dropLooks()
	switch m.kind {
	case moveTruth:
		v.moment()
		v.advance(int(m.id))
	case moveTime:
		for i := range v.sc.lives {
			if d := &w.ids[i]; d.stage == v.sc.lives[i].leaving() {
				d.late++
			}
		}
		w.now += proveRest
		v.tick(true)
	case moveClaim:
		v.claim(m)
	case moveWait:
		v.moment()
		w.waiting, w.since = true, w.now
		v.input(v.demand())
	case moveForce:
		v.input(input[proveStatus]{kind: inputRequest, request: request{uid: m.pod, inspect: true}})
	case moveList:
		v.input(input[proveStatus]{kind: inputRequest})
	case moveListEnds:
		v.endList(m)
	case moveListFails:
		r := w.list
		w.list = nil
		v.input(input[proveStatus]{kind: inputListed, listed: &listedAll{began: r.began, err: errProve}})
	case moveReadEnds, moveReadFails, moveListingFails:
		v.endRead(m)
	case moveCallWorks:
		v.moment()
		w.call.works = true
		v.work(&w.call)
	case moveCallLate:
		v.moment()
		v.work(&w.late)
		w.late = proveCall{}
	case moveCall, moveCallReturns, moveCallFails:
		v.agent(m)
	case moveStreamEnds:
		v.input(input[proveStatus]{kind: inputEnded, in: inLost, ended: io.ErrUnexpectedEOF})
	case moveRestart:
		v.restart()
	}
}

// demand is the demand of the waiter.
func (v *prover) demand() input[proveStatus] {
	return input[proveStatus]{kind: inputDemand, demand: map[cache.UID]cache.Demand{"p": {Phases: v.clk.time(v.w.since)}}}
}

// advance brings an ID to its next stage.
func (v *prover) advance(i int) {
	d := &v.w.ids[i]
	d.stage++
	d.late = 0
	if d.stage <= v.sc.lives[i].leaving() {
		d.heard = false
	}
}

// claim announces an ID, with a payload or without.
func (v *prover) claim(m *proveMove) {
	l, d := &v.sc.lives[m.id], &v.w.ids[m.id]
	pc := &podClaims[proveStatus]{pod: l.pod, claims: 1, latest: []latestClaim{{item: Item{ID: l.id, Kind: l.kind, Phase: m.phase}}}}
	if m.nameless {
		pc.pod = ""
	}
	if m.payload {
		pc.payload = v.seen(m, l.pod, true)
		status := proveStatus(pc.payload)
		pc.status = func(*proveStatus) (*proveStatus, error) { return &status, nil }
	}
	switch leaving := d.stage == l.leaving(); {
	case m.nameless: // a list finds the pod
	case m.phase == PhaseRemoved && d.stage >= l.leaving():
		d.heard = true
	case m.phase == l.shows[d.stage]:
		d.heard = d.heard || !leaving
	}
	v.input(input[proveStatus]{kind: inputClaims, claims: &batch[proveStatus]{pods: []*podClaims[proveStatus]{pc}, claims: 1}})
}

// seen returns what a move shows of a pod, in its listing or in its statuses.
func (v *prover) seen(m *proveMove, uid cache.UID, listing bool) []Item {
	items := []Item{}
	for i := range v.sc.lives {
		p := m.sees[i].status
		if listing {
			p = m.sees[i].listing
		}
		if l := &v.sc.lives[i]; p != phaseNone && l.pod == uid {
			items = append(items, Item{ID: l.id, Kind: l.kind, Phase: p})
		}
	}
	return items
}

// endList ends the list under way. What a list shows as it is must not be lost, whatever reads show
// that overlap with the list.
func (v *prover) endList(m *proveMove) {
	w := &v.w
	r := w.list
	w.list = nil
	res := &listedAll{began: r.began}
	res.listing.Delta = v.sc.deltas && r.since != 0
	if v.sc.deltas {
		res.listing.Revision = 1
	}
	for _, uid := range []cache.UID{"p", "q"} {
		items := v.seen(m, uid, true)
		was, same := false, true
		for i := range v.sc.lives {
			if v.sc.lives[i].pod == uid {
				was = was || w.listed[i] != phaseNone
				same = same && w.listed[i] == m.sees[i].listing
			}
		}
		switch {
		case res.listing.Delta && same:
		case len(items) > 0:
			res.listing.Pods = append(res.listing.Pods, Pod{UID: uid, Items: items})
		case res.listing.Delta && was:
			res.listing.Gone = append(res.listing.Gone, uid)
		}
	}
	before := w.ids
	listed := w.listed
	for i := range v.sc.lives {
		d := &w.ids[i]
		d.heard = d.heard || d.stage != v.sc.lives[i].leaving() && m.sees[i].listing == v.truth(i)
		if v.sc.deltas {
			w.listed[i] = m.sees[i].listing
		}
	}
	v.input(input[proveStatus]{kind: inputListed, listed: res})
	if v.core.lists.doubted { // the next list tells, and what differs from the last one that was believed
		w.listed = listed
		for i := range v.sc.lives {
			w.ids[i].heard = before[i].heard
		}
	}
}

// endRead ends the read of a pod as the loop's child does: with the statuses if the pod has
// changed.
func (v *prover) endRead(m *proveMove) {
	w := &v.w
	k := slices.IndexFunc(w.reads, func(r *proveRead) bool { return r.uid == m.pod })
	r := w.reads[k]
	w.reads = slices.Delete(w.reads, k, k+1)
	res := &inspected[proveStatus]{look: look{uid: r.uid, began: r.began}}
	items := r.items
	if !r.listed && m.kind != moveListingFails {
		items = v.seen(m, r.uid, true)
		res.listing = &Pod{UID: r.uid, Items: items}
	}
	switch {
	case m.kind != moveReadEnds:
		res.err = errProve
		if m.kind == moveReadFails || r.listed {
			res.take(Pod{UID: r.uid, Items: items}, Inspection[proveStatus]{})
		}
	case len(items) > 0 && (r.listed || !r.builds || !sameItems(items, r.have)):
		status := proveStatus(v.seen(m, r.uid, false))
		res.status, res.shows = &status, Pod{UID: r.uid, Items: status}
	case res.listing == nil:
		res.listing = &Pod{UID: r.uid}
	}
	v.input(input[proveStatus]{kind: inputInspected, inspected: res})
}

// agent begins or ends an own call. The loop takes acks in the turn that follows.
func (v *prover) agent(m *proveMove) {
	w := &v.w
	v.moment()
	if m.kind == moveCall {
		w.call = proveCall{is: true, lost: m.lost, id: m.id, verb: m.phase, began: w.now}
	}
	call := w.call
	l, d := &v.sc.lives[call.id], &w.ids[call.id]
	a := ack{call: ownCall{serial: 1, began: call.began}, at: w.now}
	if a.call.Pod.UID = l.pod; call.verb != l.shows[1] {
		a.call.ID = l.id
	}
	if m.kind != moveCall {
		w.call = proveCall{}
		a.returned, a.failed = true, m.kind == moveCallFails
		if a.failed && !call.works && v.sc.times && !w.late.is {
			w.late = proveCall{is: true, id: call.id, verb: call.verb}
		}
		if !a.failed && !call.lost {
			a.items = []Item{{ID: l.id, Kind: l.kind, Phase: call.verb}}
			if v.truth(int(call.id)) == call.verb || call.verb == PhaseRemoved {
				d.heard = d.stage != l.leaving()
			}
		}
	}
	in := input[proveStatus]{kind: inputAcks, acks: []ack{a}}
	if call.lost {
		in = input[proveStatus]{kind: inputAcks, lost: lostCalls{some: true, open: m.kind == moveCall}}
	}
	v.tell(in)
	v.tick(v.sc.housekeeps)
}

// work is the effect of a call.
func (v *prover) work(call *proveCall) {
	l, d := &v.sc.lives[call.id], &v.w.ids[call.id]
	for d.stage < l.gone() && (d.stage == 0 || v.truth(int(call.id)) < call.verb) {
		v.advance(int(call.id))
	}
}

// restart has a new generator take over the cache.
func (v *prover) restart() {
	w := &v.w
	v.core = newCore(&v.cfg, v.clk, 1)
	v.core.peeks.of = nil // none
	v.core.cfg = v.template.cfg
	v.exec.counted = counters{}
	w.list, w.reads, w.listed = nil, nil, noView
	for i := range w.ids {
		w.ids[i].ever, w.ids[i].heard, w.ids[i].fair, v.known[i] = 0, false, 0, false
	}
	v.moment()
	v.tell(input[proveStatus]{kind: inputStart, held: v.cfg.Cache.UIDs()})
	if w.waiting {
		v.input(v.demand()) // Run renews the demand
	}
	v.turn()
}
