// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"iter"
	"slices"
)

// invariantObserver is an optional interface of Config.Metrics, besides [Metrics]: with it, the
// core's invariants are checked after each turn of the loop. A check visits every record, so this
// is for tests, such as the simulation.
type invariantObserver interface {
	// InvariantBroken gets the violations. It is called from the loop.
	InvariantBroken(err error)
}

// checker collects violations.
type checker struct{ errs []error }

// broken notes a violation. Callers write it after ||, so that arguments are boxed only for a
// violation: the checks visit everything after each turn.
func (k *checker) broken(format string, args ...any) bool {
	k.errs = append(k.errs, fmt.Errorf(format, args...))
	return false
}

// err returns all violations.
func (k *checker) err() error { return errors.Join(k.errs...) }

// checkInvariants returns the violations of what must hold after a tick at the given time. It
// changes nothing.
func (c *core[S]) checkInvariants(now instant) error {
	var k checker
	ids, unconfirmed := 0, 0
	waiting := c.waitingLater()
	for uid, p := range c.pods {
		_ = uid == p.uid && uid != "" || k.broken("pod %q is filed as %q", p.uid, uid)
		before := len(k.errs)
		c.checkPod(&k, p, now)
		c.checkNeed(&k, p, waiting[p])
		c.checkItems(&k, p, now)
		for i := range k.errs[before:] {
			k.errs[before+i] = fmt.Errorf("pod %q: %w", uid, k.errs[before+i])
		}
		ids, unconfirmed = ids+len(p.items), unconfirmed+len(p.unconfirmed)
	}
	_ = ids == len(c.index) || k.broken("%d IDs in pods, %d in the index", ids, len(c.index))
	_ = unconfirmed == c.unconfirmed || k.broken("%d unconfirmed IDs in pods, %d counted", unconfirmed, c.unconfirmed)
	for id := range c.unowned {
		_ = c.index[id] == nil || k.broken("unowned %q is pod %v's", id, c.index[id])
	}
	c.checkCounts(&k)
	c.checkQueues(&k, now)
	c.checkLists(&k, now)
	c.checkTrust(&k, now)
	return k.err()
}

// waitingLater returns the pods whose earliest entry in the heap is at their laterAt.
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
	for _, at := range []instant{p.read, p.asOf, p.want, p.waited, p.force, p.forced, p.changedAt, p.listingBegan} {
		_ = at >= 0 && at <= now || k.broken("an instant is %d, and now is %d: %+v", at, now, *p)
	}
	_ = p.reread.step >= 0 && p.teardown.step >= 0 && p.backoff.step >= 0 || k.broken("delays %v", p.delays)
	_ = !p.failed || p.backoff.climbed() || k.broken("it failed, and has no delay after failures")
	_ = !p.hasStatus || !p.foreign || k.broken("its status is its own, and foreign")
	_ = p.hasStatus || !p.foreignID || k.broken("it has no status, which shows another pod's ID")
	_ = !p.teardown.climbed() || c.dirty[p.uid] == p || k.broken("it waits for its end, and nobody looks")
	_ = !p.reread.climbed() || p.unsure() || k.broken("a delay of rereading %v, and nothing to reread for", p.reread)
	_ = !p.affected || k.broken("it is still to be reviewed")
	f, ok := c.inflight[p]
	_ = ok == p.reading || k.broken("it is being read: %t, by its record %t", ok, p.reading)
	if ok {
		_ = 0 < f.began && f.began <= f.started && f.started <= now || k.broken("its read began %d, was started %d, now %d", f.began, f.started, now)
		_ = p.queued == notQueued || k.broken("it is being read, and queued in %d", p.queued)
	}
	for id, s := range p.unconfirmed {
		_ = s.phase <= PhaseRemoved && 0 < s.at && s.at <= now || k.broken("unconfirmed %q is %v since %d, now %d", id, s.phase, s.at, now)
		_ = p.find(id) == nil || k.broken("%q is unconfirmed, and known", id)
	}
	for id, it := range p.conflicts {
		_ = it.ID == id && it.Phase <= PhaseExited || k.broken("conflict over %q: %v", id, it)
		_ = p.find(id) == nil || k.broken("%q is believed to be another pod's, and its own", id)
	}
}

