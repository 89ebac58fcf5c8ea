// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// core is the generator without goroutines, locks, RPCs or a clock: inputs and their times in,
// actions out. A pod is known by its last stored status: see core.store. Everything else (claims,
// acks, lists, waiters) is about which pods to read, and when.
type core[S any] struct {
	cfg    limits
	clock  clock
	random rand.PCG

	pods      map[cache.UID]*pod
	index     map[string]*item
	early     map[reportKey]expectation // of unknown IDs: removals, and those without a pod
	gone      map[string]*item          // removed IDs whose claim may still come
	calls     map[uint64]*pod           // own calls under way
	calling   bool                      // an own call without room is under way
	uncertain instant                   // a call without room, or a claim of no pod, may have made IDs until then
	expected  int                       // expectations of all pods
	phases    [2][PhaseRemoved]int      // items by kind and phase
	running   int                       // pods with a ready sandbox
	marks     uint64                    // comparisons made; see item.mark

	conn        conn
	connCfg     connConfig
	eventsSince instant // since when the runtime is known to have events; 0 if not
	lastClaim   instant // when a claim last came
	lastDiscard instant // when a claim was last discarded
	mute        muteStream

	sched    schedule
	lists    lists
	rounds   []round
	dirty    map[*pod]struct{} // pods in need of a read; all others are as listed
	differ   map[*pod]struct{} // pods different from the last list
	queue    fifo[*pod]        // pods to be read now, first in, first out
	later    laterHeap
	inflight map[*pod]*flight
	ticked   instant
	pruned   instant
	deleted  bool    // the cache holds tombstones
	floor    instant // the cache may refuse writes from before for a pod without a record

	candidates fifo[candidate]
	overruled  instant  // when a claim was last overruled: a list begun before gives no credit
	refuted    findings // the claims overruled in this turn
	paces      []pace

	todo  todo[S]
	count counters
}

func newCore[S any](cfg *Config[S], clk clock, seed uint64) *core[S] {
	return &core[S]{
		cfg: cfg.limits(), clock: clk, random: *rand.NewPCG(seed, seed),
		pods: make(map[cache.UID]*pod), index: make(map[string]*item), early: make(map[reportKey]expectation),
		gone: make(map[string]*item), calls: make(map[uint64]*pod),
		dirty: make(map[*pod]struct{}), differ: make(map[*pod]struct{}), inflight: make(map[*pod]*flight),
		conn: conn{deadline: never}, connCfg: cfg.conn(), sched: newSchedule(cfg.RelistBase, cfg.RelistMax),
	}
}

// inputKind is the kind of an input.
type inputKind uint8

const (
	inputStart     inputKind = iota // the beginning: the pods in the cache
	inputTick                       // time has passed
	inputClaims                     // claims from the mailbox
	inputAcks                       // acks of the agent's own calls
	inputListed                     // the result of a list of everything
	inputInspected                  // the result of the read of a pod
	inputEnded                      // the stream has ended
	inputDemand                     // the cache's waiters
	inputRequest                    // an embedder's request
	inputOverflow                   // Watch has begun to overflow
	inputRefused                    // the cache has refused a write
)

// input is a message to the core with its data. A core depends only on its inputs and their times.
type input[S any] struct {
	kind      inputKind
	in        connInput               // inputEnded: the kind of end
	held      []cache.UID             // inputStart
	claims    *batch[S]               // inputClaims; not kept by the core
	acks      []ack                   // inputAcks; not kept by the core
	lost      lostCalls               // inputAcks: the calls without room
	listed    *listedAll              // inputListed
	inspected *inspected[S]           // inputInspected
	ended     error                   // inputEnded
	demand    map[cache.UID]time.Time // inputDemand
	request   request                 // inputRequest
	refused   refusal                 // inputRefused
}

// apply feeds an input to the core. Now never decreases.
func (c *core[S]) apply(in *input[S], now instant) {
	switch in.kind {
	case inputStart:
		for _, uid := range in.held {
			c.ensure(uid).entry = foreignEntry
		}
		c.lists.finished = now
		if c.cfg.Streams {
			c.step(inOpen, nil, now)
		}
	case inputTick:
		c.tick(now)
	case inputClaims:
		c.onClaims(in.claims, now)
	case inputAcks:
		c.onAcks(in.acks, in.lost, now)
	case inputListed:
		c.onListed(in.listed, now)
	case inputInspected:
		c.onInspected(in.inspected, now)
	case inputEnded:
		c.step(in.in, in.ended, now)
	case inputDemand:
		uids := make([]cache.UID, 0, len(in.demand)) // an iterator would cost a waiter four allocations
		for uid := range in.demand {
			uids = append(uids, uid)
		}
		slices.Sort(uids)
		for _, uid := range uids {
			c.wantRead(uid, c.clock.instant(in.demand[uid]), now)
		}
	case inputRequest:
		c.onRequest(in.request, now)
	case inputOverflow:
		c.reportPaced(Report{
			Reason: ReasonWatchOverflow, Action: "Coalesce", Warning: true,
			Note: "pod lifecycle events are not being read fast enough; pods are owed one PodSync each",
		}, now)
	case inputRefused:
		p := c.ensure(in.refused.uid)
		p.entry, p.asOf = foreignEntry, max(p.asOf, in.refused.has)
		c.wantRead(p.uid, in.refused.has, now)
	}
}

