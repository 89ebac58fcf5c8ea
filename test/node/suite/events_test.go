// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/criproxy"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// A recorder judges the runtime's stream.
type recorder struct {
	mu     sync.Mutex // owns the fields below
	judge  *stream.Judge
	events int
	stale  []stream.Event // those with a phase before an earlier event's
}

// message takes a message of the stream.
func (r *recorder) message(raw []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.judge.Event(time.Now(), raw)
	r.events++
	if hasFlaw(e, stream.StalePayload) || hasFlaw(e, stream.Contradicting) || hasFlaw(e, stream.Reordered) {
		r.stale = append(r.stale, e)
	}
}

func hasFlaw(e stream.Event, f stream.Flaw) bool {
	return slices.ContainsFunc(e.Flaws, func(text string) bool { return strings.HasPrefix(text, string(f)) })
}

// soFar returns the number of events, and the stale events.
func (r *recorder) soFar() (events int, stale []stream.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events, slices.Clone(r.stale)
}

// tap shows each message of the runtime's stream to the scenario's agents, and drops none.
func (t *T) tap(see func(message []byte)) {
	t.Proxy.Inject(criproxy.Fault{Method: eventStream, Do: criproxy.Drop{}, Match: func(message []byte) bool {
		see(message)
		return false
	}})
}

// Record judges the runtime's stream until the scenario ends: with a separate subscription, or, on
// a runtime with a single subscriber for each event, by observing the proxy's traffic to the
// scenario's only agent.
func (t *T) Record() *recorder {
	r := &recorder{judge: stream.New(0)}
	if t.Traits.SharedStream && t.agents > 0 {
		t.tap(r.message)
		return r
	}
	t.Cleanup(t.Follow(t.ctx, func(e *runtimeapi.ContainerEventResponse) {
		raw, _ := proto.Marshal(e) // it was unmarshalled
		r.message(raw)
	}))
	return r
}

// stale makes the runtime send older payloads with newer stamps, and shows that neither the cache
// nor an event goes back. The hazard is a race in the runtime: rounds go on until it was seen.
func stale(t *T) {
	a := t.Connect()
	raw := t.Record()
	rounds, most := t.Size(10, 3), t.Size(40, 6)
	var sent, ran int
	var found []stream.Event
	for ; ran < rounds || ran < most && len(found) == 0; ran++ {
		var pods []*crikit.Pod
		for p := range 8 {
			pods = append(pods, t.Pod(fmt.Sprintf("r%dp%d", ran, p)))
		}
		ids := t.Burst(pods, 10, 10, "exit", "0")
		t.Exited(ids...)
		t.Clear(ids, pods) // removal beside removal is where deleted containers reappear
		_, found = raw.soFar()
	}
	a.Empty()
	sent, found = raw.soFar()
	newer := 0
	for _, e := range found {
		t.Logf("stale: %s of %s: %q", e.Type, e.ID, e.Flaws)
		if !hasFlaw(e, stream.StampBack) {
			newer++
		}
	}
	stats := a.Stats()
	t.Figure("rounds", "%d", ran)
	t.Figure("raw events", "%d", sent)
	t.Figure("stale payloads sent", "%d, %d of them with a newer stamp", len(found), newer)
	if t.Traits.Events && stats.Claims == 0 {
		t.Errorf("the runtime has sent %d events, and the agent has heard of no change: it was not tested", sent)
	}
	if stats.Regressions != 0 || stats.Overruled != 0 {
		t.Errorf("regressions %d, overruled claims %d, want none", stats.Regressions, stats.Overruled)
	}
}

// noEvent makes changes without an event: a container that fails to start, and an exit while the
// runtime is down.
func noEvent(t *T) {
	a := t.Connect(
		withoutWorkers,
		stableAfter(2*time.Second),
		func(c *worker.Config) { c.RelistMax = 8 * time.Second },
	)
	pod := t.Pod("pod")
	a.WaitEvent(pleg.PhaseRunning, pod.SandboxID)
	a.waitPeriod(8 * time.Second)

	if t.Traits.CreateFails {
		a.afterFailedCreate(pod)
	} else {
		a.afterFailedStart(pod)
	}

	if t.Daemon == nil {
		t.Figure("exit while down", "not applicable: the runtime is not ours to stop")
		return
	}
	silent, pid := t.Mortal(pod, "silent", 9)
	a.WaitEvent(pleg.PhaseRunning, silent)
	before := a.Stats()
	t.StopRuntime(syscall.SIGKILL)
	if t.Traits.Events {
		a.WaitState(pleg.StreamBackoff)
	}
	t.End(silent, pid)
	back := time.Now()
	t.StartRuntime()
	died := a.WaitEvent(pleg.PhaseExited, silent)
	a.Converge()
	held := bench.Find(a.Cache(), pod.UID, silent)
	t.Figure(
		"exit while down→Watch",
		"%dms after its start, as %d %s",
		since(back, died.At).Milliseconds(),
		held.ExitCode,
		held.Reason,
	)
	a.WaitConnected()
	if t.Traits.Events { // else nothing is promised, and nothing unheard
		a.Until("the exit while the runtime was down is unheard", func(now worker.Progress) bool {
			return now.Unheard > before.Unheard && now.Missed == before.Missed
		})
	}
}

