// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fact(id string, state bench.State) load.Fact { return load.Fact{Pod: "p", ID: id, State: state} }

func sandbox(state bench.State) load.Fact {
	return load.Fact{Pod: "p", ID: "s", Sandbox: true, State: state}
}

func TestFactsCheck(t *testing.T) {
	for _, test := range []struct {
		name  string
		known []load.Fact
		shown map[string]bench.State
		later []load.Fact
		stale int
	}{
		{"as known", []load.Fact{fact("c", bench.Running)}, map[string]bench.State{"c": bench.Running}, nil, 0},
		{"further than known", []load.Fact{fact("c", bench.Running)}, map[string]bench.State{"c": bench.Exited}, nil, 0},
		{"older than known", []load.Fact{fact("c", bench.Exited)}, map[string]bench.State{"c": bench.Running}, nil, 1},
		{"removed and shown", []load.Fact{fact("c", bench.Removed)}, map[string]bench.State{"c": bench.Exited}, nil, 1},
		{"removed and not shown", []load.Fact{fact("c", bench.Removed)}, nil, nil, 0},
		{"not shown", []load.Fact{fact("c", bench.Running)}, nil, nil, 1},
		{"not shown, its removal was under way", []load.Fact{fact("c", bench.Running)}, nil, []load.Fact{fact("c", bench.Removed)}, 0},
		{"not shown, its pod's removal was under way", []load.Fact{sandbox(bench.Running), fact("c", bench.Running)}, map[string]bench.State{"s": bench.Running},
			[]load.Fact{sandbox(bench.Removed)}, 0},
		{"unknown says nothing", []load.Fact{fact("c", bench.Running)}, map[string]bench.State{"c": bench.Unknown}, nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFacts(1)
			f.learn(test.known)
			pod, known := f.pick()
			if pod != "p" || len(known) != len(test.known) {
				t.Fatalf("picked %q with %v", pod, known)
			}
			got := bench.Pod{UID: "p"}
			for id, state := range test.shown {
				got.Items = append(got.Items, bench.Item{ID: id, State: state})
			}
			f.check(known, got, nil)
			f.learn(test.later)
			stale, complaints := f.verdict()
			if stale != test.stale || len(complaints) != test.stale {
				t.Errorf("%d stale reads %q, want %d", stale, complaints, test.stale)
			}
		})
	}
}

func TestFactsRememberFewRemovedPods(t *testing.T) {
	f := newFacts(1)
	for i := range 1000 {
		uid := strings.Repeat("x", i+1)
		f.learn([]load.Fact{{Pod: uid, ID: uid, Sandbox: true, State: bench.Running}, {Pod: uid, ID: uid, Sandbox: true, State: bench.Removed}})
	}
	if len(f.pods) != maxGone || len(f.live) != 0 {
		t.Errorf("%d pods are remembered, %d as live; want %d and none", len(f.pods), len(f.live), maxGone)
	}
}

func TestFactsNeverGoBack(t *testing.T) {
	f := newFacts(1)
	f.learn([]load.Fact{fact("c", bench.Exited), fact("c", bench.Running)})
	_, known := f.pick()
	if diff := cmp.Diff([]load.Fact{fact("c", bench.Exited)}, known); diff != "" {
		t.Errorf("known (-want +got):\n%s", diff)
	}
}

// TestChecksSeeViolations checks the observer and the comparison with the runtime's lists: blind
// checks would pass every scenario.
func TestChecksSeeViolations(t *testing.T) {
	status := func(state bench.State) bench.Pod {
		return bench.Pod{UID: "p", Items: []bench.Item{{ID: "c", State: state}}}
	}
	running, exited, gone := status(bench.Running), status(bench.Exited), bench.Pod{UID: "p"}
	event := func(kind pleg.EventType) pleg.Event { return pleg.Event{Pod: "p", ID: "c", Type: kind} }
	for name, test := range map[string]struct {
		do   func(*observer)
		want string // part of the only complaint; empty: none
	}{
		"forward": {func(o *observer) {
			o.storing(running)
			o.delivered(event(pleg.ContainerStarted), running)
			o.storing(exited)
			o.delivered(event(pleg.ContainerDied), exited)
			o.delivered(event(pleg.ContainerRemoved), gone)
		}, ""},
		"the cache is ahead":  {func(o *observer) { o.delivered(event(pleg.ContainerStarted), exited) }, ""},
		"a PodSync":           {func(o *observer) { o.delivered(pleg.Event{Pod: "p", Type: pleg.PodSync}, running) }, ""},
		"the cache goes back": {func(o *observer) { o.storing(exited); o.storing(running) }, "c went back to Running"},
		"it returns":          {func(o *observer) { o.delivered(event(pleg.ContainerRemoved), gone); o.storing(exited) }, "c went back to Exited"},
		"the event is ahead":  {func(o *observer) { o.delivered(event(pleg.ContainerDied), running) }, "Exited of c was delivered while"},
		"removed and shown":   {func(o *observer) { o.delivered(event(pleg.ContainerRemoved), exited) }, "Removed of c was delivered while"},
		"an unknown type":     {func(o *observer) { o.delivered(event("ContainerBorn"), running) }, `unknown event type "ContainerBorn"`},
		"there before and after": {func(o *observer) {
			o.facts.check([]load.Fact{fact("c", bench.Running)}, bench.Pod{}, []load.Fact{fact("c", bench.Exited)})
		}, "the status lacks it"},
		"there before only": {func(o *observer) { o.facts.check([]load.Fact{fact("c", bench.Running)}, bench.Pod{}, nil) }, ""},
		"there after only":  {func(o *observer) { o.facts.check(nil, bench.Pod{}, []load.Fact{fact("c", bench.Running)}) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := newObserver(newFacts(1))
			test.do(o)
			stale, complaints := o.facts.verdict()
			if test.want == "" && stale != 0 || test.want != "" && (stale != 1 || !strings.Contains(complaints[0], test.want)) {
				t.Errorf("complaints %q, want one with %q", complaints, test.want)
			}
		})
	}
}
