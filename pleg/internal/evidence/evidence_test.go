// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"slices"
	"strconv"
	"testing"
)

// TestRule1ARepeatedClaimKeepsItsGrace: a stream that repeats a false claim for ever would otherwise
// keep reads from ever overruling it. The search ends all faults before it looks, and cannot tell.
func TestRule1ARepeatedClaimKeepsItsGrace(t *testing.T) {
	e := Evidence{Seen: Running, To: 1}
	for now := Time(2); now < 10; now++ {
		e = e.claimed(Exited, now)
	}
	if e.At != 2 {
		t.Errorf("the claim counts as first told at %d, want 2", e.At)
	}
	if e, v := e.weigh(Running, 20, 5, 30); e.Claim != None || v != overruled {
		t.Errorf("a read begun a grace later leaves claim %v, verdict %b", e.Claim, v)
	}
}

// TestRule7AnAckIsNeverBackward: the return of a call may be applied after a read that looked later.
func TestRule7AnAckIsNeverBackward(t *testing.T) {
	e := Evidence{Seen: Exited, To: 5}
	if got := e.acked(Running, 6); got != e {
		t.Errorf("an ack of an earlier phase changes %+v to %+v", e, got)
	}
	if got := e.acked(Gone, 6); got.Seen != Gone || got.To != 6 {
		t.Errorf("an ack of a later phase leaves %+v", got)
	}
}

// TestVerdicts holds what the core counts and what costs the stream its trust.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name  string
		e     Evidence
		shows Phase
		want  verdict
	}{
		{"a first read finds the ID", Evidence{}, Running, found},
		{"a read bears a claim out", Evidence{Seen: Running, To: 1, Claim: Exited, At: 2}, Exited, 0},
		{"a read finds more than was told", Evidence{Seen: Created, To: 1, Claim: Running, At: 2}, Exited, found},
		{"a read overrules a claim", Evidence{Seen: Running, To: 1, Claim: Exited, At: 2}, Running, overruled},
		{"a read takes another read back", Evidence{Seen: Exited, To: 1}, Running, regressed},
		{"UNKNOWN does neither", Evidence{Seen: Running, To: 1, Claim: Exited, At: 2}, Unknown, 0},
		{"the end of an ID is found", Evidence{Seen: Running, To: 1}, Gone, found},
	} {
		if _, v := c.e.weigh(c.shows, 20, 10, 30); v != c.want {
			t.Errorf("%s: verdict %03b, want %03b", c.name, v, c.want)
		}
	}
}

// TestAlignIsLinear compares a report in another order with the record of many IDs.
func TestAlignIsLinear(t *testing.T) {
	const n = 20_000
	var p Pod
	var r Read
	for i := range n {
		r.Shows = append(r.Shows, Shown{Name: "c" + strconv.Itoa(i), Phase: Running})
	}
	r.From, r.Cut = 1, 0
	if e := p.OnInspected(r, 2); len(e.Changes) != n {
		t.Fatalf("%d changes, want %d", len(e.Changes), n)
	}
	slices.Reverse(r.Shows)
	r.From = 3
	if e := p.OnListed(r, false, 4); !e.Observed || len(p.IDs) != n || p.Doubt() != Settled {
		t.Errorf("the same in another order: observed %t, %d IDs, %v", e.Observed, len(p.IDs), p.Doubt())
	}
	if err := p.Check(4); err != nil {
		t.Error(err)
	}
}

// TestAReportInWhichAnIDIsTwice: the later phase stands.
func TestAReportInWhichAnIDIsTwice(t *testing.T) {
	var p Pod
	p.OnInspected(Read{From: 1, Shows: []Shown{{Name: "c", Phase: Exited}, {Name: "c", Phase: Running}, {}}}, 2)
	if len(p.IDs) != 1 || p.IDs[0].Cached != Exited {
		t.Errorf("%+v", p.IDs)
	}
}

// TestChangesSayWhatWasTold: Watch learns the runtime's stamp of the claim that was first.
func TestChangesSayWhatWasTold(t *testing.T) {
	var p Pod
	p.OnClaim(Shown{Name: "c", Phase: Running}, 77, 1)
	if p.Doubt() != Unconfirmed {
		t.Fatalf("doubt %v", p.Doubt())
	}
	e := p.OnInspected(Read{From: 2, Cut: 0, Shows: []Shown{{Name: "c", Phase: Running}}}, 3)
	want := []Change{{ID: Shown{Name: "c", Phase: Running}, Events: Started, Stamp: 77}}
	if !slices.Equal(e.Changes, want) || len(e.Found) != 0 {
		t.Errorf("changes %+v, found %v", e.Changes, e.Found)
	}
	if served, ok := p.Served(nil); !ok || len(served) != 1 {
		t.Errorf("served %v, %t", served, ok)
	}
	e = p.OnInspected(Read{From: 4, Cut: 0}, 5)
	if len(e.Changes) != 1 || e.Changes[0].Events != Died|Removed || e.Changes[0].Stamp != 0 || len(e.Found) != 1 {
		t.Errorf("changes %+v, found %v", e.Changes, e.Found)
	}
	p.Forget(6, 3)
	if len(p.IDs) != 0 {
		t.Errorf("remembered: %+v", p.IDs)
	}
}