// afterFailedStart makes a container without an event of its end, and demands that the agent finds
// the end and counts it as missed.
func (a *Agent) afterFailedStart(pod *crikit.Pod) {
	before := a.Stats()
	id := a.t.failedStart(pod)
	failed := time.Now()
	died := a.WaitEvent(pleg.PhaseExited, id)
	if died.Claim {
		a.t.Error("the failed start was found by an event, and the runtime sends none")
	}
	a.Until(
		"the failed start is missed",
		func(now worker.Progress) bool { return now.Missed == before.Missed+1 },
	)
	if period := a.Stats().RelistPeriod; period >= before.RelistPeriod {
		a.t.Errorf("the period stayed at %v after a missed event", period)
	}
	a.Converge()
	a.t.Figure("failed start→Watch", "%.1fs (period %v)", since(failed, died.At).Seconds(), before.RelistPeriod)
}

// afterFailedCreate: a bad command that fails in CreateContainer leaves no container to find.
func (a *Agent) afterFailedCreate(pod *crikit.Pod) {
	t, before := a.t, a.Stats()
	if id, err := t.Create(t.ctx, pod, crikit.Spec{Name: "broken", Command: "/does/not/exist"}); err == nil {
		t.Fatalf("a container with a command that does not exist was created: %s", id)
	}
	tried := a.Stats().Relists
	a.Until("a list from after the failed creation", func(now worker.Progress) bool {
		return now.Relists > tried+1 // the next may have begun before
	})
	a.Converge()
	if held := bench.ItemsOf(a.Cache(), pod.UID); len(held) != 1 {
		t.Errorf("the pod with a container that could not be created holds %v", held)
	}
	if now := a.Stats(); now.Missed != before.Missed {
		t.Errorf("missed %d→%d by a container that could not be created", before.Missed, now.Missed)
	}
}

// replay lets the runtime queue events while nobody listens, for short-lived pods and for a lasting
// pod; the first subscriber gets all of them.
func replay(t *T) {
	var old []string // gone IDs
	gone := map[string]bool{}
	history := t.Seconds(120, 15)
	stays := t.Pod("stays")
	first := t.Container(stays, "c", "exit", "1")
	t.Exited(first)
	began := time.Now()
	for p := 0; p < 5 || time.Since(began) < history; p++ {
		pod := t.Pod(fmt.Sprintf("gone%d", p))
		ids := t.Burst([]*crikit.Pod{pod}, 3, 3, "exit", "0")
		t.Exited(ids...)
		t.Check(t.Delete(t.ctx, pod.SandboxID))
		old, gone[pod.UID] = append(append(old, ids...), pod.SandboxID), true
		t.Sleep(t.Seconds(4, 1))
	}
	// The container of the lasting pod was made anew: its first is gone.
	t.Check(t.Remove(t.ctx, first))
	old = append(old, first)
	runs := t.Made(stays, crikit.Spec{Name: "c", Attempt: 1, Args: []string{"sleep", "1h"}})

	a := t.Connect()
	a.WaitEvent(pleg.PhaseRunning, runs)
	a.Converge()
	t.Sleep(5 * time.Second) // longer than the grace, in which a claim may still wait for its read
	a.Converge()
	for _, e := range a.Events() {
		if gone[e.Pod] || slices.Contains(old, e.ID) {
			t.Errorf("an event for something gone before the agent came: %+v", e)
		}
	}
	stats := a.Stats()
	t.Figure("history", "%v", time.Since(began).Round(time.Second))
	t.Figure("old IDs", "%d", len(old))
	t.Figure("claims replayed", "%d", stats.ReplayedClaims)
	// On a runtime in place another subscriber may have had the backlog.
	if t.Traits.Events && t.Daemon != nil && stats.ReplayedClaims == 0 {
		t.Errorf("of %d IDs that had gone no old event came, want a replay by %s", len(old), t.env.version)
	}
	if stats.Missed > 0 {
		t.Errorf("%d changes counted as missed", stats.Missed)
	}
	t.Check(t.Delete(t.ctx, stays.SandboxID))
	a.WaitEvent(pleg.PhaseRemoved, runs)
	a.Converge()
}
