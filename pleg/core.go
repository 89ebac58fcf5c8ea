// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// core is the generator without goroutines, locks, RPCs, a clock or effects. Reports enter through
// apply, each with its time; todo holds, in order, the actions to take. The same inputs make the
// same actions, and a core can be copied and replayed. The loop owns it.
//
// Where to read: claim.go (events of the stream), merge.go (phases shown by a read), store.go
// (cache, then Watch, then forgetting), demand.go (who wants a read, and who may have a worker),
// dispatch.go (which reads to make), list.go (lists of everything, when they are due, the global
// time), conn.go (the stream), trust.go (trust in the stream, and reports), record.go (records of a
// pod and an ID, delays, instants).
type core[S any] struct {
	cfg    limits
	clock  clock // turns instants into the times that readers of Watch see; the core never asks for the present time
	random rand.PCG
	ledger
	attention
	forgetting
	streaming
	relisting
	inspecting
	trusting
	reporting
	guard guard
	todo  todo[S]
	count counters
}

// ledger holds the records of pods and IDs.
type ledger struct {
	pods  map[cache.UID]*pod
	index map[string]*item // every item by ID
	// unowned are claimed IDs whose pod neither a claim nor a read has named yet; the next list
	// decides.
	unowned          map[string]unconfirmedID
	calls            map[uint64]cache.UID // the agent's own calls under way, by serial: the pod of each
	uncertainCreates []cache.UID          // pods without a record for which a failed create call may still take effect
	uncertainDropped instant              // when the bound last dropped such a pod
	unconfirmed      int                  // in all pods
	phases           [2][PhaseRemoved]int // live items by kind and phase
	running          int                  // pods with a running sandbox
	marks            uint64               // merges so far
	looks            uint64               // items visited by reviews; tests hold the number to linear growth
}

// attention lists the pods that need work.
type attention struct {
	dirty            map[cache.UID]*pod // pods to be read
	changedSinceList map[cache.UID]*pod // pods that may differ from the last applied list
	affected         []*pod             // pods to review once all of the present report has been applied
}

// forgetting holds the IDs that wait to be forgotten.
type forgetting struct {
	expiring           fifo[expiry]
	unexpired          map[cache.UID]*pod // pods with removed items that cannot expire yet
	expired            instant            // when expire last ran
	pruned             instant            // when housekeep last ran
	forgotten          instant            // reads that began before this may show an ID that has been forgotten
	unconfirmedDropped instant            // when an unconfirmed ID was last dropped
	dropsUnconfirmed   bool               // the present report drops one
}

// streaming is the state of the stream.
type streaming struct {
	conn        conn
	connCfg     connConfig
	eventsSince instant // first connection: since then the runtime is known to have events; 0 if it has none
	lastDiscard instant // when claims were last discarded for want of room
	mute        muteStream
	ended       error // why the stream last ended
}

// relisting is the state of the reads of everything.
type relisting struct {
	sched  schedule
	lists  lists
	rounds []round
}

// inspecting is the state of the reads of single pods.
type inspecting struct {
	queues   [queueKinds]fifo[*pod] // pods to be read now
	turn     queueKind              // the queue that was served last
	laterQ   laterHeap              // pods to be looked at later
	inflight map[*pod]flight        // the reads under way
}

// trusting is the evidence for and against the stream that is not yet settled.
type trusting struct {
	candidates fifo[candidate]
	regressed  map[*item]Phase // phases that reads took back from other reads, since the last tick
	overruled  overruledClaims
}

// reporting is what is still to be reported.
type reporting struct {
	reportPaces    []*reportPace // one for each reason that has come up, in order of appearance
	missedChanges  changeSummary
	unheardChanges changeSummary
}

// newCore returns a core that waits for its start. Of the configuration the core keeps numbers
// only.
func newCore[S any](cfg *Config[S], clk clock, seed uint64) *core[S] {
	return &core[S]{
		cfg:    cfg.limits(),
		clock:  clk,
		random: *rand.NewPCG(seed, seed),
		ledger: ledger{
			pods:    make(map[cache.UID]*pod),
			index:   make(map[string]*item),
			unowned: make(map[string]unconfirmedID),
			calls:   make(map[uint64]cache.UID),
		},
		attention:  attention{dirty: make(map[cache.UID]*pod), changedSinceList: make(map[cache.UID]*pod)},
		forgetting: forgetting{unexpired: make(map[cache.UID]*pod)},
		streaming:  streaming{conn: conn{deadline: never}, connCfg: cfg.conn()},
		relisting:  relisting{sched: newSchedule(cfg.RelistBase, cfg.RelistMax)},
		inspecting: inspecting{inflight: make(map[*pod]flight)},
		trusting:   trusting{regressed: make(map[*item]Phase)},
		guard:      guard{tombstones: make(map[cache.UID]instant)},
	}
}

