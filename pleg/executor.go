// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// actionKind is the kind of an action.
type actionKind uint8

const (
	actOpen       actionKind = iota // open the stream
	actCut                          // end the stream
	actList                         // list everything
	actInspect                      // read one pod
	actStore                        // Set a status in the cache
	actFail                         // Set the error of a read in the cache
	actDelete                       // Delete a pod from the cache
	actObserve                      // Observe the next n pods of todo.observed
	actAdvance                      // Advance the cache's global time
	actPrune                        // Prune the cache's tombstones
	actEmit                         // send Watch the next event of todo.events
	actDropOldest                   // drop the oldest PodSyncs owed for gone pods, beyond n of them
	actReport                       // log and record a report
	actListLasted                   // time a list
)

// action is one effect of the core, which calls nothing itself. Actions refer to no state of the
// core: they can be compared, kept and carried out at any time.
type action[S any] struct {
	kind     actionKind
	replaces bool // actStore: the cache has a status of the pod, to be given to Merge
	silent   bool // actStore: no phase has changed
	excused  bool // actStore: a change of content has a reason of the agent's own
	n        int32
	uid      cache.UID
	at       instant       // begin of the read in question
	content  instant       // actStore, actFail: begin of the last read of all statuses
	before   instant       // actList: begin of the previous list; actStore: of the previous read of all statuses; 0 if none
	looked   instant       // actStore: begin of the peek; 0 if the status is not a peek's
	beside   bool          // actStore: err is the entry's own, and stays beside a peek
	since    Revision      // actList
	took     time.Duration // actListLasted
	status   *S            // actStore; nil if only the error is stored
	err      error         // actFail; actStore: of the items that could not be read
	read     *podRead      // actInspect
	report   *Report       // actReport
}

// podRead is an immutable request to read a pod.
type podRead struct {
	ref    Pod    // the pod to read; Items are the IDs to read if listed is set
	listed bool   // ref.Items stands for a list of the pod, and the statuses are wanted
	builds bool   // the read may build on the status in the cache; else all statuses must be read
	have   []Item // the items of that status: if they are unchanged, no statuses are needed
	peek   bool   // the IDs need not be all of the pod: see peeks
}

// todo is the list of actions, in order. The core owns it until an executor carries it out, before
// the core's next input. Its memory is used again: common actions with much data in lists of
// everything have slices of their own.
type todo[S any] struct {
	actions  []action[S]
	events   []Event     // the events of actEmit, in order
	observed []cache.UID // the pods of actObserve, in order
}

func (t *todo[S]) do(a action[S]) {
	t.actions = append(t.actions, a)
}

// emit adds an event for Watch, to be filled in by the caller: an event is big, and each copy shows
// in the cost of an exit.
func (t *todo[S]) emit() *Event {
	t.events = append(t.events, Event{})
	t.actions = append(t.actions, action[S]{kind: actEmit})
	return &t.events[len(t.events)-1]
}

// report adds a report, to be logged and recorded.
func (t *todo[S]) report(r Report) {
	t.actions = append(t.actions, action[S]{kind: actReport, report: &r})
}

// expect makes room to observe that many pods, since a list may find all unchanged.
func (t *todo[S]) expect(pods int) {
	t.observed = slices.Grow(t.observed, pods)
}

// observe adds the finding of a read, begun at the given time: the pod is as in the cache.
// Consecutive pods of the same time, as in a list, share an action.
func (t *todo[S]) observe(uid cache.UID, at instant) {
	t.observed = append(t.observed, uid)
	if n := len(t.actions); n > 0 {
		last := &t.actions[n-1]
		if last.kind == actObserve && last.at == at {
			last.n++
			return
		}
	}
	t.do(action[S]{
		kind: actObserve,
		n:    1,
		at:   at,
	})
}

// maxKept bounds the memory kept for use again, in entries of each slice.
const maxKept = 4096

// reset drops the actions carried out.
func (t *todo[S]) reset() {
	t.actions = emptied(t.actions)
	t.events = emptied(t.events)
	t.observed = emptied(t.observed)
}

// emptied returns the slice at length zero, holding no references.
func emptied[T any](s []T) []T {
	if cap(s) > maxKept {
		return nil
	}
	clear(s)
	return s[:0]
}

// executor carries out the core's actions, in order: the cache shows a change before Watch. The
// loop owns the executor, the only writer of the cache and of Watch.
type executor[S any] struct {
	cfg    *Config[S]
	clock  clock
	out    outbox
	known  func(cache.UID) bool // whether the core knows the pod
	child  func(*action[S])     // starts and ends reads and the stream
	record func(Report)

	counted         counters // counts already given to Metrics
	owed, discarded int      // events turned into a PodSync owed, and PodSyncs dropped, since the start
	overflowed      bool     // Watch has begun to overflow
	refused         []refusal
	changed         []contentChange
	mistakes        int // writes wrongly refused by the cache, since the start
}