// ensure returns the record of a pod, made if there is none.
func (c *core[S]) ensure(uid cache.UID) *pod {
	p := c.pods[uid]
	if p == nil {
		p = &pod{uid: uid}
		c.pods[uid] = p
	}
	return p
}

// asOf returns the cache's AsOf for the pod.
func (c *core[S]) asOf(p *pod) instant { return max(p.asOf, c.lists.global) }

// request is an embedder's call of RequestRelist or RequestReinspect.
type request struct {
	uid     cache.UID
	inspect bool
}

func (c *core[S]) onRequest(r request, now instant) {
	if r.inspect && r.uid != "" {
		p := c.ensure(r.uid)
		p.force = max(p.force, now)
		c.review(p, now)
		return
	}
	c.wantRead(r.uid, now, now)
}

// wantRead demands a read of the pod, begun after t. No runtime has a pod without a UID: a list of
// everything covers the question.
func (c *core[S]) wantRead(uid cache.UID, t, now instant) {
	if uid == "" {
		c.sched.ask(now, true)
		return
	}
	p := c.ensure(uid)
	if p.entry == noEntry {
		t = max(t, p.asOf) // the cache may have pruned the tombstone
	}
	p.want = max(p.want, t)
	c.review(p, now)
}

// tick does everything due.
func (c *core[S]) tick(now instant) {
	c.ticked = now
	c.step(inTick, nil, now)
	c.settle(now)
	c.reportHeld(now)
	c.lookHanging(now)
	if !c.lists.inflight && now >= c.sched.due() {
		c.list(now)
	}
	for c.later.Len() > 0 && c.later[0].at <= now {
		e := heap.Pop(&c.later).(laterEntry)
		if p := e.pod; e.at == p.later {
			p.later = 0
			c.review(p, now)
		}
	}
	c.dispatch(now)
	c.housekeep(now)
}

// deadline returns when tick has something to do next.
func (c *core[S]) deadline() instant {
	d := min(c.conn.deadline, c.nextWorker(), c.reportsDue())
	if !c.lists.inflight {
		d = min(d, c.sched.due())
	}
	if c.later.Len() > 0 {
		d = min(d, c.later[0].at)
	}
	if e, ok := c.candidates.front(); ok {
		d = min(d, e.deadline)
	}
	return d
}

// housekeep bounds the memory of gone pods and IDs.
func (c *core[S]) housekeep(now instant) {
	if now.sub(c.pruned) < c.cfg.Grace {
		return
	}
	c.pruned = now
	oldest := now // begin of the oldest read under way
	if c.lists.inflight {
		oldest = min(oldest, c.lists.began)
	}
	for _, f := range c.inflight {
		oldest = min(oldest, f.began)
	}
	if c.deleted {
		c.deleted, c.floor = oldest < now, max(c.floor, oldest)
		c.todo.do(action[S]{kind: actPrune, at: oldest})
	}
	maps.DeleteFunc(c.early, func(_ reportKey, e expectation) bool {
		return e.at.add(c.cfg.Grace) < oldest && (e.phase == PhaseRemoved || e.at < c.lists.global)
	})
	c.todo.do(action[S]{kind: actDropOldest, n: int32(min(len(c.pods)+c.cfg.OwedMax, math.MaxInt32))})
}

// invariantObserver is an optional interface of Config.Metrics, besides [Metrics], to check the
// core's invariants after each turn of the loop. A check visits every record, so this is for tests,
// such as the simulation.
type invariantObserver interface {
	// InvariantBroken gets the violations, from the loop.
	InvariantBroken(err error)
}

