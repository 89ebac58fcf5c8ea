// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"iter"
	"slices"
)

// invariantObserver is what a Config.Metrics may implement besides [Metrics], to have the core's
// invariants checked after each turn of the loop. A check looks at everything that is remembered,
// so that this is for tests: the simulation does so.
type invariantObserver interface {
	// InvariantBroken is told what does not hold. It is called from the loop.
	InvariantBroken(err error)
}

// checker collects what does not hold.
type checker struct{ errs []error }

// that notes a violation unless ok.
func (k *checker) that(ok bool, format string, args ...any) {
	if !ok {
		k.errs = append(k.errs, fmt.Errorf(format, args...))
	}
}

// err returns all that does not hold.
func (k *checker) err() error { return errors.Join(k.errs...) }

// checkInvariants returns what must hold after a tick at the given time, and does not. It changes
// nothing.
func (c *core[S]) checkInvariants(now instant) error {
	var k checker
	ids, suspects := 0, 0
	waiting := c.waitingLater()
	for uid, p := range c.pods {
		k.that(uid == p.uid && uid != "", "pod %q is filed as %q", p.uid, uid)
		before := len(k.errs)
		c.checkPod(&k, p, now)
		c.checkNeed(&k, p, waiting[p])
		c.checkItems(&k, p, now)
		for i := range k.errs[before:] {
			k.errs[before+i] = fmt.Errorf("pod %q: %w", uid, k.errs[before+i])
		}
		ids, suspects = ids+len(p.items), suspects+len(p.suspects)
	}
	k.that(ids == len(c.index), "%d IDs in pods, %d in the index", ids, len(c.index))
	k.that(suspects == c.suspects, "%d suspects in pods, %d counted", suspects, c.suspects)
	for id := range c.homeless {
		k.that(c.index[id] == nil, "homeless %q is pod %v's", id, c.index[id])
	}
	c.checkCounts(&k)
	c.checkQueues(&k, now)
	c.checkLists(&k, now)
	c.checkTrust(&k, now)
	return k.err()
}

// waitingLater returns the pods whose earliest entry in the heap is as they remember it.
func (c *core[S]) waitingLater() map[*pod]bool {
	waiting := make(map[*pod]bool, c.laterQ.Len())
	for _, e := range c.laterQ {
		if e.at == e.pod.laterAt {
			waiting[e.pod] = true
		}
	}
	return waiting
}

// checkPod checks the fields of a pod against each other.
func (c *core[S]) checkPod(k *checker, p *pod, now instant) {
	for _, at := range []instant{p.read, p.asOf, p.want, p.waited, p.force, p.forced, p.moved, p.listingBegan} {
		k.that(at >= 0 && at <= now, "an instant is %d, and now is %d: %+v", at, now, *p)
	}
	k.that(p.reread.step >= 0 && p.going.step >= 0 && p.backoff.step >= 0, "delays %v", p.delays)
	k.that(!p.failed || p.backoff.climbed(), "it failed, and has no delay after failures")
	k.that(!p.hasStatus || !p.foreign, "its status is its own, and foreign")
	k.that(p.hasStatus || !p.alien, "it has no status, which shows another pod's ID")
	k.that(!p.going.climbed() || c.open[p.uid] == p, "it waits for its end, and nobody looks")
	k.that(!p.reread.climbed() || p.unsure(), "a delay of rereading %v, and nothing to reread for", p.reread)
	k.that(!p.affected, "it is still to be reviewed")
	f, ok := c.inflight[p]
	k.that(ok == p.reading, "it is being read: %t, by its record %t", ok, p.reading)
	if ok {
		k.that(0 < f.began && f.began <= f.started && f.started <= now, "its read began %d, was started %d, now %d", f.began, f.started, now)
		k.that(p.queued == notQueued, "it is being read, and queued in %d", p.queued)
	}
	for id, s := range p.suspects {
		k.that(s.phase <= PhaseRemoved && 0 < s.at && s.at <= now, "suspect %q is %v since %d, now %d", id, s.phase, s.at, now)
		k.that(p.find(id) == nil, "%q is a suspect, and known", id)
	}
	for id, it := range p.contested {
		k.that(it.ID == id && it.Phase <= PhaseExited, "contested %q is %v", id, it)
		k.that(p.find(id) == nil, "%q is believed to be another pod's, and its own", id)
	}
}