// contentChange is a stored status that differs from the status before beside its phases.
type contentChange struct {
	uid     cache.UID
	since   instant // begin of the read without the change
	excused bool    // the change has a reason of the agent's own
}

// refusal is a write refused by the cache for an entry as of a later time.
type refusal struct {
	uid cache.UID
	has instant
}

func newExecutor[S any](cfg *Config[S], clk clock, c *core[S]) *executor[S] {
	return &executor[S]{
		cfg: cfg, clock: clk, out: newOutbox(cfg.Capacity),
		known: func(uid cache.UID) bool { return c.pods[uid] != nil },
	}
}

// carryOut carries out the actions, and empties the list. Metrics gets the counts first, so that a
// change heard of has been counted; events are counted as Watch gets them.
func (e *executor[S]) carryOut(t *todo[S], n *counters) {
	e.count(n)
	events := t.events
	observed := t.observed
	for i := range t.actions {
		a := &t.actions[i]
		switch a.kind {
		case actList:
			if a.before != 0 {
				e.cfg.Metrics.Observe(MetricRelistInterval, a.at.sub(a.before))
			}
			e.child(a)
		case actOpen, actCut, actInspect:
			e.child(a)
		case actStore:
			e.store(a)
		case actFail:
			e.noteRefusal(e.cfg.Cache.SetLooked(a.uid, nil, a.err, e.looks(a)), a)
		case actDelete:
			e.noteRefusal(e.cfg.Cache.Delete(a.uid, e.clock.time(a.at)), a)
		case actObserve:
			at := e.clock.time(a.at)
			for _, uid := range observed[:a.n] {
				e.cfg.Cache.Observe(uid, at)
			}
			observed = observed[a.n:]
		case actAdvance:
			e.cfg.Cache.Advance(e.clock.time(a.at))
		case actPrune:
			e.cfg.Cache.Prune(e.clock.time(a.at))
		case actEmit:
			e.deliver(&events[0])
			events = events[1:]
		case actDropOldest:
			e.dropOldest(int(a.n))
		case actReport:
			e.record(*a.report)
		case actListLasted:
			e.cfg.Metrics.Observe(MetricRelistDuration, a.took)
		}
	}
	t.reset()
}

// store puts a status into the cache, after Merge.
func (e *executor[S]) store(a *action[S]) {
	status := a.status
	if e.cfg.Merge != nil && status != nil {
		var prev *S
		if a.replaces {
			prev, _ = e.cfg.Cache.Get(a.uid)
		}
		if merged := e.cfg.Merge(prev, status); merged != nil {
			status = merged
		}
	}
	if e.cfg.Same != nil && a.silent && a.replaces && a.err == nil {
		prev, err := e.cfg.Cache.Get(a.uid)
		if err == nil && !e.cfg.Same(prev, status) {
			e.changed = append(e.changed, contentChange{uid: a.uid, since: a.before, excused: a.excused})
		}
	}
	e.noteRefusal(e.cfg.Cache.SetLooked(a.uid, status, a.err, e.looks(a)), a)
}

// looks returns the times of a write.
func (e *executor[S]) looks(a *action[S]) cache.Looks {
	looks := cache.Looks{At: e.clock.time(a.at), Read: e.clock.time(a.content)}
	if a.looked != 0 {
		looks.Began = e.clock.time(a.looked)
		looks.Beside = a.beside
	}
	if a.at < firstInstant { // no look of this generator has shown all of the pod
		looks.At = e.cfg.Cache.AsOf(a.uid)
	}
	if a.content < firstInstant {
		looks.Read = time.Time{}
	}
	return looks
}

// noteRefusal notes a write refused by the cache.
func (e *executor[S]) noteRefusal(ok bool, a *action[S]) {
	if !ok {
		e.mistakes++
		e.refused = append(e.refused, refusal{uid: a.uid, has: e.clock.instant(e.cfg.Cache.AsOf(a.uid))})
	}
}

// deliver hands an event to Watch, or owes its pod a PodSync.
func (e *executor[S]) deliver(ev *Event) {
	e.cfg.Metrics.Add(MetricEvents, 1)
	if !e.out.put(ev) {
		return
	}
	e.owed++
	e.cfg.Metrics.Add(MetricOwed, 1)
	e.overflowed = e.overflowed || e.owed == 1 || len(e.out.owed) == 1
}

