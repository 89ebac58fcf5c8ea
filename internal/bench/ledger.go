// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"time"
)

// Change is a change of state in the runtime.
type Change struct {
	Pod     string `json:"pod"`
	ID      string `json:"id"`
	Sandbox bool   `json:"sandbox,omitempty"`
	State   State  `json:"state"`
	// At is a Stamp of the change.
	At int64 `json:"at"`
	// Inexact: the change happened at the time or somewhat before, and cannot be timed.
	Inexact bool `json:"inexact,omitempty"`
	// Told: the runtime sent an event for the change.
	Told bool `json:"told,omitempty"`
}

// Delivery is an event delivered by Watch.
type Delivery struct {
	Pod, ID string
	Sandbox bool
	// State is the meaning of the event for the ID; Unknown for a PodSync, which has no ID.
	State State
	// Claim: the runtime's stream reported the change first; otherwise a read did.
	Claim bool
	// At is a Stamp of the receipt by the consumer, Seen that of when the generator learned of the
	// change, Stamp the runtime's stamp of the reporting event, 0 after a read.
	At, Seen, Stamp int64
	// FinishedAt is the container's, in the cache at the receipt; only a worker that checks fills it.
	FinishedAt int64
}

// Ledger matches the history of the runtime with the events of Watch, and checks Watch's promise
// for each container: its events are a subsequence of Started, Died, Removed, each at most once.
// Each change takes about 200 bytes until dropped.
type Ledger struct {
	ids map[string]*account
	// syncs are the times of the PodSyncs of each pod.
	syncs map[string][]int64

	deliveries, duplicates, outOfOrder int
	path                               []passage
	// Complaints are the first few violations, for people.
	Complaints []string
}

// passage is an event's way from the runtime's stamp to Watch.
type passage struct {
	at   int64
	took time.Duration
}

// account is the knowledge of an ID. Arrays are indexed by State.Rank.
type account struct {
	pod      string
	happened [5]int64
	inexact  [5]bool
	told     [5]int64
	last     int
}

const maxComplaints = 20

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{ids: make(map[string]*account), syncs: make(map[string][]int64)}
}

func (l *Ledger) account(pod, id string) *account {
	a := l.ids[id]
	if a == nil {
		a = &account{pod: pod}
		l.ids[id] = a
	}
	return a
}

// Happened enters a change of the runtime. Only the first of a state counts.
func (l *Ledger) Happened(c Change) {
	rank := c.State.Rank()
	if rank == 0 || c.ID == "" {
		return
	}
	a := l.account(c.Pod, c.ID)
	if a.happened[rank] == 0 {
		a.happened[rank], a.inexact[rank] = c.At, c.Inexact
	}
}

// Delivered enters an event of Watch, in the order of delivery.
func (l *Ledger) Delivered(d Delivery) {
	l.deliveries++
	if d.Claim && d.Stamp > 0 {
		l.path = append(l.path, passage{d.At, max(0, time.Duration(d.At-d.Stamp))})
	}
	if d.ID == "" {
		l.syncs[d.Pod] = append(l.syncs[d.Pod], d.At)
		return
	}
	rank := d.State.Rank()
	a := l.account(d.Pod, d.ID)
	switch {
	case a.told[rank] != 0:
		l.duplicates++
		l.complain("%s of %s was delivered twice", d.State, d.ID)
		return
	case rank < a.last:
		l.outOfOrder++
		l.complain("%s of %s was delivered after a later state", d.State, d.ID)
	}
	a.told[rank] = d.At
	a.last = max(a.last, rank)
}

func (l *Ledger) complain(format string, args ...any) {
	if len(l.Complaints) < maxComplaints {
		l.Complaints = append(l.Complaints, fmt.Sprintf(format, args...))
	}
}

// Verdict is the evaluation of a ledger.
type Verdict struct {
	// Deliveries counts the events of Watch, Syncs the PodSyncs among them.
	Deliveries, Syncs      int
	Duplicates, OutOfOrder int
	// Changes counts the requested changes to Running, Exited and Removed.
	Changes int
	// Unseen counts changes without a report: no event of the ID at this state or later, no PodSync
	// of its pod afterwards. Such an ID came and went between two reads. Undelivered counts those
	// with an earlier event of the ID: Watch owes them.
	Unseen, Undelivered int
	// Latency is the time from each change to the first event of this or a later state of the same
	// ID, or to a PodSync of its pod.
	Latency []time.Duration
	// Path is the time from the runtime's stamp of an event to the delivery of its first report, for
	// deliveries with wanted stamps.
	Path []time.Duration
	// Begins are the stamps of the changes in Latency, in the same order, for a timeline.
	Begins []int64
}

// Judge sums up the changes with wanted stamps.
func (l *Ledger) Judge(wanted func(at int64) bool) Verdict {
	v := Verdict{Deliveries: l.deliveries, Duplicates: l.duplicates, OutOfOrder: l.outOfOrder}
	for _, p := range l.path {
		if wanted(p.at) {
			v.Path = append(v.Path, p.took)
		}
	}
	for _, s := range l.syncs {
		v.Syncs += len(s)
	}
	for _, a := range l.ids {
		for rank := Running.Rank(); rank <= Removed.Rank(); rank++ {
			at := a.happened[rank]
			if at == 0 || !wanted(at) {
				continue
			}
			v.Changes++
			told := l.toldOf(a, rank)
			if told == 0 {
				v.Unseen++
				if a.last > 0 {
					v.Undelivered++
				}
				continue
			}
			if !a.inexact[rank] {
				v.Latency = append(v.Latency, max(0, time.Duration(told-at)))
				v.Begins = append(v.Begins, at)
			}
		}
	}
	return v
}

// toldOf returns when the change was told, 0 if never.
func (l *Ledger) toldOf(a *account, rank int) int64 {
	var first int64
	for r := rank; r <= Removed.Rank(); r++ {
		if t := a.told[r]; t != 0 && (first == 0 || t < first) {
			first = t
		}
	}
	for _, t := range l.syncs[a.pod] {
		if t >= a.happened[rank] && (first == 0 || t < first) {
			return t
		}
	}
	return first
}
