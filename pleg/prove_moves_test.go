// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// proveKind is what happens in a move.
type proveKind uint8

const (
	moveTruth proveKind = iota
	moveTime
	moveClaim
	moveWait
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
	moveCallLost
	moveStreamEnds
	moveRestart
)

var proveKindNames = []string{
	"truth:", "time passes", "claim", "GetNewerThan(now)", "a list is asked for", "list ends:", "list fails", "read ends:", "read fails, having listed:",
	"read fails", "call begins:", "call works", "call returns", "call fails or times out", "the call that failed works", "call that finds no room begins:", "the stream ends", "restart of the generator",
}

// proveGlance is what a read sees of an ID: in its listing, and in its statuses.
type proveGlance struct{ listing, status Phase }

// proveMove is one thing that may happen next.
type proveMove struct {
	kind    proveKind
	id      uint8 // or the number of a read
	phase   Phase
	payload bool
	first   cache.UID             // the pod that comes up first; empty: as it comes
	looks   [proveIDs]proveGlance // what a read, or a payload, shows
}

func (m *proveMove) String() string {
	var b strings.Builder
	b.WriteString(proveKindNames[m.kind])
	switch m.kind {
	case moveTruth, moveClaim, moveCall, moveCallLost:
		fmt.Fprintf(&b, " %s %v", words[3+m.id], m.phase)
	case moveReadEnds, moveReadFails, moveListingFails:
		fmt.Fprintf(&b, " of pod %s", words[1+m.id])
	}
	if m.first != "" {
		fmt.Fprintf(&b, ", pod %s comes up first", m.first)
	}
	if m.payload {
		fmt.Fprintf(&b, ", payload %v", m.looks)
	}
	switch m.kind {
	case moveListEnds, moveReadEnds, moveReadFails:
		fmt.Fprintf(&b, " %v", m.looks)
	}
	return b.String()
}

// String shows a glance.
func (g proveGlance) String() string {
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
	sc, w := v.scope, &v.world
	for i := range sc.ids {
		if l := &sc.ids[i]; w.ids[i].stage < l.gone() && !(sc.knows && v.byCalls(i)) {
			v.may(proveMove{kind: moveTruth, id: uint8(i), phase: l.shows[w.ids[i].stage+1]})
		}
	}
	if v.timeMayPass() {
		v.timeMoves()
	}
	if sc.claims && !w.opening {
		v.claimMoves()
	}
	if sc.waits && !w.waiting {
		v.may(proveMove{kind: moveWait})
	}
	if sc.lists && w.list == nil {
		v.may(proveMove{kind: moveList})
	}
	if w.list != nil {
		v.glances(w.list, moveListEnds, 0)
		if sc.fails {
			v.may(proveMove{kind: moveListFails})
		}
	}
	for _, r := range w.reads {
		v.readMoves(r)
	}
	if sc.acks {
		v.callMoves()
	}
	if sc.streams && v.core.connected() {
		v.may(proveMove{kind: moveStreamEnds})
	}
	if sc.restarts {
		v.may(proveMove{kind: moveRestart})
	}
	return v.list
}

// byCalls says that what is next in the life of an ID comes by a call alone.
func (v *prover) byCalls(i int) bool {
	l, stage := &v.scope.ids[i], v.world.ids[i].stage
	return stage == 0 || l.kind == Container && l.shows[stage+1] == PhaseRunning
}

// timeMayPass says that no removal takes longer than the grace from when it may be told of, and no
// read if the scope says so.
func (v *prover) timeMayPass() bool {
	w := &v.world
	for _, r := range w.reads {
		if v.scope.quick && restOf(r.asked) < restOf(w.now) {
			return false
		}
	}
	if v.scope.quick && w.list != nil && restOf(w.list.asked) < restOf(w.now) {
		return false
	}
	for i := range v.scope.ids {
		if w.ids[i].late > 0 {
			return false
		}
	}
	return true
}

// timeMoves lets time pass. Where pods that come up wait for one worker, either may come up first:
// that depends on instants within a rest, and on what else is in the heap, which states do not keep.
func (v *prover) timeMoves() {
	if !v.scope.scarce || len(v.core.laterQ) < 2 {
		v.may(proveMove{kind: moveTime})
		return
	}
	for _, e := range v.core.laterQ {
		v.may(proveMove{kind: moveTime, first: e.pod.uid})
	}
}

func (v *prover) may(m proveMove) { v.list = append(v.list, m) }

