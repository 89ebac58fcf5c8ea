// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Violation is the first violation in a history.
type Violation struct {
	Kind string        // a word, see doc.go
	What string        // the finding
	At   time.Duration // since the beginning
}

func (v *Violation) Error() string { return fmt.Sprintf("at %v: %s: %s", v.At, v.Kind, v.What) }

// oracle looks at a generator and its cache and compares them with the truth. Its mutex owns
// everything; the mutexes of truth, boundary and cache may be taken under it, never the other way
// round.
type oracle struct {
	truth    *Truth
	boundary *boundary
	store    Store
	begun    time.Time
	settings *settings

	lied atomic.Bool // lying, for those who hold other mutexes

	failMu    sync.Mutex // owns the fields below
	violation *Violation
	// stood is when the loop last stood within a turn, zero if never: a turn has a single time, then
	// some nanoseconds behind the clock.
	stood   time.Time
	outlast time.Time      // end of the last list begun within the rest of a generator after that
	listing time.Time      // begin of the list under way; zero if there is none
	excuses map[string]int // how often each has excused

	mu         sync.Mutex
	system     System
	lying      bool                    // reads or claims may lie: only convergence is checked
	lieInForce bool                    // a lying fault is in force
	moods      map[cache.UID]time.Time // pods whose phases may go back until a grace after: each time must be counted
	madeUp     int                     // phases taken back or invented, which may have counted as missed
	named      bool                    // every read names pods and containers
	pods       map[cache.UID]*seen
	global     time.Time
	back       int        // observed backward phases
	counted    int        // those counted by earlier generators
	emitted    []emission // the cache's content at each emission, until the reader gets the event
	reading    bool       // the reader of Watch does not stall
	owing      bool       // an event was owed: emissions and events no longer match
}

// unhealthyAfter is how long after the last successful list Health begins to complain.
const unhealthyAfter = 3 * time.Minute

// seen is the knowledge of readers of the cache, and of Watch, about a pod.
type seen struct {
	asOf  time.Time
	held  bool                  // the cache holds the pod
	items map[string]pleg.Phase // by the cache
	told  map[string]pleg.Phase // by Watch
	owe   map[string]pleg.Phase // shown by the cache, and not yet delivered by Watch
	mask  map[string]uint8      // events told of each ID
	old   map[string]bool       // shown by the cache since before this generator

	versions map[string]int // of the content in the cache, by ID
}

func newOracle(truth *Truth, store Store, s *settings) *oracle {
	return &oracle{
		truth:    truth,
		store:    store,
		begun:    time.Now(),
		settings: s,
		named:    true,
		pods:     make(map[cache.UID]*seen),
		moods:    make(map[cache.UID]time.Time),
		excuses:  make(map[string]int),
	}
}

// ofInstants are the kinds of violation that compare instants.
var ofInstants = []string{"greedy", "late", "late-content", "trust", "unfair", "untold"}

// fail records the first violation. Any mutex may be held.
func (o *oracle) fail(kind, format string, args ...any) {
	o.failMu.Lock()
	defer o.failMu.Unlock()
	if o.stoodOfLate() && slices.Contains(ofInstants, kind) {
		o.excuses[excuseStood]++
		return
	}
	if o.violation == nil {
		o.violation = &Violation{Kind: kind, What: fmt.Sprintf(format, args...), At: time.Since(o.begun)}
	}
}

// stoodOfLate reports whether instants may be off because the loop has stood within a turn: for the
// rest of a generator since then, or since the end of a list that had begun by then. The caller
// holds failMu.
func (o *oracle) stoodOfLate() bool {
	if o.stood.IsZero() {
		return false
	}
	rest := o.settings.restful()
	under := !o.listing.IsZero() && o.listing.Before(o.stood.Add(rest))
	return under || time.Since(latest(o.stood, o.outlast)) < rest
}

// lists notes the begin of a list of everything, and its end.
func (o *oracle) lists(begun time.Time, ends bool) {
	o.failMu.Lock()
	defer o.failMu.Unlock()
	o.listing = begun
	if !ends {
		return
	}
	o.listing = time.Time{}
	if begun.Before(o.stood.Add(o.settings.restful())) {
		o.outlast = time.Now()
	}
}

func (o *oracle) result() *Violation {
	o.failMu.Lock()
	defer o.failMu.Unlock()
	return o.violation
}

func (o *oracle) pod(uid cache.UID) *seen {
	s := o.pods[uid]
	if s == nil {
		s = &seen{
			items: map[string]pleg.Phase{},
			told:  map[string]pleg.Phase{},
			owe:   map[string]pleg.Phase{},
			mask:  map[string]uint8{},
			old:   map[string]bool{},
		}
		o.pods[uid] = s
	}
	return s
}