// dropOldest bounds the PodSyncs owed for pods that the core does not know.
func (e *executor[S]) dropOldest(limit int) {
	if len(e.out.owed) <= limit {
		return
	}
	n := e.out.dropOldest(limit, e.known)
	e.discarded += n
	e.cfg.Metrics.Add(MetricDiscardedEvents, n)
}

// owesFeedback reports whether the core must hear of an outcome.
func (e *executor[S]) owesFeedback() bool {
	return e.overflowed || len(e.refused) > 0 || len(e.changed) > 0
}

// feedback returns the next outcome for the core. There must be one.
func (e *executor[S]) feedback() input[S] {
	if n := len(e.refused); n > 0 {
		in := input[S]{kind: inputRefused, refused: e.refused[n-1]}
		e.refused = e.refused[:n-1]
		return in
	}
	if n := len(e.changed); n > 0 {
		in := input[S]{kind: inputChanged, changed: e.changed[n-1]}
		e.changed = e.changed[:n-1]
		return in
	}
	e.overflowed = false
	return input[S]{kind: inputOverflow}
}

// count gives Metrics the core's counts since the last call.
func (e *executor[S]) count(n *counters) {
	if *n == e.counted {
		return
	}
	for k := range n {
		if metric := counterTable[k].metric; metric != "" {
			e.add(metric, n[k]-e.counted[k])
		}
	}
	missed := func(n *counters) int { return n[countMissedStarts] + n[countMissedExits] }
	e.add(MetricMissedEvents, missed(n)-missed(&e.counted))
	e.counted = *n
}

func (e *executor[S]) add(name string, n int) {
	if n != 0 {
		e.cfg.Metrics.Add(name, n)
	}
}

// check returns an error if the cache is not as the core's records say.
func (e *executor[S]) check(c *core[S]) error {
	var errs []error
	for uid, p := range c.pods {
		read := e.cfg.Cache.ReadAt(uid)
		want := e.clock.time(p.read)
		shown := p.entry == statusEntry || p.failed()
		if shown && p.read >= firstInstant && read.Before(want) {
			errs = append(errs, fmt.Errorf("pod %q was read at %v in the cache, and at %v in its record", uid, read, want))
		}
		has := e.cfg.Cache.AsOf(uid)
		asOf := c.lists.asOf(p)
		if p.entry != noEntry && asOf != 0 && !has.Equal(e.clock.time(asOf)) {
			errs = append(errs, fmt.Errorf("pod %q is as of %v in the cache, and %v in its record", uid, has, e.clock.time(asOf)))
		}
	}
	if len(e.refused) > 0 || e.mistakes > 0 {
		errs = append(errs, fmt.Errorf("the cache has refused %d writes", e.mistakes))
	}
	return errors.Join(errs...)
}

// outbox feeds Watch without ever blocking. An event that finds the channel full is not lost: its
// pod is owed a PodSync, which replaces all events of the pod until delivered. The loop owns the
// outbox.
type outbox struct {
	ch    chan Event
	owed  map[cache.UID]Event // the PodSync of each pod owed one
	order fifo[cache.UID]     // the same pods, oldest debt first
}

func newOutbox(capacity int) outbox {
	return outbox{ch: make(chan Event, capacity), owed: make(map[cache.UID]Event)}
}

// put hands the event to Watch, or owes its pod a PodSync. It reports whether the event was owed.
func (o *outbox) put(ev *Event) bool {
	if _, ok := o.owed[ev.Pod]; ok {
		return true
	}
	if len(o.owed) == 0 {
		select {
		case o.ch <- *ev:
			return false
		default:
		}
	}
	e := *ev
	e.Type = PodSync
	e.ID = ""
	e.ContainerName = ""
	e.Kind = 0
	o.owed[e.Pod] = e
	o.order.push(e.Pod)
	return true
}

// next returns the oldest PodSync owed. There must be one.
func (o *outbox) next() Event {
	uid, _ := o.order.front()
	return o.owed[uid]
}

// delivered forgets the oldest debt.
func (o *outbox) delivered() {
	delete(o.owed, o.order.pop())
}

// dropOldest drops the oldest PodSyncs owed until at most n are left of pods for which keep is
// false, and returns the number dropped.
func (o *outbox) dropOldest(n int, keep func(cache.UID) bool) int {
	excess := -n
	for uid := range o.owed {
		if !keep(uid) {
			excess++
		}
	}
	if excess <= 0 {
		return 0
	}
	dropped := 0
	o.order.keep(func(uid cache.UID) bool {
		if dropped >= excess || keep(uid) {
			return true
		}
		delete(o.owed, uid)
		dropped++
		return false
	})
	return dropped
}