// claimMoves lets the stream tell anything that is or was so, in any order and as often as it
// likes: late, twice, or with an old payload. A removal may be told when it is decided. With lies,
// anything.
func (v *prover) claimMoves() {
	var can [proveIDs][PhaseRemoved + 1]bool
	for i := range v.scope.ids {
		l, stage := &v.scope.ids[i], v.world.ids[i].stage
		for g := uint8(1); g <= stage; g++ {
			if p := l.shows[g]; p != phaseNone {
				can[i][p] = true
			}
		}
		can[i][PhaseRemoved] = stage >= l.leaving()
		if v.scope.lies {
			can[i] = [PhaseRemoved + 1]bool{false, len(l.shows) == len(proveContainer), true, true, true}
		}
	}
	for i := range v.scope.ids {
		for p := PhaseCreated; p <= PhaseRemoved; p++ {
			if !can[i][p] {
				continue
			}
			v.may(proveMove{kind: moveClaim, id: uint8(i), phase: p})
			if v.scope.payloads {
				v.payloadMoves(i, p, &can)
			}
		}
	}
}

func (v *prover) payloadMoves(i int, p Phase, can *[proveIDs][PhaseRemoved + 1]bool) {
	m := proveMove{kind: moveClaim, id: uint8(i), phase: p, payload: true}
	for k := range m.looks {
		m.looks[k] = proveGlance{phaseNone, phaseNone}
	}
	if p != PhaseRemoved {
		m.looks[i] = proveGlance{p, p}
	}
	v.may(m)
	k := 1 - i
	if k >= len(v.scope.ids) || v.scope.ids[k].pod != v.scope.ids[i].pod {
		return
	}
	for q := PhaseCreated; q <= PhaseExited; q++ {
		if can[k][q] {
			m.looks[k] = proveGlance{q, q}
			v.may(m)
		}
	}
}

// readMoves lets the read of one pod end, or fail.
func (v *prover) readMoves(r *proveRead) {
	pod := wordNumber(string(r.uid)) - 1
	v.glances(r, moveReadEnds, pod)
	if v.scope.fails || r.interrupted {
		v.may(proveMove{kind: moveListingFails, id: pod})
		if !r.listed {
			v.glances(r, moveReadFails, pod)
		}
	}
}

// glances has a read end in each way in which it may have looked: at each ID at a moment of its own
// since the read was started, at its status no sooner than at its listing.
func (v *prover) glances(r *proveRead, kind proveKind, pod byte) {
	var can [proveIDs][]proveGlance
	for i := range v.scope.ids {
		can[i] = v.glancesAt(r, i, kind)
	}
	m := proveMove{kind: kind, id: pod}
	for _, a := range can[0] {
		m.looks[0] = a
		if len(v.scope.ids) == 1 {
			m.looks[1] = proveGlance{phaseNone, phaseNone}
			v.may(m)
			continue
		}
		for _, b := range can[1] {
			m.looks[1] = b
			v.may(m)
		}
	}
}

// glancesAt returns the ways in which a read may have looked at one ID.
func (v *prover) glancesAt(r *proveRead, i int, kind proveKind) []proveGlance {
	l, stage := &v.scope.ids[i], v.world.ids[i].stage
	if r.uid != "" && r.uid != l.pod {
		return []proveGlance{{phaseNone, phaseNone}}
	}
	var can []proveGlance
	add := func(g proveGlance) {
		if g.listing == phaseNone && r.uid != "" && !r.listed {
			g.status = phaseNone // nobody asks for it
		}
		if kind != moveReadEnds {
			g.status = g.listing
		}
		if !slices.Contains(can, g) {
			can = append(can, g)
		}
	}
	asked := slices.ContainsFunc(r.items, func(it Item) bool { return it.ID == l.id })
	for g := r.low[i]; g <= stage; g++ {
		listing := l.shows[g]
		if r.listed {
			listing = phaseNone
		}
		for k := g; k <= stage; k++ {
			status := l.shows[k]
			if r.listed && !asked {
				status = phaseNone
			}
			add(proveGlance{listing, status})
			if !v.scope.unknown {
				continue
			}
			if listing != phaseNone {
				add(proveGlance{PhaseUnknown, status})
			}
			if status != phaseNone {
				add(proveGlance{listing, PhaseUnknown})
				if listing != phaseNone {
					add(proveGlance{PhaseUnknown, PhaseUnknown})
				}
			}
		}
	}
	return can
}