// start takes over a cache that holds the given pods, and opens the stream.
func (c *core[S]) start(held []cache.UID, now instant) {
	for _, uid := range held {
		c.ensure(uid).foreign = true // the first list reads or removes it
	}
	c.lists.finished = now
	if c.cfg.Streams {
		c.step(inOpen, now)
	}
}

// tick does all that is due.
func (c *core[S]) tick(now instant) {
	c.step(inTick, now)
	c.settleRegressed()
	c.settleMissing(now)
	c.settleOverruled(now)
	c.reportChanges(now)
	c.reportHeld(now)
	c.lookHanging(now)
	c.expire(now)
	if !c.lists.inflight && now >= c.sched.due() {
		c.list(now) // before the pods that it will serve are queued
	}
	c.takeLater(now)
	c.dispatch(now)
	c.housekeep(now)
}

// deadline returns when tick has something to do next.
func (c *core[S]) deadline() instant {
	d := c.conn.deadline
	if !c.lists.inflight {
		d = min(d, c.sched.due())
	}
	if c.laterQ.Len() > 0 {
		d = min(d, c.laterQ[0].at)
	}
	d = min(d, c.sweepDue(), c.nextHung(), c.reportsDue())
	if e, ok := c.candidates.front(); ok {
		d = min(d, e.deadline)
	}
	if c.overruled.unreported > 0 {
		d = min(d, c.overruled.report)
	}
	if e, ok := c.expiring.front(); ok {
		if due := e.at.add(c.cfg.Grace).next(); due > c.expired {
			d = min(d, due)
		} // else a read under way delays the expiry, and the result of that read wakes the loop
	}
	return d
}

// step moves the stream machine and carries out its effects.
func (c *core[S]) step(in connInput, now instant) {
	if in == inTick && now < c.conn.deadline || in == inHeard && c.conn.state != StreamOpening {
		return // the common case; the jitter must not depend on how often the loop turns
	}
	old := c.conn
	next, eff := c.conn.step(&c.connCfg, in, now, rand.New(&c.random).Float64())
	c.conn = next
	if eff&effOpen != 0 {
		c.conn = c.conn.opened(&c.connCfg, now)
		c.todo.do(action[S]{kind: actOpen})
		c.mute = muteStream{}
		c.count.opens++
	}
	if eff&effConnected != 0 {
		if !c.beganAt(now) {
			c.conn.connected = now - 1 // a read that begins now begins after
		}
		if c.eventsSince == 0 {
			c.eventsSince = c.conn.connected
		}
		c.count.connects++
		c.sched.distrust(now)
		c.sched.ask(now, true)
		if old.everConnected {
			c.count.reconnects++
			c.report(ReasonStreamRestored, "Reconnect", false, "the runtime's container event stream is connected again")
		}
	}
	if eff&(effFailed|effFellBack) != 0 {
		c.count.connectErrors++
	}
	if eff&effFellBack != 0 {
		c.revokeCredit()
		c.sched.distrust(now)
		c.sched.ask(now, true)
		note := fmt.Sprintf("the runtime's container event stream was lost (%v); polling until it is back", c.ended)
		if c.mute.ending {
			note = "the runtime's container event stream has gone silent while containers changed; opening it again"
		}
		c.report(ReasonStreamLost, "FallBack", true, note)
	}
	if c.conn.state == StreamUnsupported {
		c.eventsSince = 0
	}
	if eff&effUnsupported != 0 {
		note := fmt.Sprintf("%v; polling", c.ended) // the error says that there are no events, and how the runtime said so
		if errors.Is(c.ended, io.EOF) {
			note = "the runtime ends the stream of container events at once (EOF), as one does that offers none; polling"
		}
		c.report(ReasonStreamUnsupported, "Poll", false, note)
	}
}

// beganAt says that a read under way, or the last list, began at exactly that instant.
func (c *core[S]) beganAt(now instant) bool {
	if c.lists.began == now {
		return true
	}
	for _, f := range c.inflight {
		if f.began == now {
			return true
		}
	}
	return false
}

// connected says that the stream is up.
func (c *core[S]) connected() bool { return c.conn.state == StreamConnected }

// hadEvents says that the runtime was known to have events when a read began: it announced every
// later change to whoever listened (see listened), or missed the event.
func (c *core[S]) hadEvents(read instant) bool { return c.eventsSince != 0 && read > c.eventsSince }

// readAt returns the start of the latest applied read that covers the pod.
func (c *core[S]) readAt(p *pod) instant { return max(p.read, c.lists.applied) }

// asOf returns what the cache's AsOf returns for the pod.
func (c *core[S]) asOf(p *pod) instant { return max(p.asOf, c.lists.global) }

// ensure returns the pod's record.
func (c *core[S]) ensure(uid cache.UID) *pod {
	p := c.pods[uid]
	if p == nil {
		p = &pod{uid: uid}
		c.restoreUncertainCreate(p)
		c.pods[uid] = p
	}
	return p
}

