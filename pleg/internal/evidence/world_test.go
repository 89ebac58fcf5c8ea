// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"fmt"
	"strings"
)

// ids is the number of IDs in a search.
const ids = 2

// scope is what may happen in a search.
type scope struct {
	name     string
	two      bool // a second container
	sandbox  bool // the first ID is a sandbox that recovers once
	lists    bool
	atomic   bool // a list looks at all IDs at once
	listing  bool // an inspection may take the listing of a list
	claims   bool
	payloads bool
	unknown  bool // reads may show UNKNOWN
	waits    bool
	acks     bool // the agent's own calls
	restarts bool
	lies     bool // claims of what never was
	fails    bool // inspections fail
	deltas   bool // what the last list showed is remembered
	memory   bool // a waiter may be answered without a read
	short    bool // a container is running when it is first there: its life is shorter
}

const scopeLetters = "2 two IDs, S the first is a sandbox that recovers, L lists, a a list looks at all IDs at once, " +
	"l an inspection may take a list's listing, C claims, P payloads, U UNKNOWN, W a waiter, A acks, " +
	"R restarts, X false claims, F failures, D what the last list showed, M answers from memory, s no created phase"

// parseScope makes a scope of letters.
func parseScope(name string) scope {
	has := func(c string) bool { return strings.Contains(name, c) }
	return scope{
		name: name, two: has("2"), sandbox: has("S"), lists: has("L"), atomic: has("a"), listing: has("l"),
		claims: has("C"), payloads: has("P"), unknown: has("U"), waits: has("W"), acks: has("A"),
		restarts: has("R"), lies: has("X"), fails: has("F"), deltas: has("D"), memory: has("M"),
		short: has("s"),
	}
}

// The stages of a life and what a read shows in each. In the last but one the removal has been
// decided, and may be told of, though reads still show the ID.
var (
	containerLife = []Phase{None, Created, Running, Exited, Exited, Gone}
	shortLife     = []Phase{None, Running, Exited, Exited, Gone}
	sandboxLife   = []Phase{None, Running, Exited, Running, Exited, Exited, Gone}
)

// rank is a Time of the search: small, and renumbered in each state.
type rank uint8

// present is the rank of the input that is being applied.
const present rank = 100

// flight is a read under way.
type flight struct {
	on        bool
	from, cut rank
	look      [ids]Phase // what it has seen so far; None: it has not looked
	low       [ids]uint8 // ghost: the stage of each ID when the read began
}

// packedID and packedPod are ID and Pod in the form in which states are kept.
type packedID struct {
	seen, claim, cached Phase
	told                Events
	to, at              rank
}

type packedPod struct {
	ids             [ids]packedID
	asOf, moved     rank
	failed, foreign bool
	departed        bool // Listed is not nil
	listed          [ids]Phase
}

// state is the truth, what is under way, and the record of the pod. Ghosts serve the checks alone.
type state struct {
	stage, since  [ids]uint8 // since: the rank at which the last stage but one began
	heard         [ids]bool  // ghost: a claim or a call has told of the present stage
	ever          [ids]uint8 // ghost: events told; bit 8: a call of the agent's removed the ID
	list, insp    flight
	pod           packedPod
	waiting       bool
	t             rank
	tLow, asOfLow [ids]uint8 // ghosts: the stages at t and at the pod's AsOf
	verb          Phase      // a call of the agent's under way: the phase that it brings
	callID        uint8
	done          bool // the call has had its effect
	front         rank // all up to this is older than the grace
	lastList      [ids]Phase
}

// step names a transition.
type step struct {
	kind    string
	id      int
	phase   Phase
	payload *[ids]Phase
}

func (t step) String() string {
	s := t.kind
	if t.id >= 0 {
		s += " " + idName(t.id)
	}
	if t.phase != None {
		s += " " + t.phase.String()
	}
	if t.payload != nil {
		s += fmt.Sprintf(" payload[%v %v]", t.payload[0], t.payload[1])
	}
	return s
}

func idName(i int) string { return string(rune('a' + i)) }