// started notes a generator about to run over the cache.
func (o *oracle) started(s System, l *boundary) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.system != nil {
		o.counted += taken(o.system.Stats())
	}
	l.inherit(o.boundary)
	o.system = s
	o.boundary = l
	o.owing = false
	o.emitted = nil
	for uid, p := range o.pods {
		clear(p.told) // a new Watch begins from nothing
		clear(p.mask)
		clear(p.owe)
		clear(p.items)
		clear(p.old) // a new generator knows the results of reads, and no claims of its predecessor
		shown, _ := o.store.Get(uid)
		for _, it := range shown {
			p.items[it.ID] = it.Phase
			p.old[it.ID] = true
		}
	}
}

// taken counts the phases taken back by a generator's own count.
func taken(s pleg.Stats) int { return s.Overruled + s.Regressions }

// look compares everything visible with the truth. Resting: the generator's loop is idle, so its
// statistics are up to date.
func (o *oracle) look(resting bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, uid := range o.truth.UIDs() {
		o.lookAt(uid)
	}
	for _, uid := range o.store.UIDs() {
		if o.pods[uid] == nil && !o.lying && !o.truth.bare(string(uid), o.store.Global()) {
			o.fail("invented", "the cache has pod %s, which was never there", uid)
		}
	}
	g := o.store.Global()
	if g.Before(o.global) {
		o.fail("global", "the global time went back by %v", o.global.Sub(g))
	}
	o.global = g
	if o.boundary == nil {
		return
	}
	o.boundary.mu.Lock()
	listOK := o.boundary.listOK
	end := o.boundary.listOKEnd
	heard := latest(end, o.boundary.resumed)
	o.boundary.mu.Unlock()
	if !listOK.IsZero() && g.After(listOK) {
		o.fail(
			"global",
			"the global time is %v later than the start of the last list that succeeded",
			g.Sub(listOK),
		)
	}
	if resting {
		o.lookHealth(end, heard)
	}
	s := o.system.Stats()
	if resting {
		o.boundary.sample(s)
		o.delivered(s, o.reading)
	}
	if !resting || o.lying {
		return
	}
	o.lookBacks(o.counted + taken(s))
	o.boundary.lookMissed(s.Missed-o.madeUp, o.settings.grace)
}

// lookBacks checks that phases that went back are counted. The caller holds the mutex.
func (o *oracle) lookBacks(counted int) {
	if o.back > counted {
		o.fail("regression", "%d phases went back, %d of them counted", o.back, counted)
	}
}

// lookStanding checks that a loop that has stood still for long is not healthy.
func (o *oracle) lookStanding(d time.Duration) {
	if d > unhealthyAfter+o.settings.max+time.Second && o.system.Health() == nil {
		o.fail("standing", "the loop has stood for %v, and is healthy", d)
	}
}

// lookHealth checks Health, whatever Watch does. The last list that succeeded ended at end, and the
// generator has heard of the list by the other time.
func (o *oracle) lookHealth(end, heard time.Time) {
	err := o.system.Health()
	if errors.Is(err, pleg.ErrNotRunning) {
		return
	}
	if err != nil && !end.IsZero() && time.Since(end) < unhealthyAfter {
		o.fail("health", "unhealthy %v after a list succeeded: %v", time.Since(end), err)
	}
	if err == nil && !end.IsZero() && time.Since(heard) > unhealthyAfter+o.settings.max+time.Second {
		o.fail("health", "healthy %v after the last list that succeeded", time.Since(end))
	}
}

// lookAt checks a pod: the cache shows the runtime's state at some moment since the status's time.
func (o *oracle) lookAt(uid cache.UID) {
	p := o.pod(uid)
	at := o.store.AsOf(uid) // first: the status read afterwards is no older
	items, err := o.store.Get(uid)
	if errors.Is(err, errNil) {
		o.fail("nil", "a reader of pod %s was handed nil", uid)
		return
	}
	items = o.withUnread(p, items, o.store.Unread(uid))
	held := len(items) > 0 || err != nil
	if at.Before(p.asOf) && held && p.held { // for a gone pod the time may be forgotten
		o.fail("freshness", "pod %s: the time that its status stands for went back by %v", uid, p.asOf.Sub(at))
	}
	since := at
	if err == nil {
		o.truth.whole(uid, at)
	} else {
		since = time.Time{} // an older status beside an error
	}
	p.asOf = at
	p.held = held
	if kind, what := o.truth.Check(uid, items, since); kind != "" {
		o.fail(kind, "pod %s as of %v %s", uid, o.when(at), what)
	}
	if o.boundary != nil && err == nil && at.After(o.boundary.opened) {
		o.truth.Fresh(uid)
	}
	o.lookFresh(uid, at, held, err)
	o.lookContent(uid, p)
	o.compare(uid, p, items)
	if err == nil {
		o.calmDown(uid, p, at) // after the comparison: the read that ends a mood takes back
	}
}

