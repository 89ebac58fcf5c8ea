// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"strings"
	"testing"
	"time"
)

// invariantWatcher is a Metrics that fails a test when the core's invariants do not hold.
type invariantWatcher struct {
	noMetrics
	t testing.TB
}

// InvariantBroken implements invariantObserver.
func (w invariantWatcher) InvariantBroken(err error) { w.t.Errorf("invariant: %v", err) }

// TestInvariantsConvict damages a core that is at rest, one field at a time: each check must
// notice.
func TestInvariantsConvict(t *testing.T) {
	type world struct {
		c *core[status]
		p *pod
		x *item
	}
	for _, damage := range []struct {
		want string
		do   func(w world)
	}{
		{"is filed as", func(w world) { w.p.uid = "other" }},
		{"in the index", func(w world) { delete(w.c.index, w.x.id) }},
		{"not where it should be", func(w world) { w.x.at++ }},
		{"unconfirmed IDs in pods", func(w world) { w.c.unconfirmed++ }},
		{"with a cache entry", func(w world) { w.p.hasStatus = false }},
		{"an instant is", func(w world) { w.p.asOf = never }},
		{"to be", func(w world) { w.p.asOf++ }},
		{"its last read failed", func(w world) { w.p.failed = true }},
		{"that is needless", func(w world) { w.c.guard.tombstones["gone"] = 1 }},
		{"the cache has pod \"gone\" as of", func(w world) { w.c.guard.tombstones["gone"] = w.c.lists.global + 1 }},
		{"have not been carried out", func(w world) { w.c.todo.emit() }},
		{"has no delay after failures", func(w world) { w.p.failed = true }},
		{"its own, and foreign", func(w world) { w.p.foreign = true }},
		{"and nobody looks", func(w world) { w.p.teardown.step = 1 }},
		{"nothing to reread for", func(w world) { w.p.reread.step = 1 }},
		{"still to be reviewed", func(w world) { w.p.affected = true }},
		{"its read began", func(w world) { w.c.inflight[w.p] = flight{} }},
		{"needs a read, and is not dirty", func(w world) { w.p.want = 1 }},
		{"will not be looked at", func(w world) { w.c.dirty[w.p.uid] = w.p }},
		{"and not in the heap", func(w world) { w.p.laterAt = 7 }},
		{"is not among the changed", func(w world) { w.x.listed = PhaseCreated }},
		{"is unconfirmed, and known", func(w world) { w.p.unconfirmed = map[string]unconfirmedID{w.x.id: {at: 1}} }},
		{"caused by", func(w world) { w.x.byClaim = true }},
		{"taken back, by", func(w world) { w.x.rolledBack, w.x.byClaim = true, true }},
		{"and no event", func(w world) { w.x.mask = 0 }},
		{"by kind and phase", func(w world) { w.c.phases[Container][PhaseRunning]++ }},
		{"a ready sandbox", func(w world) { w.c.running++ }},
		{"by the queues", func(w world) { w.p.queued = inReady }},
		{"dirty pod", func(w world) { w.c.dirty["gone"] = &pod{uid: "gone"} }},
		{"the next tick is due", func(w world) { w.c.sched.asked, w.c.sched.askedNow = 1, true }},
		{"global", func(w world) { w.c.lists.global = never }},
		{"is over", func(w world) { w.c.rounds = []round{{}} }},
		{"the period is", func(w world) { w.c.sched.period = 0 }},
		{"the stream is down", func(w world) { w.c.conn.state, w.c.sched.period = StreamBackoff, 2*time.Second }},
		{"overruled claims are not settled", func(w world) { w.c.overruled.unsettled = true }},
	} {
		s := newSmall()
		s.rest()
		if err := s.invariants(s.now); err != nil || len(s.wrong) > 0 {
			t.Fatalf("before any damage: %v, %v", err, s.wrong)
		}
		damage.do(world{s.core, s.core.pods["a"], s.core.index["c0"]})
		if err := s.invariants(s.now); err == nil || !strings.Contains(err.Error(), damage.want) {
			t.Errorf("damage that should be told as %q is told as %v", damage.want, err)
		}
	}
}
