// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestAbsence: what proves that the runtime does not have a container any more, and what does not.
func TestAbsence(t *testing.T) {
	read := start.Add(time.Second)
	other := Pod{Containers: []Container{{ID: "other"}}}
	for name, c := range map[string]struct {
		s    sighting
		want bool
	}{
		"an empty pod":                     {sighting{}, true},
		"an empty pod that cannot be read": {sighting{unreadable: true, readAfter: read}, false},
		"another's removal":                {sighting{pod: other, event: pleg.Event{Type: pleg.ContainerRemoved, ID: "other"}}, false},
		"its removal":                      {sighting{pod: other, event: pleg.Event{Type: pleg.ContainerRemoved, ID: "c"}}, true},
		"its end":                          {sighting{pod: other, event: pleg.Event{Type: pleg.ContainerDied, ID: "c"}}, false},
		"a read of others":                 {sighting{pod: other, readAfter: read}, true},
		"a read that failed":               {sighting{pod: other, readAfter: read, unreadable: true}, false},
	} {
		if got := c.s.gone("c", start); got != c.want {
			t.Errorf("%s: gone %v, want %v", name, got, c.want)
		}
	}
}

// TestWhatAPodKeeps: a status without names or labels takes none away, and the loop of a name lasts
// as long as a container of the name.
func TestWhatAPodKeeps(t *testing.T) {
	p := newPod(start, Ref{UID: "u"})
	p.name(&Pod{Ref: Ref{Name: "p", Namespace: "ns"}, Labels: map[string]string{"app": "db"}})
	p.name(&Pod{})
	p.name(&Pod{Ref: Ref{Name: "p", Namespace: "ns"}}) // as an event names it
	if p.ref.Name != "p" || p.ref.Namespace != "ns" || p.labels["app"] != "db" {
		t.Errorf("%+v, %v", p.ref, p.labels)
	}
	p.name(&Pod{Labels: map[string]string{"app": "web"}})
	if p.labels["app"] != "web" {
		t.Errorf("the labels are still %v", p.labels)
	}
	for _, id := range []string{"a", "b"} {
		p.containers[id] = &container{shown: Container{ID: id, Name: "app"}}
	}
	p.loops["app"] = loop{note: "n"}
	p.drop(start, "a")
	if len(p.loops) != 1 {
		t.Error("the loop has ended with the first of two containers")
	}
	p.drop(start, "b")
	if len(p.loops) != 0 {
		t.Error("the loop lasts without a container")
	}
	p.sandboxes["s"] = &sandbox{told: true, suspectedAt: start}
	if p.suspected() {
		t.Error("a sandbox that is told is suspected")
	}
	p.sandboxes["s"].told = false
	if !p.suspected() {
		t.Error("a sandbox that is not told is not suspected")
	}
}

// TestTheEarliestReadIsWanted: a pod has one read to come, and no other delays it.
func TestTheEarliestReadIsWanted(t *testing.T) {
	p := newPod(start, Ref{})
	for _, c := range []struct{ at, due time.Duration }{{2, 2}, {1, 1}, {3, 1}} {
		p.want(start.Add(c.at * time.Second))
		if due := p.look.due.Sub(start); due != c.due*time.Second {
			t.Errorf("wanted after %d s, it is due after %v", c.at, due)
		}
	}
}

// TestWhenAnEndWasSeen: the process stands still while an end settles. That delays the report, and
// the end was seen before.
func TestWhenAnEndWasSeen(t *testing.T) {
	s := newStand(t, nil)
	seen := s.now
	s.cached(shows(exited("a", 1, "Error")), diedEvent)
	s.stands(time.Minute)
	s.rest(shows(exited("a", 1, "Error")))
	if len(s.told) != 1 || !s.told[0].SeenAt.Equal(seen) {
		t.Errorf("told %+v, want one that was seen at %v", s.told, seen)
	}
}

// TestRunsInASandbox: a container of an unknown sandbox may be in each.
func TestRunsInASandbox(t *testing.T) {
	for of, want := range map[string]bool{"s": true, "": true, "other": false} {
		for _, phase := range []pleg.Phase{pleg.PhaseRunning, pleg.PhaseExited} {
			c := Container{Phase: phase, SandboxID: of}
			if got := runs(&c, "s"); got != (want && phase == pleg.PhaseRunning) {
				t.Errorf("sandbox %q, phase %v: %v", of, phase, got)
			}
		}
	}
}

// TestAnEndOfUnknownCode has nothing of what an earlier status said: it may be of another end.
func TestAnEndOfUnknownCode(t *testing.T) {
	shown := Container{ID: "c", Name: "app", Phase: pleg.PhaseRunning, ExitCode: 7, Reason: "r", Message: "m", FinishedAt: start}
	e := newPod(start, Ref{}).end(&container{shown: shown}, true)
	if e.CodeKnown || e.ExitCode != 0 || e.Reason != "" || e.Message != "" || !e.FinishedAt.IsZero() {
		t.Errorf("%+v", e)
	}
}