// callMoves lets the agent make, start, stop and remove containers, one call at a time.
func (v *prover) callMoves() {
	w := &v.world
	if w.failed {
		v.may(proveMove{kind: moveCallLate, id: w.failing, phase: w.fails})
	}
	if w.calling {
		if !w.works {
			v.may(proveMove{kind: moveCallWorks})
		} else {
			v.may(proveMove{kind: moveCallReturns})
		}
		v.may(proveMove{kind: moveCallFails})
		return
	}
	for i := range v.scope.ids {
		l, stage := &v.scope.ids[i], w.ids[i].stage
		for p := PhaseCreated; p <= PhaseRemoved; p++ {
			switch {
			case (v.scope.makes || l.kind == Sandbox) && p != l.shows[1]:
			case p == l.shows[1] && stage != 0, p != l.shows[1] && stage == 0: // who makes it, and what does not exist
			case p == PhaseCreated && l.shows[1] != PhaseCreated:
			case p == PhaseRunning && l.shows[1] != PhaseRunning && stage != 1: // who starts it
			case p > PhaseRunning && stage == l.gone():
			default:
				v.may(proveMove{kind: moveCall, id: uint8(i), phase: p})
				if v.scope.loses {
					v.may(proveMove{kind: moveCallLost, id: uint8(i), phase: p})
				}
			}
		}
	}
}

// do has a move happen.
func (v *prover) do(m *proveMove) {
	w := &v.world
	switch m.kind {
	case moveTruth:
		w.now += proveMoment
		v.advance(int(m.id))
	case moveTime:
		v.rest(m.first)
	case moveClaim:
		v.claim(m)
	case moveWait:
		w.now += proveMoment
		w.waiting, w.since = true, w.now
		v.input(demandOf(v.clk.time(w.now)))
	case moveList:
		v.input(input[status]{kind: inputRequest})
	case moveListEnds:
		v.endList(m)
	case moveListFails:
		r := w.list
		w.list = nil
		v.input(input[status]{kind: inputListed, listed: &listedAll{began: r.began, err: errProve}})
	case moveReadEnds, moveReadFails, moveListingFails:
		v.endRead(m)
	case moveCall, moveCallWorks, moveCallReturns, moveCallFails, moveCallLost:
		v.agent(m)
	case moveCallLate:
		w.now += proveMoment
		v.works(w.failing, w.fails)
		w.failed, w.failing, w.fails = false, 0, 0
	case moveStreamEnds:
		v.input(input[status]{kind: inputEnded, in: inLost, ended: io.ErrUnexpectedEOF})
	case moveRestart:
		v.restart()
	}
}

// rest has time pass. Of the pods that come up then the given one comes first, if one is given.
func (v *prover) rest(first cache.UID) {
	for i := range v.scope.ids {
		if d := &v.world.ids[i]; d.stage == v.scope.ids[i].leaving() {
			d.late++
		}
	}
	v.world.now = v.world.now.add(proveJump)
	if first != "" {
		v.core.comeUp(first, v.world.now)
	}
	v.tickNow()
}

func (v *prover) advance(i int) {
	d, l := &v.world.ids[i], &v.scope.ids[i]
	d.stage++
	d.late = 0
	if d.stage <= l.leaving() {
		d.heard = false
	}
}

// claim tells of an ID, with a payload or without.
func (v *prover) claim(m *proveMove) {
	i := int(m.id)
	l, d := &v.scope.ids[i], &v.world.ids[i]
	told := &podClaims[status]{pod: l.pod, claims: 1, latest: tellsOf(Item{ID: l.id, Kind: l.kind, Phase: m.phase})}
	if m.payload {
		told.payload = v.shown(m, l.pod, true)
		shows := &status{UID: l.pod, Items: told.payload}
		told.status = func() (*status, error) { return shows, nil }
	}
	switch leaving := d.stage == l.leaving(); {
	case m.phase == PhaseRemoved && d.stage >= l.leaving():
		d.heard = true
	case m.phase == l.shows[d.stage]:
		d.heard = d.heard || !leaving
	}
	v.input(input[status]{kind: inputClaims, claims: &batch[status]{pods: []*podClaims[status]{told}, claims: 1}})
}

func tellsOf(it Item) []latestClaim { return []latestClaim{{item: it}} }

// shown makes items of what a move shows of a pod: of its listings or of its statuses.
func (v *prover) shown(m *proveMove, uid cache.UID, listing bool) []Item {
	items := []Item{}
	for i := range v.scope.ids {
		l := &v.scope.ids[i]
		p := m.looks[i].status
		if listing {
			p = m.looks[i].listing
		}
		if p != phaseNone && l.pod == uid {
			items = append(items, Item{ID: l.id, Kind: l.kind, Phase: p})
		}
	}
	return items
}

