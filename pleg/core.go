// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/evented-pleg/evented-pleg/cache"
)

// core is the generator without goroutines, locks, RPCs or a clock: inputs and their times in,
// actions out. The core is made of rooms, each with its own state and methods, and routes between
// them: an input is taken apart, each part goes to its room, and the room's answer to the next
// room. A pod is known by its last stored status: see book.enter. Everything else (claims, acks,
// lists, waiters) is about which pods to read, and when.
type core[S any] struct {
	book[S]

	stream stream
	calls  calls
	lists  lists
	reads  reads
	peeks  peeks `prove:"-"`
	rota   rota  `prove:"-"`

	ticked instant `prove:"-"` // the last tick
	pruned instant `prove:"-"` // the last time that the memory of gone pods was bounded

	cache    *cache.Cache[S]               `prove:"-"` // read only: the status that a payload builds on
	without  func(status *S, id string) *S `prove:"-"` // Config.Without
	snapshot Stats                         `prove:"-"` // the memory of stats
}

func newCore[S any](cfg *Config[S], clk clock, seed uint64) *core[S] {
	limits := cfg.limits()
	return &core[S]{
		book: newBook[S](limits, clk),
		stream: stream{
			conn:   conn{deadline: never},
			cfg:    cfg.conn(),
			random: *rand.NewPCG(seed, seed),
		},
		calls:   newCalls(),
		lists:   newLists(),
		reads:   newReads(limits.InspectWorkers),
		peeks:   newPeeks(limits.InspectWorkers),
		cache:   cfg.Cache,
		without: cfg.Without,
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
	inputChanged                    // a status differs from the one before beside its phases
	// inputStood: the generator has stood still until now, without a processor or in a callback.
	// Calls under way meanwhile may have been answered long ago: none of them hangs, and none tells
	// how slow the runtime is. Events may have come.
	inputStood
)

// input is a message to the core with its data. A core depends only on its inputs and their times.
type input[S any] struct {
	kind      inputKind
	in        connInput                  // inputEnded: the kind of end
	held      []cache.UID                // inputStart
	claims    *batch[S]                  // inputClaims; not kept by the core
	acks      []ack                      // inputAcks; not kept by the core
	lost      lostCalls                  // inputAcks: the calls without room
	listed    *listedAll                 // inputListed
	inspected *inspected[S]              // inputInspected
	ended     error                      // inputEnded
	demand    map[cache.UID]cache.Demand // inputDemand
	request   request                    // inputRequest
	refused   refusal                    // inputRefused
	changed   contentChange              // inputChanged
}

// apply feeds an input to the core. Now never decreases.
func (c *core[S]) apply(in *input[S], now instant) {
	switch in.kind {
	case inputStart:
		for _, uid := range in.held {
			c.becomeForeign(c.ensure(uid), 0)
		}
		c.lists.appliedAt = now
		if c.cfg.Streams {
			c.stepStream(inOpen, nil, now)
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
		if in.inspected.peek {
			c.onPeeked(in.inspected, now)
		} else {
			c.onInspected(in.inspected, now)
		}
	case inputEnded:
		c.stepStream(in.in, in.ended, now)
	case inputDemand:
		uids := make([]cache.UID, 0, len(in.demand)) // an iterator would cost a waiter four allocations
		for uid := range in.demand {
			uids = append(uids, uid)
		}
		slices.Sort(uids)
		for _, uid := range uids {
			c.want(uid, c.out.clock.wantedBy(in.demand[uid]), now)
		}
	case inputRequest:
		c.want(in.request.uid, in.request.wanted(now), now)
	case inputOverflow:
		c.out.paced(Report{
			Reason: ReasonWatchOverflow, Action: "Coalesce", Warning: true,
			Note: "pod lifecycle events are not being read fast enough; pods are owed one PodSync each",
		}, now)
	case inputChanged:
		c.changed(in.changed, c.stream.upSince(), now)
	case inputStood:
		c.mayHave(now) // what was told meanwhile is still to be heard
		c.lists.stood(now)
		c.reads.stood(now)
		c.peeks.stood(now)
		c.trust.stood(now)
	case inputRefused:
		p := c.ensure(in.refused.uid)
		c.becomeForeign(p, in.refused.has)
		c.want(p.uid, wanted{phases: in.refused.has}, now)
	}
}

// request is an embedder's call of RequestRelist or RequestReinspect.
type request struct {
	uid     cache.UID
	inspect bool
}

// compare orders requests by pod, those for a read of statuses last.
func (r request) compare(s request) int {
	switch {
	case r.uid != s.uid:
		return strings.Compare(string(r.uid), string(s.uid))
	case r.inspect == s.inspect:
		return 0
	case s.inspect:
		return -1
	}
	return 1
}

// wanted returns what the request asks for.
func (r request) wanted(now instant) wanted {
	if r.inspect && r.uid != "" {
		return wanted{force: now}
	}
	return wanted{phases: now}
}

// wantedBy returns what the waiters of a pod ask for.
func (c clock) wantedBy(d cache.Demand) (w wanted) {
	if !d.Phases.IsZero() {
		w.phases = c.instant(d.Phases)
	}
	if !d.Content.IsZero() {
		w.content = c.instant(d.Content)
	}
	return w
}

// want demands reads of the pod. No runtime has a pod without a UID: a list of everything covers
// the question.
func (c *core[S]) want(uid cache.UID, w wanted, now instant) {
	if uid == "" {
		c.trust.sched.askAtOnce(now)
		return
	}
	p := c.ensure(uid)
	floor := instant(0)
	if p.entry == noEntry {
		floor = p.asOf // the cache may have pruned the tombstone
	}
	p.ask(w, floor)
	c.review(p, now)
}

// tick does everything due.
func (c *core[S]) tick(now instant) {
	c.ticked = now
	c.stepStream(inTick, nil, now)
	if c.settle(c.stream.upSince(), now) {
		c.out.do(action[S]{kind: actCut})
	}
	for _, r := range c.out.reports.dueReports(now) {
		c.out.report(r)
	}
	if now >= c.lists.hangsAt(c.cfg.RelistSlow) {
		c.lists.hung = true
		c.out.paced(reportHanging(now.sub(c.lists.awaited()), c.stream.up()), now)
	}
	if !c.lists.inflight && now >= c.trust.sched.due() {
		c.list(now)
	}
	for p := c.reads.dueNow(now); p != nil; p = c.reads.dueNow(now) {
		c.review(p, now)
	}
	again := c.rota.reread(c.cfg.Reread, c.known, now)
	if again != nil {
		c.out.add(countRereads, 1)
		again.turn(now)
		c.review(again, now)
	}
	c.dispatch(now)
	c.tickPeeks(now)
	c.housekeep(now)
}

// review follows up on any change of a pod: the pod is queued for a read if need be, and forgotten
// if nothing is left.
func (c *core[S]) review(p *pod, now instant) {
	if !c.known(p) {
		return
	}
	p.met(c.lists.asOf(p), c.lists.readAt(p))
	if p.entry == statusEntry {
		c.rota.join(p, c.cfg.Reread, now)
	}
	if p.late != 0 && p.late <= now && c.reads.crowded(c.cfg.InspectWorkers) {
		p.late = c.rota.putOff(c.reads.first(), now) // other pods need their reads more
	}
	next := c.peeks.precede(p.uid, p.nextRead(&c.records, &c.cfg, &c.lists))
	forget := next == never && p.empty()
	c.lists.done(p, forget)
	c.out.advance(c.lists.advance())
	if forget {
		c.forget(p)
		c.rota.forgotten(len(c.pods), c.known)
	}
	c.reads.place(p, next, now)
	if x := c.peeks.of[p.uid]; x != nil {
		c.peeks.leave(x, c.pods[p.uid], &c.lists, &c.reads)
	}
	if next != never {
		c.peeks.consider(p, &c.reads, now)
	}
}

// reviewAll reviews pods, in the order of their UIDs.
func (c *core[S]) reviewAll(pods map[*pod]struct{}, now instant) {
	for _, p := range inOrder(pods) {
		c.review(p, now)
	}
}

// dispatch starts the reads due. A list of everything replaces the reads of many pods.
func (c *core[S]) dispatch(now instant) {
	last := lastList{began: c.lists.began, ended: c.trust.sched.ended}
	if c.lists.answers() && c.reads.sweeps(&c.records, &c.cfg, last, now) {
		c.out.add(countSweeps, 1)
		c.list(now)
	}
	for p, lane := c.reads.take(now); p != nil; p, lane = c.reads.take(now) {
		if c.known(p) && c.peeks.precede(p.uid, p.nextRead(&c.records, &c.cfg, &c.lists)) <= now {
			c.inspect(p, lane, now)
		} else {
			c.review(p, now)
		}
	}
}

// deadline returns when tick has something to do next.
func (c *core[S]) deadline() instant {
	d := min(
		c.stream.deadline,
		c.trust.due(),
		c.out.reports.due(),
		c.lists.hangsAt(c.cfg.RelistSlow),
		c.reads.deadline(c.ticked),
		c.rota.due(c.cfg.Reread),
		c.peeks.deadline(&c.lists, &c.reads, c.ticked),
	)
	if !c.lists.inflight {
		d = min(d, c.trust.sched.due())
	}
	return d
}

// housekeep bounds the memory of gone pods and IDs.
func (c *core[S]) housekeep(now instant) {
	if now.sub(c.pruned) < c.cfg.Grace {
		return
	}
	c.pruned = now
	c.prune(pruning{
		oldest: min(c.reads.oldest(now), c.peeks.oldest(), c.lists.since()),
		global: c.lists.global,
	}, now)
}

// invariantObserver is an optional interface of Config.Metrics, besides [Metrics], to check the
// core's invariants after each turn of the loop. A check visits every record, so this is for tests,
// such as the simulation.
type invariantObserver interface {
	// InvariantBroken gets the violations, from the loop.
	InvariantBroken(err error)
}

// checker takes an invariant, and says what is wrong if the invariant does not hold.
type checker func(ok bool, format string, args ...any)

// checkInvariants returns an error for each violated invariant, at the time of a tick before it.
func (c *core[S]) checkInvariants(now instant) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	due := func(p *pod) instant { return c.peeks.precede(p.uid, p.nextRead(&c.records, &c.cfg, &c.lists)) }
	c.records.check(check, now)
	c.evidence.check(check, c.pods)
	c.calls.check(check, c.pods)
	c.trust.check(check, now)
	over := func(x *peeking) bool { return c.peeks.over(x, c.pods[x.uid], &c.lists, &c.reads) }
	c.peeks.check(check, over, now)
	c.lists.check(check, c.pods, now)
	c.reads.check(check, c.pods, due, now)
	c.rota.check(check, len(c.pods))
	period := c.trust.sched.period
	check(c.stream.up() || period == c.trust.sched.base,
		"the stream is down, and the period is %v", period)
	check(c.deadline() > now,
		"the next tick is due at %d, and this one was at %d: the loop would spin", c.deadline(), now)
	return errors.Join(errs...)
}