// checkInvariants returns an error for each violated invariant, at the time of a tick before it.
func (c *core[S]) checkInvariants(now instant) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	later, queued := make(map[*pod]bool), make(map[*pod]bool)
	for _, e := range c.later {
		later[e.pod] = later[e.pod] || e.at == e.pod.later
	}
	for p := range c.queue.all() {
		check(!queued[p], "pod %q is queued twice", p.uid)
		queued[p] = true
	}
	var phases [2][PhaseRemoved]int
	ids, expected, calls, running := 0, 0, 0, 0
	for uid, p := range c.pods {
		if err := c.checkPod(uid, p, later[p], queued[p], now); err != nil {
			errs = append(errs, fmt.Errorf("pod %q: %w", uid, err))
		}
		for _, x := range p.items {
			phases[x.kind][x.phase]++
		}
		if p.ready > 0 {
			running++
		}
		ids, expected, calls = ids+len(p.items), expected+len(p.expected), calls+int(p.calls)
	}
	check(ids >= len(c.index), "%d IDs in pods, %d in the index", ids, len(c.index))
	check(expected == c.expected, "%d expectations in pods, %d counted", expected, c.expected)
	check(calls == len(c.calls), "%d own calls in pods, %d known", calls, len(c.calls))
	check(phases == c.phases && running == c.running, "items %v and %d running pods, counted %v and %d", phases, running, c.phases, c.running)
	for id, x := range c.index {
		check(x.id == id && c.pods[x.pod.uid] == x.pod, "ID %q is filed as %q, of pod %q", x.id, id, x.pod.uid)
	}
	for _, set := range []map[*pod]struct{}{c.dirty, c.differ} {
		for p := range set {
			check(c.pods[p.uid] == p, "pod %q is dirty, or differs, and is forgotten", p.uid)
		}
	}
	for p, f := range c.inflight {
		check(c.pods[p.uid] == p && p.reading, "pod %q is being read, and forgotten", p.uid)
		check(0 < f.began && f.began <= f.started && f.started <= now, "the read of pod %q began %d, was started %d, now %d", p.uid, f.began, f.started, now)
	}
	check(len(c.inflight) <= allReads*c.cfg.InspectWorkers, "%d reads under way", len(c.inflight))
	l := &c.lists
	check(l.global <= l.applied && l.applied <= l.began && l.began <= now, "global time %d, list applied %d, begun %d, now %d", l.global, l.applied, l.began, now)
	for _, r := range c.rounds {
		check(r.began >= l.global && len(r.pending) > 0, "the list of %d is over, and the global time is %d", r.began, l.global)
		for p := range r.pending {
			check(c.pods[p.uid] == p && p.asOf < r.began, "the list of %d waits for pod %q as of %d", r.began, p.uid, p.asOf)
		}
	}
	s := &c.sched
	check(s.base <= s.period && s.period <= s.max && s.ended <= now && s.raised <= now, "schedule %+v at %d", *s, now)
	check(c.connected() || s.period == s.base, "the stream is down, and the period is %v", s.period)
	check(c.refuted.n == 0, "refuted claims are not settled: %v", c.refuted)
	check(c.deadline() > now, "the next tick is due at %d, and this one was at %d: the loop would spin", c.deadline(), now)
	return errors.Join(errs...)
}

// checkPod checks the record of a pod: the pod is read if need be, and its fields agree.
func (c *core[S]) checkPod(uid cache.UID, p *pod, later, queued bool, now instant) error {
	_, dirty := c.dirty[p]
	_, differs := c.differ[p]
	_, reading := c.inflight[p]
	next := c.nextRead(p)
	for _, wrong := range []struct {
		is   bool
		what string
	}{
		{uid != p.uid || uid == "", "is filed under another UID"},
		{dirty != (next != never), "needs a read and is not dirty, or is dirty for nothing"},
		{dirty && !p.reading && !p.queued && !later, "needs a read that nobody will make"},
		{later != (p.later != 0) || queued != p.queued || reading != p.reading, "is not where its record says"},
		{differs != p.differs() || p.agreed > p.listedAt, "differs from the last list, or does not, against its record"},
		{max(p.asOf, p.listedAt, p.visited, p.force, p.forced, p.readEnd) > now, "has an instant in the future"},
		{p.entry == failedEntry && p.retry.step == 0, "has failed without a delay"},
		{p.entry == noEntry && len(p.items) > 0, "has no status, which shows IDs"},
		{p.calls < 0 || p.creating < 0 || p.creating > p.calls, "has fewer calls than none"},
		{next == never && len(p.items)+len(p.expected) == 0 && p.entry == noEntry && !reading && p.calls == 0 && !differs && !queued, "is remembered for nothing"},
	} {
		if wrong.is {
			return fmt.Errorf("%s: %+v", wrong.what, *p)
		}
	}
	for _, x := range p.items {
		if x.pod != p || x.id == "" || c.find(p, 0, x.id) != x || c.index[x.id] == nil || x.phase > PhaseExited || x.shown != x.phase && x.shown != PhaseUnknown {
			return fmt.Errorf("item %+v is wrong", *x)
		}
	}
	return nil
}
