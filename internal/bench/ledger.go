// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/internal/printable"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/pleg/plegtest"
)

// Change is a change of state in the runtime.
type Change struct {
	Pod string `json:"pod"`
	ID  string `json:"id"`
	// Name is the container's, if the observer knows it.
	Name    string     `json:"name,omitempty"`
	Sandbox bool       `json:"sandbox,omitempty"`
	State   pleg.Phase `json:"state"`
	// At is a Stamp of the change.
	At int64 `json:"at"`
	// Inexact: the change happened at the time or somewhat before, and cannot be timed.
	Inexact bool `json:"inexact,omitempty"`
	// Told: the runtime sent an event for the change.
	Told bool `json:"told,omitempty"`
}

// Item returns the changed item as package pleg names it.
func (c Change) Item() pleg.Item {
	return Item{
		ID:      c.ID,
		Name:    c.Name,
		Sandbox: c.Sandbox,
		State:   c.State,
	}.item()
}

// Delivery is an event delivered by Watch.
type Delivery struct {
	Pod, ID string
	Sandbox bool
	// Type is the event's. A PodSync has no ID.
	Type pleg.EventType
	// Claim: the runtime's stream reported the change first; otherwise a read did.
	Claim bool
	// At is a Stamp of the receipt by the consumer, Seen that of when the generator learned of the
	// change, Stamp the runtime's stamp of the reporting event, 0 after a read.
	At, Seen, Stamp int64
	// FinishedAt is the container's, in the cache at the receipt; only a worker that checks fills it.
	FinishedAt int64
}

// State returns the phase that the event announces, PhaseUnknown for a PodSync.
func (d Delivery) State() pleg.Phase {
	phase, _ := plegtest.PhaseOf(d.Type)
	return phase
}

// Ledger matches the history of the runtime with the events of Watch, and has their order checked.
// Each change takes about 200 bytes until dropped.
type Ledger struct {
	// order judges the order of the events.
	order plegtest.Checker
	ids   map[string]*account
	// syncs are the times of the PodSyncs of each pod.
	syncs map[string][]int64

	deliveries int
	path       []passage
}

// passage is an event's way from the runtime's stamp to Watch.
type passage struct {
	at   int64
	took time.Duration
}

// account is the knowledge of an ID. Arrays are indexed by phase.
type account struct {
	pod      string
	happened [pleg.PhaseRemoved + 1]int64
	inexact  [pleg.PhaseRemoved + 1]bool
	told     [pleg.PhaseRemoved + 1]int64
	last     pleg.Phase
}

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
	phase := c.State
	if phase == pleg.PhaseUnknown || c.ID == "" {
		return
	}
	a := l.account(c.Pod, c.ID)
	if a.happened[phase] == 0 {
		a.happened[phase] = c.At
		a.inexact[phase] = c.Inexact
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
	l.order.Event(pleg.Event{Pod: cache.UID(d.Pod), ID: d.ID, Type: d.Type}, plegtest.Pod{})
	phase := d.State()
	a := l.account(d.Pod, d.ID)
	if a.told[phase] == 0 {
		a.told[phase] = d.At
	}
	a.last = max(a.last, phase)
}

// Complaints returns the first few violations of the order, for people.
func (l *Ledger) Complaints() []string { return Complaints(&l.order) }

// Complaints returns the first few violations that a checker has found, for people.
func Complaints(c *plegtest.Checker) (lines []string) {
	for _, v := range c.Violations() {
		lines = append(lines, printable.Text(v.Error()))
	}
	return lines
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
	// wanted deliveries; Stamps are these stamps, in the same order.
	Path   []time.Duration
	Stamps []int64
	// Begins are the stamps of the changes in Latency, in the same order, for a timeline.
	Begins []int64
}

// Judge sums up the changes with wanted stamps.
func (l *Ledger) Judge(wanted func(at int64) bool) Verdict {
	v := Verdict{
		Deliveries: l.deliveries,
		Duplicates: l.order.Count(plegtest.Repeated),
		OutOfOrder: l.order.Count(plegtest.Disordered),
	}
	for _, p := range l.path {
		if wanted(p.at) {
			v.Path = append(v.Path, p.took)
			v.Stamps = append(v.Stamps, p.at-int64(p.took))
		}
	}
	for _, s := range l.syncs {
		v.Syncs += len(s)
	}
	for _, a := range l.ids {
		for phase := pleg.PhaseRunning; phase <= pleg.PhaseRemoved; phase++ {
			at := a.happened[phase]
			if at == 0 || !wanted(at) {
				continue
			}
			v.Changes++
			told := l.toldOf(a, phase)
			if told == 0 {
				v.Unseen++
				if a.last > 0 {
					v.Undelivered++
				}
				continue
			}
			if !a.inexact[phase] {
				v.Latency = append(v.Latency, max(0, time.Duration(told-at)))
				v.Begins = append(v.Begins, at)
			}
		}
	}
	return v
}

// toldOf returns when the change was told, 0 if never.
func (l *Ledger) toldOf(a *account, phase pleg.Phase) int64 {
	var first int64
	for r := phase; r <= pleg.PhaseRemoved; r++ {
		if t := a.told[r]; t != 0 && (first == 0 || t < first) {
			first = t
		}
	}
	for _, t := range l.syncs[a.pod] {
		if t >= a.happened[phase] && (first == 0 || t < first) {
			return t
		}
	}
	return first
}
