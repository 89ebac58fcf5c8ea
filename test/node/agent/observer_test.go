// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestObserverSeesViolations checks the observer itself: a blind observer would pass every
// scenario.
func TestObserverSeesViolations(t *testing.T) {
	event := func(kind pleg.EventType) pleg.Event { return pleg.Event{Pod: "u", ID: "c", Type: kind} }
	empty := cri.EmptyStatus("u")
	tests := []struct {
		name string
		do   func(*observer)
		want string // part of the only violation; empty: none
	}{
		{"forward", func(o *observer) {
			o.delivered(event(pleg.ContainerStarted), empty)
			o.delivered(event(pleg.ContainerDied), empty)
			o.delivered(event(pleg.ContainerRemoved), empty)
		}, ""},
		{"a PodSync tells no phase", func(o *observer) {
			o.delivered(pleg.Event{Pod: "u", Type: pleg.PodSync}, empty)
			o.delivered(pleg.Event{Pod: "u", Type: pleg.PodSync}, empty)
		}, ""},
		{"told twice", func(o *observer) {
			o.delivered(event(pleg.ContainerDied), empty)
			o.delivered(event(pleg.ContainerDied), empty)
		}, "ContainerDied of c was told after Exited was"},
		{"told backwards", func(o *observer) {
			o.delivered(event(pleg.ContainerRemoved), empty)
			o.delivered(event(pleg.ContainerStarted), empty)
		}, "ContainerStarted of c was told after Removed was"},
		{"an unknown type", func(o *observer) { o.delivered(event("ContainerBorn"), empty) }, `unknown event type "ContainerBorn"`},
		{"a nil status", func(o *observer) { o.storing(nil) }, "a nil status"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := newObserver()
			tt.do(o)
			violations, count, _ := o.said()
			if tt.want == "" {
				if count != 0 {
					t.Errorf("violations %q, want none", violations)
				}
				return
			}
			if count != 1 || !strings.Contains(violations[0], tt.want) {
				t.Errorf("violations %q, want one with %q", violations, tt.want)
			}
		})
	}
}

// TestWorkersSeeViolations: the same for the comparison with the runtime.
func TestWorkersSeeViolations(t *testing.T) {
	type phases = map[string]pleg.Phase
	status := cri.EmptyStatus("u")
	tests := []struct {
		name          string
		before, after phases
		violations    int
	}{
		{"nothing was there", phases{}, phases{}, 0},
		{"it went meanwhile", phases{"c": pleg.PhaseRunning}, phases{}, 0},
		{"it came meanwhile", phases{}, phases{"c": pleg.PhaseRunning}, 0},
		{"it was there all the time, and the cache does not show it", phases{"c": pleg.PhaseRunning}, phases{"c": pleg.PhaseExited}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorkers(&Agent{observer: newObserver()})
			w.compare("u", status, tt.before, tt.after)
			if _, count, _ := w.agent.observer.said(); count != tt.violations {
				t.Errorf("%d violations, want %d", count, tt.violations)
			}
		})
	}
}

func TestViolationsAreBounded(t *testing.T) {
	o := newObserver()
	for range 3 * maxViolations {
		o.violate("again")
	}
	if kept, count, _ := o.said(); len(kept) != maxViolations || count != 3*maxViolations {
		t.Errorf("kept %d and counted %d, want %d and %d", len(kept), count, maxViolations, 3*maxViolations)
	}
}
