// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// maxViolations bounds the violations kept in words; all are counted.
const maxViolations = 200

// An observer checks every status and event for violations. mu guards all its fields.
type observer struct {
	mu         sync.Mutex
	phases     map[string]pleg.Phase // the latest stored phase, or Removed once delivered
	told       map[string]pleg.Phase // the latest delivered phase
	events     []Event
	violations []string
	count      int
}

func newObserver() *observer {
	return &observer{phases: map[string]pleg.Phase{}, told: map[string]pleg.Phase{}}
}

func (o *observer) violate(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.violateLocked(format, args...)
}

func (o *observer) violateLocked(format string, args ...any) {
	o.count++
	if len(o.violations) < maxViolations {
		o.violations = append(o.violations, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// storing is called with each status before its storage. Invariant 1: a phase never goes back.
func (o *observer) storing(next *cri.PodStatus) {
	if next == nil {
		o.violate("a nil status was about to be stored")
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, phase := range phasesOf(next) {
		if before := o.phases[id]; phase < before && phase != pleg.PhaseUnknown {
			o.violateLocked("pod %s: %s went back from %v to %v in the cache", next.UID(), id, before, phase)
			continue
		}
		o.phases[id] = phase
	}
}

// rankOf is the phase of an event type.
var rankOf = map[pleg.EventType]pleg.Phase{
	pleg.ContainerStarted: pleg.PhaseRunning,
	pleg.ContainerDied:    pleg.PhaseExited,
	pleg.ContainerRemoved: pleg.PhaseRemoved,
}

// delivered is called with each event read from Watch and the cache's content at the moment. Each
// event at most once and forward; the cache shows the change first.
func (o *observer) delivered(e pleg.Event, status *cri.PodStatus) {
	now := time.Now()
	if status == nil {
		o.violate("pod %s: the cache returned nil", e.Pod)
		return
	}
	phases := phasesOf(status)
	var finished time.Time
	for _, c := range status.Containers() {
		if c.ID == e.ID {
			finished = c.FinishedAt
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, Event{
		Pod: string(e.Pod), Type: e.Type, ID: e.ID, Kind: e.Kind.String(), Cause: e.Cause.String(),
		Stamp: e.Stamp, Seen: e.Seen, At: now, FinishedAt: finished,
	})
	told, ok := rankOf[e.Type]
	if !ok {
		if e.Type != pleg.PodSync {
			o.violateLocked("pod %s: unknown event type %q", e.Pod, e.Type)
		}
		return
	}
	if before := o.told[e.ID]; told <= before {
		o.violateLocked("pod %s: %s of %s was told after %v was", e.Pod, e.Type, e.ID, before)
	}
	o.told[e.ID] = told
	shown, there := phases[e.ID]
	switch {
	case told == pleg.PhaseRemoved && there:
		o.violateLocked("pod %s: %s of %s was told while the cache shows it %v", e.Pod, e.Type, e.ID, shown)
	case told != pleg.PhaseRemoved && there && shown < told:
		o.violateLocked("pod %s: %s of %s was told while the cache shows it %v", e.Pod, e.Type, e.ID, shown)
	}
	if told == pleg.PhaseRemoved {
		o.phases[e.ID] = pleg.PhaseRemoved
	}
}

func (o *observer) all() []Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.events)
}

func (o *observer) said() (violations []string, count, events int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.violations), o.count, len(o.events)
}

// phasesOf is every ID of a status with its phase.
func phasesOf(s *cri.PodStatus) map[string]pleg.Phase {
	phases := map[string]pleg.Phase{}
	for _, sandbox := range s.Sandboxes() {
		phases[sandbox.ID] = sandbox.Phase
	}
	for _, container := range s.Containers() {
		phases[container.ID] = container.Phase
	}
	return phases
}