// TestKindsOfRareEnds: the reasons of failed starts, codes that no process can have, kinds of other
// versions, and a clock that was set back.
func TestKindsOfRareEnds(t *testing.T) {
	ended := End{StartedAt: start, FinishedAt: start.Add(-time.Second), CodeKnown: true, ExitCode: 128}
	if ran := ended.Ran(); ran != 0 {
		t.Errorf("it ran for %v", ran)
	}
	for _, reason := range []string{"StartError", "ContainerCannotRun", "RunContainerError"} {
		e := ended
		e.Reason = reason
		if kind := classify(&e); kind != NotStarted {
			t.Errorf("%s: %s", reason, kind)
		}
	}
	ended.ExitCode = -1 // CRI-O's, without a monitor
	if kind := classify(&ended); kind != Lost {
		t.Errorf("exit code -1: %s", kind)
	}
	if other := Kind("Other"); other.Short() != "other" || !other.Warning() {
		t.Errorf("another version's kind is %s, a warning %v", other.Short(), other.Warning())
	}
	for _, kind := range Kinds() {
		if want := kind != Completed && kind != Stopped; kind.Warning() != want {
			t.Errorf("%s: a warning %v, want %v", kind, kind.Warning(), want)
		}
	}
}

// TestDefaultKinds: who chooses no kinds gets all but those that a kubelet reports itself.
func TestDefaultKinds(t *testing.T) {
	want := []Kind{OOMKilled, Failed, Killed, Lost, SandboxDied, Completed}
	if got := DefaultKinds(); !slices.Equal(got, want) {
		t.Errorf("the default is %v, want %v", got, want)
	}
}

// TestSignals: a code above 128 is a signal's, if it is known.
func TestSignals(t *testing.T) {
	for code, want := range map[int32]int{0: 0, 1: 0, 128: 0, 129: 1, 137: 9, 143: 15, 192: 64, 193: 0, 255: 0, -1: 0} {
		e := End{ExitCode: code, CodeKnown: true}
		if got := e.Signal(); got != want {
			t.Errorf("code %d: signal %d, want %d", code, got, want)
		}
		e.CodeKnown = false
		if got := e.Signal(); got != 0 {
			t.Errorf("code %d, which is not known: signal %d", code, got)
		}
	}
}

// TestABurstIsTheMostAtOnce, however long nothing was admitted.
func TestABurstIsTheMostAtOnce(t *testing.T) {
	l := newLimiter(start, Rate{PerSecond: 1, Burst: 10}, Rate{PerSecond: 5, Burst: 50})
	at := func(now time.Time, namespaces ...string) (admitted int) {
		for _, namespace := range namespaces {
			for range 100 {
				if l.admit(now, namespace) {
					admitted++
				}
			}
		}
		return admitted
	}
	l.admit(start, "a")
	if n := at(start.Add(time.Hour), "a"); n != 10 {
		t.Errorf("%d Events of a namespace, want its burst of 10", n)
	}
	if n := at(start.Add(2*time.Hour), "a", "b", "c", "d", "e", "f", "g"); n > 50 {
		t.Errorf("%d Events of all, want the burst of 50 at most", n)
	}
}

// TestQuietUntilATenthIsTaken: a namespace with nine tenths of its burst left has the node's last
// tenth, and no other.
func TestQuietUntilATenthIsTaken(t *testing.T) {
	l := newLimiter(start, Rate{Burst: 100}, Rate{Burst: 200})
	for range 300 {
		l.admit(start, "a")
		l.admit(start, "b")
	}
	admitted := 0
	for range 100 {
		if l.admit(start, "quiet") {
			admitted++
		}
	}
	if admitted != 11 {
		t.Errorf("%d Events of a namespace in quiet, want the 11 from 100 to 90 left", admitted)
	}
}

// TestPartsOfATally: what is given up, taken and joined.
func TestPartsOfATally(t *testing.T) {
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	x := tally{sealed: true, spells: []spell{{ends: 5, last: at(5)}, {ends: 7, last: at(7)}}}
	x.take(at(4))
	if !x.sealed || x.ends() != 12 {
		t.Errorf("an answer about none of the ends: %+v", x)
	}
	if left := x.drop(3); left != 0 || x.ends() != 9 || !x.sealed {
		t.Errorf("3 given up of 12: %+v, left %d", x, left)
	}
	if left := x.drop(3); left != 0 || x.ends() != 6 || x.sealed {
		t.Errorf("3 more given up, and the sealed ends with them: %+v, left %d", x, left)
	}
	if left := x.drop(10); left != 4 || x.ends() != 0 {
		t.Errorf("10 given up of 6: %+v, left %d", x, left)
	}
	kept, fresh := spell{ends: 1, again: true}, spell{ends: 2}
	kept.join(&fresh)
	if !kept.again || kept.ends != 3 {
		t.Errorf("ends in the ledger, and others: %+v", kept)
	}
}

// TestWhatTheLedgerLacks: the sink names the first report that the ledger lacks, knows one list of
// reports from another, and keeps what the ledger has.
func TestWhatTheLedgerLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := NewSink(&scripted{})
		began := time.Now()
		for i := range 2 {
			sink.add(&End{Kind: Failed, Attempt: uint32(i), Pod: Ref{UID: "u", Namespace: "ns"}}, false)
			time.Sleep(time.Second)
		}
		if all := sink.unsent(began.Add(-time.Second)); len(all.ends) > 0 || !all.next.Equal(began) {
			t.Errorf("the next is of %v, want %v", all.next, began)
		}
		key := keyOfCombined("ns", Failed)
		sink = NewSink(&scripted{})
		sink.count(key)
		before := sink.unsent(time.Now()).key
		sink.bound(0)
		sink.count(key)
		if after := sink.unsent(time.Now()).key; after == before {
			t.Error("another end is taken for the one before")
		}
		sink = NewSink(&scripted{})
		sink.countAgain(key, 5)()
		if all := sink.unsent(began.Add(-time.Hour)); len(all.combined) != 1 || all.combined[0].Ends != 5 {
			t.Errorf("%+v of 5 ends that are in the ledger", all.combined)
		}
	})
}