// world is a scope with its lives, and the violation that the last transition made.
type world struct {
	scope
	n    int
	life [ids][]Phase
	bad  string
	pod  Pod // of the code under test, between unpack and pack
	back [8]ID
	show [ids]Shown
}

func newWorld(sc scope) *world {
	life := containerLife
	if sc.short {
		life = shortLife
	}
	w := &world{scope: sc, n: 1, life: [ids][]Phase{life, life}}
	if sc.two {
		w.n = 2
	}
	if sc.sandbox {
		w.life[0] = sandboxLife
	}
	return w
}

func (w *world) fail(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
	}
}

// unpack makes the pod of the code under test from the packed one.
func (w *world) unpack(q *packedPod) *Pod {
	w.pod = Pod{IDs: w.back[:0], AsOf: Time(q.asOf), Moved: Time(q.moved), Failed: q.failed, Foreign: q.foreign}
	for i := range w.n {
		x := &q.ids[i]
		if *x == (packedID{}) {
			continue
		}
		w.pod.IDs = append(w.pod.IDs, ID{
			Name: idName(i), Evidence: Evidence{x.seen, Time(x.to), x.claim, Time(x.at)},
			Cached: x.cached, Told: x.told,
		})
	}
	if q.departed {
		w.pod.Listed = w.shows(&q.listed, []Shown{})
	}
	return &w.pod
}

// pack is the other way; it checks the invariants of the record.
func (w *world) pack(p *Pod, q *packedPod) {
	if err := p.Check(Time(present)); err != nil {
		w.fail("RECORD: %v", err)
	}
	*q = packedPod{asOf: rank(p.AsOf), moved: rank(p.Moved), failed: p.Failed, foreign: p.Foreign, departed: p.Listed != nil}
	for _, x := range p.IDs {
		q.ids[x.Name[0]-'a'] = packedID{x.Seen, x.Claim, x.Cached, x.Told, rank(x.To), rank(x.At)}
	}
	for _, s := range p.Listed {
		q.listed[s.Name[0]-'a'] = s.Phase
	}
}

// shows appends a report of the IDs that are there.
func (w *world) shows(phases *[ids]Phase, to []Shown) []Shown {
	for i := range w.n {
		if phases[i].Live() {
			to = append(to, Shown{Name: idName(i), Phase: phases[i]})
		}
	}
	return to
}

func (w *world) truth(s *state, i int) Phase { return shown(w.life[i][s.stage[i]]) }
func (w *world) leaving(i int) uint8         { return uint8(len(w.life[i]) - 2) }
func (w *world) last(i int) uint8            { return uint8(len(w.life[i]) - 1) }
func (w *world) container(i int) bool        { return i > 0 || !w.sandbox }

// was says that the ID was in that phase at some moment between a stage and the present one. A
// removal may be shown as soon as it is decided.
func (w *world) was(s *state, i int, p Phase, low uint8) bool {
	p = shown(p)
	if p == Unknown || p == Gone && s.stage[i] >= w.leaving(i) {
		return true
	}
	for g := low; g <= s.stage[i]; g++ {
		if shown(w.life[i][g]) == p {
			return true
		}
	}
	return false
}

// apply runs a function of the code under test, checks what it made of the pod, and serves the
// waiter. From and low are of the read that is applied, if one is.
func (w *world) apply(s *state, from rank, low *[ids]uint8, f func(p *Pod) Effects) {
	old := s.pod
	p := w.unpack(&s.pod)
	e := f(p)
	w.pack(p, &s.pod)
	if s.pod.asOf < old.asOf {
		w.fail("BACK: AsOf")
	}
	if e.Stored || e.Observed && s.pod.asOf != old.asOf {
		if s.pod.asOf == present {
			s.asOfLow = s.stage
		} else if low != nil && s.pod.asOf == from {
			s.asOfLow = *low
		}
		w.checkFresh(s, low == nil)
	}
	if e.Stored {
		var told [ids]Events
		for _, ev := range e.Changes {
			told[ev.ID.Name[0]-'a'] = ev.Events
		}
		for i := range w.n {
			w.checkShown(s, i, old.ids[i].cached, told[i])
		}
	}
}