// endList ends the list under way.
func (v *prover) endList(m *proveMove) {
	w := &v.world
	r := w.list
	w.list = nil
	v.showed(m)
	res := &listedAll{began: r.began}
	pods := []cache.UID{"p"}
	if n := len(v.scope.ids); v.scope.ids[n-1].pod == "q" {
		pods = append(pods, "q")
	}
	res.listing.Delta = v.scope.deltas && r.since != 0
	if v.scope.deltas {
		res.listing.Revision = 1
	}
	for _, uid := range pods {
		items := v.shown(m, uid, true)
		was, same := false, true
		for i := range v.scope.ids {
			if v.scope.ids[i].pod == uid {
				was = was || w.listed[i] != phaseNone
				same = same && w.listed[i] == m.looks[i].listing
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
	if v.scope.deltas {
		for i := range v.scope.ids {
			w.listed[i] = m.looks[i].listing
		}
	}
	v.input(input[status]{kind: inputListed, listed: res})
}

// showed notes that a list shows IDs as they are: that must not be lost, whatever other reads show.
func (v *prover) showed(m *proveMove) {
	for i := range v.scope.ids {
		d := &v.world.ids[i]
		d.heard = d.heard || d.stage != v.scope.ids[i].leaving() && m.looks[i].listing == v.truth(i)
	}
}

// endRead ends the read of a pod, as the loop's child would: with the statuses if it has changed.
func (v *prover) endRead(m *proveMove) {
	w := &v.world
	uid := cache.UID(words[1+m.id])
	k := slices.IndexFunc(w.reads, func(r *proveRead) bool { return r.uid == uid })
	r := w.reads[k]
	w.reads = slices.Delete(w.reads, k, k+1)
	res := &inspected[status]{uid: uid, began: r.began, asked: r.asked, byIDs: r.byIDs}
	items := r.items
	if !r.listed && m.kind != moveListingFails {
		items = v.shown(m, uid, true)
		res.listing = &Pod{UID: uid, Items: items}
	}
	switch {
	case m.kind != moveReadEnds:
		res.err = errProve
	case len(items) > 0 && (r.listed || !r.builds || !sameItems(items, r.have)):
		res.shows = Pod{UID: uid, Items: v.shown(m, uid, false)}
		res.status = &status{UID: uid, Items: res.shows.Items}
	case res.listing == nil:
		res.listing = &Pod{UID: uid}
	}
	v.input(input[status]{kind: inputInspected, inspected: res})
}

// agent moves the agent's call on.
func (v *prover) agent(m *proveMove) {
	w := &v.world
	a := ack{call: ownCall{serial: 1}}
	switch m.kind {
	case moveCall, moveCallLost:
		w.calling, w.call, w.verb, w.works = true, m.id, m.phase, false
		w.callBegan, w.lost = w.now+proveMoment, m.kind == moveCallLost
	case moveCallWorks:
		w.works = true
		v.works(w.call, w.verb)
		w.now += proveMoment
		return
	case moveCallReturns, moveCallFails:
		a.returned, a.failed = true, m.kind == moveCallFails
	}
	i := int(w.call)
	l, d := &v.scope.ids[i], &w.ids[i]
	if w.verb != l.shows[1] {
		a.call.ID = l.id
	}
	a.call.Pod.UID, a.call.began, a.at = l.pod, w.callBegan, w.now+proveMoment
	lost := w.lost
	if a.returned {
		if a.failed && !w.works && v.scope.times && !w.failed {
			w.failed, w.failing, w.fails = true, w.call, w.verb
		}
		if !a.failed && !lost {
			a.items = []Item{{ID: l.id, Kind: l.kind, Phase: w.verb}}
			if v.truth(i) == w.verb || w.verb == PhaseRemoved {
				d.heard = d.stage != l.leaving()
			}
		}
		w.calling, w.works, w.lost, w.call, w.verb, w.callBegan = false, false, false, 0, 0, 0
	}
	w.now += proveMoment
	in := input[status]{kind: inputAcks, acks: []ack{a}}
	if lost {
		in = input[status]{kind: inputAcks, lost: true}
	}
	v.tell(in, w.now)
	v.take()
	v.tickNow()
}

// works has a call have its effect.
func (v *prover) works(id uint8, verb Phase) {
	l, d := &v.scope.ids[id], &v.world.ids[id]
	for d.stage < l.gone() && (d.stage == 0 || v.truth(int(id)) < verb) {
		v.advance(int(id))
	}
}

// restart makes the generator anew, over the same cache.
func (v *prover) restart() {
	w := &v.world
	v.core = newCore(&v.cfg, v.clk, 1)
	w.list, w.reads, w.revision = nil, nil, 0
	for i := range w.ids {
		d := &w.ids[i]
		d.ever, d.heard, d.knows = 0, false, phaseNone
		w.listed[i] = phaseNone
	}
	w.now += proveMoment
	v.tell(input[status]{kind: inputStart, held: v.cache.UIDs()}, w.now)
	v.exec.counted = v.core.count
	v.take()
	if w.waiting {
		v.input(demandOf(v.clk.time(w.since))) // Run has the cache ask again
	}
	v.turn()
}

// demandOf is that somebody waits for pod p.
func demandOf(t time.Time) input[status] {
	return input[status]{kind: inputDemand, demand: map[cache.UID]time.Time{"p": t}}
}
