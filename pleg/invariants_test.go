// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
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

// TestInvariantsConvict damages a core at rest, one field at a time: a check notices each damage.
func TestInvariantsConvict(t *testing.T) {
	for _, damage := range []struct {
		want string
		do   func(c *core[benchStatus], p *pod, x *item)
	}{
		{"filed under another UID", func(c *core[benchStatus], p *pod, x *item) { p.uid = "other" }},
		{"is filed as", func(c *core[benchStatus], p *pod, x *item) { c.index["other"] = x }},
		{"item", func(c *core[benchStatus], p *pod, x *item) { x.shown = PhaseCreated }},
		{"expectations in pods", func(c *core[benchStatus], p *pod, x *item) { c.expected++ }},
		{"own calls in pods", func(c *core[benchStatus], p *pod, x *item) { p.calls++ }},
		{"counted", func(c *core[benchStatus], p *pod, x *item) { c.phases[Container][PhaseRunning]++ }},
		{"counted", func(c *core[benchStatus], p *pod, x *item) { c.running++ }},
		{"is not dirty", func(c *core[benchStatus], p *pod, x *item) { p.want = 1 }},
		{"dirty for nothing", func(c *core[benchStatus], p *pod, x *item) { c.dirty[p] = struct{}{} }},
		{"not where its record says", func(c *core[benchStatus], p *pod, x *item) { p.later = 7 }},
		{"not where its record says", func(c *core[benchStatus], p *pod, x *item) { p.queued = true }},
		{"against its record", func(c *core[benchStatus], p *pod, x *item) { c.differ[p] = struct{}{} }},
		{"in the future", func(c *core[benchStatus], p *pod, x *item) { p.forced = never }},
		{"needs a read", func(c *core[benchStatus], p *pod, x *item) { p.entry = failedEntry }},
		{"no status, which shows IDs", func(c *core[benchStatus], p *pod, x *item) { p.entry = noEntry }},
		{"fewer calls than none", func(c *core[benchStatus], p *pod, x *item) { p.creating = 1 }},
		{"remembered for nothing", func(c *core[benchStatus], p *pod, x *item) { c.ensure("ghost") }},
		{"and forgotten", func(c *core[benchStatus], p *pod, x *item) {
			c.inflight[&pod{uid: "ghost"}] = &flight{began: 1, started: 1}
		}},
		{"global time", func(c *core[benchStatus], p *pod, x *item) { c.lists.global = c.lists.applied + 1 }},
		{"waits for pod", func(c *core[benchStatus], p *pod, x *item) {
			c.rounds = []round{{began: p.asOf, pending: map[*pod]struct{}{p: {}}}}
		}},
		{"is over", func(c *core[benchStatus], p *pod, x *item) { c.rounds = []round{{}} }},
		{"schedule", func(c *core[benchStatus], p *pod, x *item) { c.sched.period = c.sched.max + 1 }},
		{"the stream is down", func(c *core[benchStatus], p *pod, x *item) { c.conn.state, c.conn.deadline = StreamBackoff, never }},
		{"are not settled", func(c *core[benchStatus], p *pod, x *item) { c.refuted.n = 1 }},
		{"the loop would spin", func(c *core[benchStatus], p *pod, x *item) { c.sched.ended = 1 }},
	} {
		d := newDeck(1)
		d.step(time.Minute)
		if err := d.invariants(d.now); err != nil {
			t.Fatalf("at rest: %v", err)
		}
		c := d.core
		p := c.pods[d.pods[0].UID]
		damage.do(c, p, p.items[0])
		if err := d.invariants(d.now); err == nil || !strings.Contains(err.Error(), damage.want) {
			t.Errorf("want %q, got %v", damage.want, err)
		}
	}
}

// TestAnIDOfTwoPods holds that an own call that names only an ID finds the pod. Reads have shown
// the ID in two pods, and then in one.
func TestAnIDOfTwoPods(t *testing.T) {
	d := newDeck(2)
	ended := exited(d.pods[0], 0)
	ended.Items[0].Phase = PhaseExited
	sandbox, both := ended.Items[0], d.pods[1]
	both.Items = append(slices.Clone(both.Items), sandbox)
	d.list(Listing{Pods: []Pod{ended, both}})
	d.list(Listing{Pods: []Pod{ended, d.pods[1]}})
	removed := Item{ID: sandbox.ID, Kind: Sandbox, Phase: PhaseRemoved}
	call := ack{call: ownCall{OwnCall: OwnCall{ID: sandbox.ID}, serial: 1, began: 1}, at: d.now, returned: true, items: []Item{removed}}
	d.tell(input[benchStatus]{kind: inputAcks, acks: []ack{call}}, d.now)
	if p := d.core.pods[ended.UID]; len(d.core.early) != 0 || !p.unmet() {
		t.Errorf("%d reports of no known pod, of the pod %+v", len(d.core.early), p.expected)
	}
	if err := d.invariants(d.now); err != nil {
		t.Error(err)
	}
}