// checkNeed checks that a pod that needs a read, or that somebody wants read, will get one.
func (c *core[S]) checkNeed(k *checker, p *pod, later bool) {
	open := c.open[p.uid] == p
	awaited := p.foreign && c.lists.applied == 0 // the first list looks at it
	k.that(open || awaited || !p.unsure() && p.want == 0 && p.force == 0, "it needs a read, and is not open: %+v", *p)
	k.that(later || p.laterAt == 0, "it is to be looked at at %d, and not in the heap", p.laterAt)
	k.that(!open || c.reads(p) || p.queued != notQueued || later, "it is open, and will not be looked at")
	k.that(c.touched[p.uid] == p || !differs(p), "it differs from the last list, and is not touched")
	known := len(p.items)+len(p.suspects)+len(p.contested)+p.own.calls > 0
	k.that(known || open || c.reads(p) || p.hasEntry(), "nothing is known of it, nothing is wanted, and it is remembered")
}

// checkItems checks the IDs of a pod.
func (c *core[S]) checkItems(k *checker, p *pod, now instant) {
	ready := 0
	for i, x := range p.items {
		k.that(x.id != "" && c.index[x.id] == x && x.pod == p && x.at == i, "ID %q is not where it should be", x.id)
		before := len(k.errs)
		c.checkItem(k, x, now)
		for i := range k.errs[before:] {
			k.errs[before+i] = fmt.Errorf("ID %q: %w", x.id, k.errs[before+i])
		}
		if x.kind == Sandbox && x.phase == PhaseRunning {
			ready++
		}
	}
	k.that(ready == p.ready, "%d sandboxes are ready, %d counted", ready, p.ready)
}

func (c *core[S]) checkItem(k *checker, x *item, now instant) {
	k.that(x.phase <= PhaseRemoved && x.claimed <= PhaseRemoved, "phase %v, claimed %v", x.phase, x.claimed)
	k.that(x.told == phaseNone || x.told <= PhaseRemoved, "told %v", x.told)
	k.that(x.listed == phaseNone || x.listed <= PhaseExited, "listed %v", x.listed)
	// A status that does not know the state of an ID of which a removal is claimed is not settled.
	k.that(x.cached == phaseNone || x.cached <= PhaseExited || x.blank && x.cached == PhaseRemoved, "cached %v", x.cached)
	k.that(x.cached == phaseNone || x.pod.hasStatus, "cached %v, and the pod has no status", x.cached)
	k.that(0 < x.first && x.first <= now && 0 < x.since && x.since <= now, "first %d, since %d, now %d", x.first, x.since, now)
	k.that(x.since <= x.sure && x.sure <= now, "since %d, sure %d, now %d", x.since, x.sure, now)
	k.that(!x.byClaim || x.cause == CauseClaim && x.claimed >= x.phase, "by claim, caused by %v, claimed %v, phase %v", x.cause, x.claimed, x.phase)
	k.that(x.stamp == 0 || x.cause == CauseClaim, "it has a claim's stamp, and is caused by %v", x.cause)
	k.that(!x.back || x.cause == CauseRead && !x.byClaim, "taken back, by %v", x.cause)
	told := x.told != phaseNone && x.told >= PhaseRunning
	k.that(!told || x.mask != 0, "told %v, and no event", x.told)
	k.that(x.told != PhaseRemoved || x.mask&maskRemoved != 0, "told removed, by the events %03b", x.mask)
	k.that(x.mask&maskRemoved == 0 || x.mask&maskDied != 0 || x.mask&maskStarted == 0, "told to start and to be removed, not to die")
}

// checkCounts counts everything anew that is kept as a number.
func (c *core[S]) checkCounts(k *checker) {
	var phases [2][PhaseRemoved]int
	running := 0
	for id, x := range c.index {
		k.that(id == x.id && c.pods[x.pod.uid] == x.pod, "ID %q of pod %q is lost", id, x.pod.uid)
		if x.phase < PhaseRemoved {
			phases[x.kind][x.phase]++
		}
	}
	for _, p := range c.pods {
		if p.ready > 0 {
			running++
		}
	}
	k.that(phases == c.phases, "there are %v by kind and phase, %v counted", phases, c.phases)
	k.that(running == c.running, "%d pods have a ready sandbox, %d counted", running, c.running)
}