// checkFresh checks that the cache shows what was so since its AsOf, and what the waiter gets.
func (w *world) checkFresh(s *state, fromClaim bool) {
	p := &s.pod
	for i := range w.n {
		if !w.was(s, i, p.ids[i].cached, s.asOfLow[i]) && !((w.lies || w.sandbox) && fromClaim) {
			w.fail("STALE: the cache shows %s %v, which was not so since its AsOf", idName(i), p.ids[i].cached)
		}
	}
	if !s.waiting || p.asOf <= s.t {
		return
	}
	for i := range w.n {
		if !w.was(s, i, p.ids[i].cached, s.tLow[i]) {
			w.fail("STALE: the waiter gets %s %v", idName(i), p.ids[i].cached)
		}
	}
	s.unwait()
}

func (s *state) unwait() { s.waiting, s.t, s.tLow = false, 0, [ids]uint8{} }

func (w *world) checkShown(s *state, i int, was Phase, ev Events) {
	x := &s.pod.ids[i]
	c, ever := x.cached, s.ever[i]
	if c.Live() && c != Unknown {
		if ever&(uint8(Removed)|8) != 0 && !w.lies {
			w.fail("RESURRECTION: the cache shows %s %v", idName(i), c)
		}
		if was <= Exited && c < was && !w.lies && w.container(i) {
			w.fail("BACK: the cache shows %s %v after %v", idName(i), c, was)
		}
		if x.seen == None {
			w.fail("STRANGER: %s is shown, though neither a read nor a call showed it", idName(i))
		}
	}
	told := uint8(ev &^ Sync)
	if told&ever != 0 || ev&Started != 0 && ever&uint8(Died|Removed) != 0 || ev&Died != 0 && ever&uint8(Removed) != 0 {
		w.fail("EVENTS: %s is told %03b after %03b", idName(i), told, ever&7)
	}
	if ev&Started != 0 && c != Running || ev&Died != 0 && c != Exited && c != Gone || ev&Removed != 0 && c != Gone {
		w.fail("WATCH BEFORE CACHE: %s", idName(i))
	}
	if c != was && was != None && ev == 0 {
		w.fail("UNTOLD: the cache shows %s %v after %v, and Watch hears nothing", idName(i), c, was)
	}
	s.ever[i] |= told
}

// checkState checks what holds in every state.
func (w *world) checkState(s *state) {
	p := w.unpack(&s.pod)
	if w.deltas {
		for i, ph := range w.phasesOf(p.LastList(nil)) {
			if i < w.n && ph != shown(s.lastList[i]) {
				w.fail("LISTED: the last list is thought to have shown %s %v, and showed %v", idName(i), ph, shown(s.lastList[i]))
			}
		}
	}
	served, ok := p.Served(nil)
	v := w.phasesOf(served)
	for i := range w.n {
		seen := s.pod.ids[i].seen
		if seen != None && !w.was(s, i, seen, 0) {
			w.fail("SEEN AHEAD: %s %v", idName(i), seen)
		}
		if ok && w.container(i) {
			w.checkServed(s, i, v[i])
		}
	}
}

func (w *world) checkServed(s *state, i int, v Phase) {
	t := w.truth(s, i)
	early := v != Gone && t == Gone && s.stage[i] == 0 || t != Gone && v > t && v != Gone
	if early || !w.was(s, i, v, 0) {
		w.fail("SERVED: %s is served as %v and is %v", idName(i), v, t)
	}
	if !w.lies && s.heard[i] && v != t && s.stage[i] != w.leaving(i) {
		w.fail("SERVED OLD: %s is served as %v, though %v has been told of", idName(i), v, t)
	}
}

func (w *world) phasesOf(shows []Shown) [ids]Phase {
	v := [ids]Phase{Gone, Gone}
	for _, s := range shows {
		v[s.Name[0]-'a'] = s.Phase
	}
	return v
}
