// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// observer checks every status before its storage, and every event against the cache at delivery.
// The order of the events is checked by the parent's [bench.Ledger]. The mutex of facts guards
// ranks.
type observer struct {
	facts *facts
	ranks map[string]int // of the latest stored state, or Removed once delivered
}

func newObserver(f *facts) *observer { return &observer{facts: f, ranks: make(map[string]int)} }

// storing is called with each status before its storage: no state goes back.
func (o *observer) storing(next bench.Pod) {
	o.facts.mu.Lock()
	defer o.facts.mu.Unlock()
	for _, i := range next.Items {
		if rank := i.State.Rank(); i.State != bench.Unknown && rank < o.ranks[i.ID] {
			o.facts.complain("pod %s: %s went back to %s in the cache", next.UID, i.ID, i.State)
		} else {
			o.ranks[i.ID] = max(rank, o.ranks[i.ID])
		}
	}
}

// delivered is called with each event and the status of its pod in the cache, which must show the
// change already. It returns the end of the container, in nanoseconds, if the status has it.
func (o *observer) delivered(e pleg.Event, status bench.Pod) (finished int64) {
	told, shown := stateOfEvent[e.Type], bench.Find([]bench.Pod{status}, string(e.Pod), e.ID)
	o.facts.mu.Lock()
	defer o.facts.mu.Unlock()
	switch {
	case told == "":
		o.facts.complain("pod %s: unknown event type %q", e.Pod, e.Type)
	case told == bench.Removed:
		o.ranks[e.ID] = told.Rank()
		if shown.ID != "" {
			o.facts.complain("pod %s: %s of %s was delivered while the cache shows it %s", e.Pod, told, e.ID, shown.State)
		}
	case shown.ID != "" && shown.State.Rank() < told.Rank():
		o.facts.complain("pod %s: %s of %s was delivered while the cache shows it %s", e.Pod, told, e.ID, shown.State)
	}
	return shown.FinishedAt
}