// checkNeed checks that a pod with a need, or a demand, for a read will get one.
func (c *core[S]) checkNeed(k *checker, p *pod, later bool) {
	dirty := c.dirty[p.uid] == p
	awaited := p.foreign && c.lists.applied == 0 // the first list reads the pod
	_ = dirty || awaited || !p.unsure() && p.want == 0 && p.force == 0 || k.broken("it needs a read, and is not dirty: %+v", *p)
	_ = later || p.laterAt == 0 || k.broken("it is to be looked at at %d, and not in the heap", p.laterAt)
	_ = !dirty || c.reads(p) || p.queued != notQueued || later || k.broken("it is dirty, and will not be looked at")
	_ = c.changedSinceList[p.uid] == p || !differs(p) || k.broken("it differs from the last list, and is not among the changed")
	known := len(p.items)+len(p.unconfirmed)+len(p.conflicts) > 0 || p.own.calls > 0
	_ = known || dirty || c.reads(p) || p.hasEntry() || k.broken("nothing is known of it, nothing is wanted, and it is remembered")
}

// checkItems checks the IDs of a pod.
func (c *core[S]) checkItems(k *checker, p *pod, now instant) {
	ready := 0
	for i, x := range p.items {
		_ = x.id != "" && c.index[x.id] == x && x.pod == p && x.at == i || k.broken("ID %q is not where it should be", x.id)
		before := len(k.errs)
		c.checkItem(k, x, now)
		for i := range k.errs[before:] {
			k.errs[before+i] = fmt.Errorf("ID %q: %w", x.id, k.errs[before+i])
		}
		if x.kind == Sandbox && x.phase == PhaseRunning {
			ready++
		}
	}
	_ = ready == int(p.ready) || k.broken("%d sandboxes are ready, %d counted", ready, p.ready)
}

func (c *core[S]) checkItem(k *checker, x *item, now instant) {
	_ = x.phase <= PhaseRemoved && x.claimed <= PhaseRemoved || k.broken("phase %v, claimed %v", x.phase, x.claimed)
	_ = x.emitted == phaseNone || x.emitted <= PhaseRemoved || k.broken("told %v", x.emitted)
	_ = x.listed == phaseNone || x.listed <= PhaseExited || k.broken("listed %v", x.listed)
	// A status without the state of an ID is not settled if a removal of the ID is claimed.
	_ = x.cached == phaseNone || x.cached <= PhaseExited || x.statusUnknown && x.cached == PhaseRemoved || k.broken("cached %v", x.cached)
	_ = x.cached == phaseNone || x.pod.hasStatus || k.broken("cached %v, and the pod has no status", x.cached)
	_ = 0 < x.first && x.first <= now && 0 < x.since && x.since <= now || k.broken("first %d, since %d, now %d", x.first, x.since, now)
	_ = x.since <= x.confirmed && x.confirmed <= now || k.broken("since %d, sure %d, now %d", x.since, x.confirmed, now)
	_ = !x.byClaim || x.cause == CauseClaim && x.claimed >= x.phase || k.broken("by claim, caused by %v, claimed %v, phase %v", x.cause, x.claimed, x.phase)
	_ = x.stamp == 0 || x.cause == CauseClaim || k.broken("it has a claim's stamp, and is caused by %v", x.cause)
	_ = !x.rolledBack || x.cause == CauseRead && !x.byClaim || k.broken("taken back, by %v", x.cause)
	emitted := x.emitted != phaseNone && x.emitted >= PhaseRunning
	_ = !emitted || x.mask != 0 || k.broken("told %v, and no event", x.emitted)
	_ = x.emitted != PhaseRemoved || x.mask&maskRemoved != 0 || k.broken("told removed, by the events %03b", x.mask)
	_ = x.mask&maskRemoved == 0 || x.mask&maskDied != 0 || x.mask&maskStarted == 0 || k.broken("told to start and to be removed, not to die")
}

// checkCounts recounts every number that is kept.
func (c *core[S]) checkCounts(k *checker) {
	var phases [2][PhaseRemoved]int
	running := 0
	for id, x := range c.index {
		_ = id == x.id && c.pods[x.pod.uid] == x.pod || k.broken("ID %q of pod %q is lost", id, x.pod.uid)
		if x.phase < PhaseRemoved {
			phases[x.kind][x.phase]++
		}
	}
	for _, p := range c.pods {
		if p.ready > 0 {
			running++
		}
	}
	_ = phases == c.phases || k.broken("there are %v by kind and phase, %v counted", phases, c.phases)
	_ = running == c.running || k.broken("%d pods have a ready sandbox, %d counted", running, c.running)
}