// fewItems is the number of items of a pod up to which a scan comes before the index.
const fewItems = 4

// itemOf returns the item of an ID, in whichever pod, or nil. A report of the pod p has the ID at
// position i, the first place to look: reports mostly list known IDs in their known order, and
// index lookups, which miss the processor's caches on a big node, were half the cost of applying a
// list.
func (c *core[S]) itemOf(p *pod, i int, id string) *item {
	if i < len(p.items) && p.items[i].id == id {
		return p.items[i]
	}
	if len(p.items) <= fewItems {
		if x := p.find(id); x != nil {
			return x
		}
	}
	return c.index[id]
}

// report makes a report about the node, without pacing.
func (c *core[S]) report(reason Reason, action string, warning bool, note string) {
	c.todo.report(Report{Reason: reason, Action: action, Warning: warning, Note: note})
}

// setPhase moves an item and keeps the running counts.
func (c *core[S]) setPhase(x *item, phase Phase, cause Cause, byClaim bool, stamp int64, now instant) {
	c.uncount(x)
	if cause != CauseRead && x.phase == PhaseUnknown && phase != PhaseRemoved {
		x.invalidateStatus()
	}
	x.believe(phase, cause, byClaim, stamp, now)
	c.countIn(x)
	c.changedSinceList[x.pod.uid] = x.pod
	if phase == PhaseRemoved {
		c.expiring.push(expiry{at: now, pod: x.pod})
	}
}

func (c *core[S]) uncount(x *item) {
	if x.phase >= PhaseRemoved {
		return
	}
	c.phases[x.kind][x.phase]--
	if x.kind == Sandbox && x.phase == PhaseRunning {
		if x.pod.ready--; x.pod.ready == 0 {
			c.running--
		}
	}
}

func (c *core[S]) countIn(x *item) {
	if x.phase >= PhaseRemoved {
		return
	}
	c.phases[x.kind][x.phase]++
	if x.kind == Sandbox && x.phase == PhaseRunning {
		if x.pod.ready++; x.pod.ready == 1 {
			c.running++
		}
	}
}

// inputKind is the kind of an input.
type inputKind uint8

const (
	inputStart     inputKind = iota // the beginning: the pods that the cache holds
	inputTick                       // time has passed
	inputClaims                     // claims from the mailbox
	inputAcks                       // acks of the agent's own calls
	inputListed                     // the result of a list of everything
	inputInspected                  // the result of the read of one pod
	inputEnded                      // the stream has ended
	inputDemand                     // the cache's waiters
	inputRequest                    // an embedder's request
	inputOverflow                   // Watch has begun to overflow
	inputRefused                    // the cache has refused a write
)

// input is one message to the core with its data. A core depends on its inputs and their times, and
// on nothing else.
type input[S any] struct {
	kind      inputKind
	in        connInput               // inputEnded: the kind of end
	held      []cache.UID             // inputStart
	claims    *batch[S]               // inputClaims; the core keeps nothing of it
	acks      []ack                   // inputAcks; the core keeps only the calls under way
	lost      bool                    // inputAcks: some found no room
	listed    *listedAll              // inputListed
	inspected *inspected[S]           // inputInspected
	ended     error                   // inputEnded
	demand    map[cache.UID]time.Time // inputDemand
	request   request                 // inputRequest
	refused   refusal                 // inputRefused
}

// apply feeds one input to the core. Now never decreases.
func (c *core[S]) apply(in *input[S], now instant) {
	switch in.kind {
	case inputStart:
		c.start(in.held, now)
	case inputTick:
		c.tick(now)
	case inputClaims:
		c.onClaims(in.claims, now)
	case inputAcks:
		c.takeAcks(in.acks, in.lost, now)
	case inputListed:
		c.onListed(in.listed, now)
	case inputInspected:
		c.onInspected(in.inspected, now)
	case inputEnded:
		c.ended = in.ended
		c.step(in.in, now)
	case inputDemand:
		c.onDemand(in.demand, now)
	case inputRequest:
		c.onRequest(in.request, now)
	case inputOverflow:
		c.onOverflow(now)
	case inputRefused:
		c.onRefused(in.refused.uid, in.refused.has, now)
	default:
		panic(fmt.Sprintf("pleg: no such input: %d", in.kind))
	}
	if c.dropsUnconfirmed { // at the end of the input: changes that the same list finds of other pods are still missed events
		c.unconfirmedDropped, c.dropsUnconfirmed = now, false
	}
}

// onOverflow reports that Watch has begun to overflow.
func (c *core[S]) onOverflow(now instant) {
	c.reportPaced(Report{
		Reason: ReasonWatchOverflow, Action: "Coalesce", Warning: true,
		Note: "pod lifecycle events are not being read fast enough; pods are owed one PodSync each",
	}, now)
}
