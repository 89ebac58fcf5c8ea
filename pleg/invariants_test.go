// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
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
		{"expectations in pods", func(c *core[benchStatus], p *pod, x *item) { c.evidence.expected++ }},
		{"of them indexed", func(c *core[benchStatus], p *pod, x *item) { p.expected.at = map[reportKey]int{} }},
		{"own calls in pods", func(c *core[benchStatus], p *pod, x *item) { p.calls++ }},
		{"counted", func(c *core[benchStatus], p *pod, x *item) { c.phases[Container][PhaseRunning]++ }},
		{"counted", func(c *core[benchStatus], p *pod, x *item) { c.running++ }},
		{"is not dirty", func(c *core[benchStatus], p *pod, x *item) { p.want = 1 }},
		{"dirty for nothing", func(c *core[benchStatus], p *pod, x *item) { c.reads.dirty[p] = struct{}{} }},
		{"not where its record says", func(c *core[benchStatus], p *pod, x *item) { p.later = 7 }},
		{"not where its record says", func(c *core[benchStatus], p *pod, x *item) { p.queued = true }},
		{"queued since", func(c *core[benchStatus], p *pod, x *item) { c.reads.lanes[0].push(waiter[*pod]{pod: p, since: 7}) }},
		{"against its record", func(c *core[benchStatus], p *pod, x *item) { c.lists.differ[p] = struct{}{} }},
		{"in the future", func(c *core[benchStatus], p *pod, x *item) { p.forced = never }},
		{"needs a read", func(c *core[benchStatus], p *pod, x *item) { p.entry = failedEntry }},
		{"no status, which shows IDs", func(c *core[benchStatus], p *pod, x *item) { p.entry = noEntry }},
		{"other calls than it has", func(c *core[benchStatus], p *pod, x *item) { p.creating = 1 }},
		{"remembered for nothing", func(c *core[benchStatus], p *pod, x *item) { c.ensure("ghost") }},
		{"of them limited", func(c *core[benchStatus], p *pod, x *item) { c.reads.lanes[laneAgain].begin(1) }},
		{"and forgotten", func(c *core[benchStatus], p *pod, x *item) {
			c.reads.lanes[laneFirst].begin(1)
			c.reads.inflight[&pod{uid: "ghost"}] = &flight{began: 1, started: 1}
		}},
		{"global time", func(c *core[benchStatus], p *pod, x *item) { c.lists.global = c.lists.appliedBegan + 1 }},
		{"waits for pod", func(c *core[benchStatus], p *pod, x *item) {
			c.lists.rounds = []round{{began: p.asOf, pending: map[*pod]struct{}{p: {}}}}
		}},
		{"is over", func(c *core[benchStatus], p *pod, x *item) { c.lists.rounds = []round{{}} }},
		{"schedule", func(c *core[benchStatus], p *pod, x *item) { c.trust.sched.period = c.trust.sched.longest + 1 }},
		{"the stream is down", func(c *core[benchStatus], p *pod, x *item) { c.stream.state, c.stream.deadline = StreamBackoff, never }},
		{"are not settled", func(c *core[benchStatus], p *pod, x *item) { c.trust.refuted.n = 1 }},
		{"the rota has", func(c *core[benchStatus], p *pod, x *item) { c.rota.pods.items = make([]*pod, 9) }},
		{"the loop would spin", func(c *core[benchStatus], p *pod, x *item) { c.trust.sched.ended = 1 }},
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
	if p := d.core.pods[ended.UID]; len(d.core.evidence.early) != 0 || !p.unmet() {
		t.Errorf("%d reports of no known pod, of the pod %+v", len(d.core.evidence.early), p.expected)
	}
	if err := d.invariants(d.now); err != nil {
		t.Error(err)
	}
}

// claimsOf returns a batch with a claim of a pod and the IDs of its payload, none of them shown by
// a read.
func claimsOf(uid cache.UID, ids int) *batch[benchStatus] {
	pc := &podClaims[benchStatus]{pod: uid, claims: 1}
	for i := range ids {
		pc.payload = append(pc.payload, Item{ID: fmt.Sprintf("made-%d", i), Phase: PhaseRunning})
	}
	pc.latest = []latestClaim{{item: pc.payload[0]}}
	return &batch[benchStatus]{pods: []*podClaims[benchStatus]{pc}, claims: 1}
}

// TestManyExpectations holds that many expectations of a pod are indexed until a read resolves
// them: a payload may name any number of IDs.
func TestManyExpectations(t *testing.T) {
	d := newDeck(1)
	uid := d.pods[0].UID
	b := claimsOf(uid, 2*defaultUnconfirmedMax)
	d.claims(b, d.now)
	p := d.core.pods[uid]
	if p.expected.len() != defaultUnconfirmedMax || len(p.expected.at) != p.expected.len() {
		t.Errorf("%d expectations, %d indexed, want %d", p.expected.len(), len(p.expected.at), defaultUnconfirmedMax)
	}
	if err := d.invariants(d.now); err != nil {
		t.Error(err)
	}
	d.core.resolve(settlement{pod: p, began: d.now.add(time.Minute)})
	if p.expected.len() != 0 || p.expected.at != nil {
		t.Errorf("after a read: %d expectations, %d indexed", p.expected.len(), len(p.expected.at))
	}
}

// TestAnIDOfThreePods holds that the pod of an ID that reads show in several pods follows from the
// pods and from nothing else.
func TestAnIDOfThreePods(t *testing.T) {
	for range 20 {
		d := newDeck(4)
		shared := d.pods[3].Items[0]
		for i := range 3 {
			d.pods[i].Items = append(slices.Clone(d.pods[i].Items), shared)
		}
		d.list(Listing{Pods: d.pods})
		last := slices.IndexFunc(d.pods, func(p Pod) bool { return p.UID == d.core.index[shared.ID].pod.uid })
		d.pods[last].Items = slices.DeleteFunc(slices.Clone(d.pods[last].Items), func(it Item) bool { return it.ID == shared.ID })
		d.list(Listing{Pods: d.pods})
		if got, want := d.core.index[shared.ID].pod.uid, d.pods[0].UID; got != want {
			t.Fatalf("the ID is filed under pod %q, want %q", got, want)
		}
	}
}

// TestACallOfAnIDExpectedInTwoPods holds that a call that names an ID expected in two pods counts
// for the first of them, always the same.
func TestACallOfAnIDExpectedInTwoPods(t *testing.T) {
	for range 20 {
		d := newDeck(8)
		for serial, p := range d.pods {
			made := Item{ID: "made", Kind: Container, Phase: PhaseCreated}
			call := ownCall{OwnCall: OwnCall{Pod: PodRef{UID: p.UID}}, serial: uint64(serial + 1), began: d.now}
			d.tell(input[benchStatus]{kind: inputAcks, acks: []ack{{call: call, at: d.now}}}, d.now)
			d.tell(input[benchStatus]{kind: inputAcks, acks: []ack{{call: call, at: d.now, returned: true, items: []Item{made}}}}, d.now)
		}
		if got := d.core.podOf(&ownCall{OwnCall: OwnCall{ID: "made"}}, d.core.reads.dirty); got == nil || got.uid != d.pods[0].UID {
			t.Fatalf("the call is of pod %+v, want %q", got, d.pods[0].UID)
		}
	}
}