// checkQueues checks who waits for what.
func (c *core[S]) checkQueues(k *checker, now instant) {
	for uid, p := range c.open {
		k.that(c.pods[uid] == p, "open pod %q is forgotten", uid)
	}
	for uid, p := range c.touched {
		k.that(c.pods[uid] == p, "touched pod %q is forgotten", uid)
	}
	for uid, p := range c.leftover {
		k.that(c.pods[uid] == p, "pod %q is left over, and forgotten", uid)
	}
	queued := make(map[*pod]bool)
	for kind := inListed; kind < queueKinds; kind++ {
		for p := range c.queues[kind].all() {
			if p.queued == kind {
				queued[p] = true
			}
		}
	}
	for _, p := range c.pods {
		k.that((p.queued != notQueued) == queued[p], "pod %q is queued in %d, by the queues %t", p.uid, p.queued, queued[p])
	}
	for p := range c.inflight {
		k.that(c.pods[p.uid] == p, "pod %q is being read, and forgotten", p.uid)
	}
	k.that(len(c.inflight) <= c.cfg.InspectWorkers, "%d reads under way, at most %d", len(c.inflight), c.cfg.InspectWorkers)
	k.that(len(c.affected) == 0, "%d pods are still to be reviewed", len(c.affected))
	k.that(ascending(c.expiring.all(), func(e expiry) instant { return e.at }), "expiries are out of order")
	k.that(ascending(c.missing.all(), func(e candidate) instant { return e.deadline }), "candidates are out of order")
	// A deadline that has come would have the loop turn without end.
	k.that(c.deadline() > now, "the next tick is due at %d, and this one is at %d", c.deadline(), now)
}

// checkLists checks the lists of everything, and the global time.
func (c *core[S]) checkLists(k *checker, now instant) {
	l := &c.lists
	k.that(l.global <= l.applied && l.applied <= l.began && l.began <= now && l.finished <= now,
		"global %d, applied %d, began %d, finished %d, now %d", l.global, l.applied, l.began, l.finished, now)
	k.that(len(c.rounds) <= 2, "%d rounds", len(c.rounds))
	for _, r := range c.rounds {
		// Two lists may begin in one instant: the first may be over, and so the global time be
		// there, before the second is.
		k.that(r.began >= l.global && len(r.pending) > 0, "the round of %d, with %d pods, is over: the global time is %d", r.began, len(r.pending), l.global)
		for p := range r.pending {
			k.that(c.pods[p.uid] == p && p.asOf < r.began, "the round of %d waits for pod %q as of %d", r.began, p.uid, p.asOf)
		}
	}
	k.that(ascending(slices.Values(c.rounds), func(r round) instant { return r.began }), "rounds are out of order")
	s := &c.sched
	k.that(s.base <= s.period && s.period <= s.max, "the period is %v, not within %v and %v", s.period, s.base, s.max)
	k.that(s.ended <= now && s.raised <= now, "ended %d, raised %d, now %d", s.ended, s.raised, now)
}

// checkTrust checks the stream and what it is believed.
func (c *core[S]) checkTrust(k *checker, now instant) {
	k.that(c.conn.connected <= now && (!c.connected() || c.conn.ever), "%+v at %d", c.conn, now)
	k.that(c.heard <= now && (c.heard == 0 || c.conn.ever), "events are known since %d: %+v", c.heard, c.conn)
	k.that(!c.lies.fresh && c.lies.last <= now, "lies are not settled: %+v", c.lies)
	k.that(c.lies.untold == 0 || now < c.lies.report, "%d overruled claims are due to be reported", c.lies.untold)
	k.that(c.connected() || c.sched.period == c.cfg.RelistBase, "the stream is down, and the period is %v", c.sched.period)
	for e := range c.missing.all() {
		k.that(e.found <= now && e.stream <= e.found, "candidate %+v at %d", e, now)
	}
}

// ascending says that the keys do not decrease.
func ascending[T any](all iter.Seq[T], key func(T) instant) bool {
	last := instant(0)
	for v := range all {
		if key(v) < last {
			return false
		}
		last = key(v)
	}
	return true
}
