// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
	"github.com/evented-pleg/evented-pleg/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fact(id string, state pleg.Phase) load.Fact { return load.Fact{Pod: "p", ID: id, State: state} }

func sandbox(state pleg.Phase) load.Fact {
	return load.Fact{Pod: "p", ID: "s", Sandbox: true, State: state}
}

func TestFactsCheck(t *testing.T) {
	for _, test := range []struct {
		name  string
		known []load.Fact
		shown map[string]pleg.Phase
		later []load.Fact
		stale int
	}{
		{"as known", []load.Fact{fact("c", pleg.PhaseRunning)}, map[string]pleg.Phase{"c": pleg.PhaseRunning}, nil, 0},
		{"further than known", []load.Fact{fact("c", pleg.PhaseRunning)}, map[string]pleg.Phase{"c": pleg.PhaseExited}, nil, 0},
		{"older than known", []load.Fact{fact("c", pleg.PhaseExited)}, map[string]pleg.Phase{"c": pleg.PhaseRunning}, nil, 1},
		{"removed and shown", []load.Fact{fact("c", pleg.PhaseRemoved)}, map[string]pleg.Phase{"c": pleg.PhaseExited}, nil, 1},
		{"removed and not shown", []load.Fact{fact("c", pleg.PhaseRemoved)}, nil, nil, 0},
		{"not shown", []load.Fact{fact("c", pleg.PhaseRunning)}, nil, nil, 1},
		{"not shown, its removal was under way", []load.Fact{fact("c", pleg.PhaseRunning)}, nil, []load.Fact{fact("c", pleg.PhaseRemoved)}, 0},
		{"not shown, its pod's removal was under way", []load.Fact{sandbox(pleg.PhaseRunning), fact("c", pleg.PhaseRunning)}, map[string]pleg.Phase{"s": pleg.PhaseRunning},
			[]load.Fact{sandbox(pleg.PhaseRemoved)}, 0},
		{"unknown says nothing", []load.Fact{fact("c", pleg.PhaseRunning)}, map[string]pleg.Phase{"c": pleg.PhaseUnknown}, nil, 0},
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
		f.learn(
			[]load.Fact{
				{Pod: uid, ID: uid, Sandbox: true, State: pleg.PhaseRunning},
				{Pod: uid, ID: uid, Sandbox: true, State: pleg.PhaseRemoved},
			},
		)
	}
	if len(f.pods) != maxGone || len(f.live) != 0 {
		t.Errorf("%d pods are remembered, %d as live; want %d and none", len(f.pods), len(f.live), maxGone)
	}
}

func TestFactsNeverGoBack(t *testing.T) {
	f := newFacts(1)
	f.learn([]load.Fact{fact("c", pleg.PhaseExited), fact("c", pleg.PhaseRunning)})
	_, known := f.pick()
	if diff := cmp.Diff([]load.Fact{fact("c", pleg.PhaseExited)}, known); diff != "" {
		t.Errorf("known (-want +got):\n%s", diff)
	}
}

// TestChecksSeeViolations checks the comparison with the runtime's lists: a blind comparison would
// pass every scenario.
func TestChecksSeeViolations(t *testing.T) {
	runs := []load.Fact{fact("c", pleg.PhaseRunning)}
	exited := []load.Fact{fact("c", pleg.PhaseExited)}
	for name, test := range map[string]struct {
		before, after []load.Fact
		stale         int
	}{
		"there before and after": {runs, exited, 1},
		"there before only":      {runs, nil, 0},
		"there after only":       {nil, runs, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacts(1)
			f.check(test.before, bench.Pod{}, test.after)
			stale, complaints := f.verdict()
			if stale != test.stale ||
				test.stale > 0 && !strings.Contains(complaints[0], "the status lacks it") {
				t.Errorf("%d stale reads %q, want %d", stale, complaints, test.stale)
			}
		})
	}
}

// TestStandstill has a pod worker's read wait for the cache while this process does not run for
// longer than a read may take: what answers afterwards is in time, and what does not answer is an
// error once the process has run for long enough.
func TestStandstill(t *testing.T) {
	for _, answers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			stop := onfake.StopAfter(time.Second, 2*readTimeout)
			p := &prober{
				cache: cache.New(cri.EmptyStatus),
				facts: newFacts(1),
				wake:  make(chan struct{}, 1),
				meter: stop.Meter(t),
			}
			p.facts.learn([]load.Fact{sandbox(pleg.PhaseRunning)})
			begun := time.Now()
			var reading sync.WaitGroup
			reading.Go(func() { p.read(t.Context()) })
			time.Sleep(time.Until(stop.To) + time.Second)
			if answers {
				p.cache.Set("p", cri.EmptyStatus("p"), nil, time.Now())
			}
			reading.Wait()
			waits, failed := p.results()
			if len(waits) != 1 || (failed == 0) != answers {
				t.Errorf("answered %v: %d waits, %d failed", answers, len(waits), failed)
			}
			ran := time.Since(begun) - stop.To.Sub(stop.From)
			if !answers && (ran < readTimeout || ran > readTimeout+time.Second) {
				t.Errorf("given up after %v of running, want %v", ran, readTimeout)
			}
		})
	}
}

// TestAddressOfMetrics: what is no address is said before the work; a port that is taken names the
// flag.
func TestAddressOfMetrics(t *testing.T) {
	for addr, good := range map[string]bool{
		"":                true,
		"127.0.0.1:0":     true,
		"[::1]:9464":      true,
		":9464":           true,
		"9464":            false,
		":99999":          false,
		"127.0.0.1:22x":   false,
		"::1:9464":        false,
		"/run/m.sock":     false,
		"http://x:1/path": false,
	} {
		err := CheckMetricsAddr(addr)
		if (err == nil) != good {
			t.Errorf("%q: %v", addr, err)
		}
	}
	taken := testkit.Must(ListenForMetrics("127.0.0.1:0"))(t)
	defer taken.Close()
	_, err := ListenForMetrics(taken.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "--metrics-addr: cannot serve metrics on "+taken.Addr().String()+": name a free port") {
		t.Errorf("of a port that is taken: %v", err)
	}
}