// withUnread returns the items of a status, and its unreadable items as last shown. The unreadable
// items are not checked.
func (o *oracle) withUnread(p *seen, items []pleg.Item, unread []string) []pleg.Item {
	for _, id := range unread {
		o.truth.Unreadable(id)
		if phase, known := p.items[id]; known && phase != pleg.PhaseRemoved {
			items = append(slices.Clip(items), pleg.Item{ID: id, Phase: phase})
		}
	}
	return items
}

// when is a time for messages.
func (o *oracle) when(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return "t+" + t.Sub(o.begun).String()
}

// lookFresh checks that only reads have made the pod fresh, and that an error comes from a read. A
// pod of which the agent has removed all, or a peek has shown that nothing is left, is gone as of
// any later time without a read: nothing comes back. A peek that shows what is made next keeps that
// time.
func (o *oracle) lookFresh(uid cache.UID, at time.Time, held bool, err error) {
	if o.boundary == nil || at.IsZero() {
		return
	}
	o.boundary.mu.Lock()
	latest := o.boundary.podEnd[uid]
	failed := o.boundary.podFail[uid]
	if o.boundary.listOK.After(latest) {
		latest = o.boundary.listOK
	}
	removed := o.boundary.removed[uid]
	gone := !held && !removed.IsZero() && !at.Before(removed) // whether nothing was left then, Truth.Check knows
	if gone {
		o.boundary.goneAsOf[uid] = at
	}
	gone = gone || at.Equal(o.boundary.goneAsOf[uid])
	o.boundary.mu.Unlock()
	if !gone && at.After(latest) && held && !removed.IsZero() && !at.Before(removed) {
		kind, _ := o.truth.Check(uid, nil, at) // nobody may have looked while it was gone
		gone = kind == ""
	}
	if gone {
		return
	}
	if at.After(latest) {
		o.fail(
			"freshness",
			"pod %s is fresh as of %s, and no read that began after %s has ended",
			uid,
			o.when(at),
			o.when(latest),
		)
	}
	if err != nil && failed.IsZero() {
		o.fail("error", "pod %s has the error %q, and no read of it has failed", uid, err)
	}
}

// compare checks that no phase goes back, and notes the events that Watch owes.
func (o *oracle) compare(uid cache.UID, p *seen, items []pleg.Item) {
	if p.shows(items) {
		return // as in most looks
	}
	now := make(map[string]pleg.Phase, len(items))
	for _, it := range items {
		now[it.ID] = it.Phase
		before, known := p.items[it.ID]
		if !known {
			o.truth.Shows(it.ID)
		}
		if known && it.Phase != before && p.old[it.ID] {
			delete(p.old, it.ID)
			continue
		}
		if known && it.Phase < before && it.Phase != pleg.PhaseUnknown && before != pleg.PhaseUnknown {
			o.wentBack(uid, it.ID, before, it.Phase)
			o.truth.Shows(it.ID)
			if it.Phase < pleg.PhaseExited {
				o.truth.TookBackEnd(it.ID)
			}
		}
		if it.Phase >= pleg.PhaseRunning && (!known || before != it.Phase) {
			p.owe[it.ID] = max(p.owe[it.ID], it.Phase)
		}
		if known && it.Phase == pleg.PhaseUnknown && before != pleg.PhaseRemoved {
			now[it.ID] = before // the known part of its life
		}
	}
	for id, before := range p.items {
		if _, ok := now[id]; !ok && before != pleg.PhaseRemoved {
			now[id] = pleg.PhaseRemoved
			p.owe[id] = pleg.PhaseRemoved
		} else if !ok {
			now[id] = before
		}
	}
	p.items = now
}

// shows reports whether a status shows the same as the status before.
func (p *seen) shows(items []pleg.Item) bool {
	for _, it := range items {
		if phase, known := p.items[it.ID]; !known || phase != it.Phase {
			return false
		}
	}
	for id, phase := range p.items {
		if phase != pleg.PhaseRemoved && phaseIn(items, id) != phase {
			return false
		}
	}
	return true
}

// wentBack notes an earlier phase in the cache than before, or the return of a removed ID. A look
// without an ID may have confirmed a removal announced ahead.
func (o *oracle) wentBack(uid cache.UID, id string, from, to pleg.Phase) {
	if from == pleg.PhaseRemoved && o.truth.gone(id) {
		o.excuse(excuseLies)
		return
	}
	o.back++
	if _, moody := o.moods[uid]; moody {
		o.excuse(excuseMood)
		return
	}
	if o.lying || o.truth.LiedOf(id) {
		o.excuse(excuseLies)
		return
	}
	o.fail("regression", "pod %s: the cache showed %s %v and then %v", uid, id, from, to)
}