// checkQueues checks the sets and queues of pods.
func (c *core[S]) checkQueues(k *checker, now instant) {
	for uid, p := range c.dirty {
		_ = c.pods[uid] == p || k.broken("dirty pod %q is forgotten", uid)
	}
	for uid, p := range c.changedSinceList {
		_ = c.pods[uid] == p || k.broken("changed pod %q is forgotten", uid)
	}
	for uid, p := range c.unexpired {
		_ = c.pods[uid] == p || k.broken("pod %q is unexpired, and forgotten", uid)
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
		_ = (p.queued != notQueued) == queued[p] || k.broken("pod %q is queued in %d, by the queues %t", p.uid, p.queued, queued[p])
	}
	for p := range c.inflight {
		_ = c.pods[p.uid] == p || k.broken("pod %q is being read, and forgotten", p.uid)
	}
	_ = len(c.inflight) <= c.cfg.InspectWorkers || k.broken("%d reads under way, at most %d", len(c.inflight), c.cfg.InspectWorkers)
	_ = len(c.affected) == 0 || k.broken("%d pods are still to be reviewed", len(c.affected))
	_ = ascending(c.expiring.all(), func(e expiry) instant { return e.at }) || k.broken("expiries are out of order")
	_ = ascending(c.candidates.all(), func(e candidate) instant { return e.deadline }) || k.broken("candidates are out of order")
	// A deadline in the past would keep the loop turning without end.
	_ = c.deadline() > now || k.broken("the next tick is due at %d, and this one is at %d", c.deadline(), now)
}

// checkLists checks the lists of everything, and the global time.
func (c *core[S]) checkLists(k *checker, now instant) {
	l := &c.lists
	_ = l.global <= l.applied && l.applied <= l.began && l.began <= now && l.finished <= now || k.broken("global %d, applied %d, began %d, finished %d, now %d", l.global, l.applied, l.began, l.finished, now)
	_ = len(c.rounds) <= 2 || k.broken("%d rounds", len(c.rounds))
	for _, r := range c.rounds {
		// Two lists may begin in one instant: the first may be over, and the global time be there, before
		// the second is.
		_ = r.began >= l.global && len(r.pending) > 0 || k.broken("the round of %d, with %d pods, is over: the global time is %d", r.began, len(r.pending), l.global)
		for p := range r.pending {
			_ = c.pods[p.uid] == p && p.asOf < r.began || k.broken("the round of %d waits for pod %q as of %d", r.began, p.uid, p.asOf)
		}
	}
	_ = ascending(slices.Values(c.rounds), func(r round) instant { return r.began }) || k.broken("rounds are out of order")
	s := &c.sched
	_ = s.base <= s.period && s.period <= s.max || k.broken("the period is %v, not within %v and %v", s.period, s.base, s.max)
	_ = s.ended <= now && s.raised <= now || k.broken("ended %d, raised %d, now %d", s.ended, s.raised, now)
}

// checkTrust checks the stream and its trust.
func (c *core[S]) checkTrust(k *checker, now instant) {
	_ = c.conn.connected <= now && (!c.connected() || c.conn.everConnected) || k.broken("%+v at %d", c.conn, now)
	_ = c.eventsSince <= now && (c.eventsSince == 0 || c.conn.everConnected) || k.broken("events are known since %d: %+v", c.eventsSince, c.conn)
	_ = !c.overruled.unsettled && c.overruled.last <= now || k.broken("overruled claims are not settled: %+v", c.overruled)
	_ = c.overruled.unreported == 0 || now < c.overruled.report || k.broken("%d overruled claims are due to be reported", c.overruled.unreported)
	_ = c.connected() || c.sched.period == c.cfg.RelistBase || k.broken("the stream is down, and the period is %v", c.sched.period)
	for e := range c.candidates.all() {
		_ = e.found <= now && e.stream <= e.found || k.broken("candidate %+v at %d", e, now)
	}
}

// ascending says that the keys never decrease.
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
