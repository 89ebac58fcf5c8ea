// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

// storm ends containers of new pods of a world, and removes the pods once each has been reported.
func storm(w *world, ends int, pause time.Duration) {
	var pods []string
	for range ends {
		name := fmt.Sprint("p", time.Now().UnixNano())
		pod := must(w.runtime.AddPod(fakeruntime.PodSpec{Name: name, Namespace: "ns"}))(w.t)
		pods = append(pods, pod)
		id := must(w.runtime.AddContainer(pod, fakeruntime.ContainerSpec{Name: "app"}))(w.t)
		check(w.t, w.runtime.Start(id))
		time.Sleep(pause)
		check(w.t, w.runtime.Exit(id, 1))
	}
	time.Sleep(3 * time.Second)
	for _, pod := range pods {
		check(w.t, w.runtime.RemoveSandbox(pod))
	}
}

// countedEnds returns the ends that the server knows of, about pods and about namespaces.
func countedEnds(w *world) (pods, namespaces int32) {
	for _, e := range w.server.Events() {
		n := int32(1)
		if e.Series != nil {
			n = e.Series.Count
		}
		switch e.Regarding.Kind {
		case "Pod":
			pods += n
		case "Namespace":
			namespaces += n
		}
	}
	return pods, namespaces
}

// TestCombinedEndsAndARestart: the ends that an Event about a namespace counts are told once, also
// those that wait for the next write of the count, or for the API server, when the agent ends.
func TestCombinedEndsAndARestart(t *testing.T) {
	for _, away := range []bool{false, true} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprint("away ", away, ", killed ", killed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const rounds, each = 8, 12
					w := newWorld(t, fakeruntime.Config{Seed: 46})
					few := func(c *Config[cri.PodStatus]) { c.NamespaceRate = Rate{0.3, 5} }
					w.away.Store(away)
					a := w.start(few)
					time.Sleep(time.Second)
					for range rounds {
						storm(w, each, 100*time.Millisecond)
						time.Sleep(12 * time.Second)
					}
					storm(w, each, 100*time.Millisecond) // and no end in the last second
					if killed {
						a.kill()
					} else {
						a.stop()
					}
					w.away.Store(false)
					a = w.start(few)
					time.Sleep(10 * time.Minute)
					repeated := a.reporter.Stats().Repeated
					a.stop()
					pods, namespaces := countedEnds(w)
					if pods+namespaces != (rounds+1)*each || namespaces < (rounds+1)*each/3 {
						t.Errorf("%d ends about pods and %d about the namespace, want %d", pods, namespaces, (rounds+1)*each)
					}
					if repeated == 0 && (away || killed) {
						t.Error("nothing waited for the next agent")
					}
					kept := must(loadLedger(w.ledger, time.Now()))(t)
					if len(kept.Combined)+len(kept.Unsent) > 0 {
						t.Errorf("the ledger holds what the server knows: %+v", kept)
					}
				})
			})
		}
	}
}

// TestCombinedEndsCountedAgainAndAKill: the recorder writes a part of what is counted again while
// the rest is handed over, and the process is killed before the next write. The ledger holds the
// rest, of each kind.
func TestCombinedEndsCountedAgainAndAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeruntime.Config{Seed: 46})
		none := func(c *Config[cri.PodStatus]) { c.NamespaceRate = Rate{0.0001, 1} }
		w.away.Store(true)
		a := w.start(none)
		time.Sleep(time.Second)
		codes := map[Kind]int32{Failed: 1, Completed: 0, Killed: 137}
		const each = 20
		for _, code := range codes {
			for range each {
				pod := must(w.runtime.AddPod(fakeruntime.PodSpec{Name: "p", Namespace: "ns"}))(t)
				id := must(w.runtime.AddContainer(pod, fakeruntime.ContainerSpec{Name: "app"}))(t)
				check(t, w.runtime.Start(id))
				time.Sleep(time.Second)
				check(t, w.runtime.Exit(id, code))
				time.Sleep(time.Second)
			}
		}
		time.Sleep(5 * time.Second)
		reports := a.stop()
		w.away.Store(false)
		for range 3 {
			a = w.start(none)
			time.Sleep(3 * time.Second)
			more, _, _ := a.kill()
			reports = append(reports, more...)
		}
		a = w.start(none)
		time.Sleep(10 * time.Minute)
		reports = append(reports, a.stop()...)
		want := make(map[string]int32)
		for _, r := range reports {
			if r.outcome == Combined {
				want[string(r.Kind)]++
			}
		}
		got := make(map[string]int32)
		for _, e := range w.server.Events() {
			if e.Regarding.Kind == "Namespace" {
				got[e.Reason] += max(1, e.Series.Count)
			}
		}
		if !maps.Equal(got, want) || len(want) != len(codes) {
			t.Errorf("counted %v, combined %v", got, want)
		}
	})
}

// tallied is a sink with combined ends, each a millisecond after the one before, and their Event.
type tallied struct {
	sink  *Sink
	inner *scripted
	key   eventKey
}

func newTallied(ends int) *tallied {
	x := &tallied{inner: &scripted{}, key: keyOfCombined("ns", Failed)}
	x.sink = NewSink(x.inner)
	x.more(ends)
	return x
}

// more hands over more ends.
func (x *tallied) more(ends int) {
	for range ends {
		x.sink.count(x.key)
		time.Sleep(time.Millisecond)
	}
}

// event returns the Event that counts what was handed over until now.
func (x *tallied) event() *eventsv1.Event {
	return &eventsv1.Event{
		EventTime: metav1.NowMicro(),
		Reason:    x.key.reason,
		Action:    x.key.action,
		Regarding: corev1.ObjectReference{Kind: "Namespace", Namespace: "ns", Name: "ns"},
	}
}

// TestTally: the answer to a call is about the ends that the call counts, however many there are,
// and however many come while it is under way.
func TestTally(t *testing.T) {
	for _, test := range []struct {
		name string
		play func(t *testing.T, x *tallied)
		want int
	}{
		{"not told", func(*testing.T, *tallied) {}, 5000},
		{"told", func(t *testing.T, x *tallied) {
			_, _ = x.sink.Create(t.Context(), x.event())
		}, 0},
		{"told, and more since", func(t *testing.T, x *tallied) {
			_, _ = x.sink.Create(t.Context(), x.event())
			x.more(700)
		}, 700},
		{"more while the call is under way", func(t *testing.T, x *tallied) {
			e := x.event()
			x.more(10) // from the Event's count to the call
			x.sink.asked(e)
			x.more(3000)
			x.sink.answered(e, lastOf(e), nil)
		}, 3010},
		{"a call that fails, and the next one", func(t *testing.T, x *tallied) {
			x.inner.err = errAway
			_, _ = x.sink.Create(t.Context(), x.event())
			x.more(300)
			x.inner.err = nil
			e := x.event()
			x.sink.asked(e)
			x.more(400)
			x.sink.answered(e, lastOf(e), nil)
		}, 400},
		{"another namespace's", func(t *testing.T, x *tallied) {
			e := x.event()
			e.Regarding.Namespace = "other"
			_, _ = x.sink.Create(t.Context(), e)
		}, 5000},
		{"another kind's", func(t *testing.T, x *tallied) {
			e := x.event()
			e.Reason = string(Killed)
			_, _ = x.sink.Create(t.Context(), e)
		}, 5000},
		{"given up by the recorder", func(_ *testing.T, x *tallied) { x.sink.bound(77) }, 77},
		{"counted again, and not all are handed over", func(t *testing.T, x *tallied) {
			last := x.sink.countAgain(x.key, 1000)
			_, _ = x.sink.Create(t.Context(), x.event())
			last()
		}, 1000},
		{"counted again", func(t *testing.T, x *tallied) {
			x.sink.countAgain(x.key, 1000)()
			_, _ = x.sink.Create(t.Context(), x.event())
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newTallied(5000)
				test.play(t, x)
				if got := x.sink.waiting(); got != test.want {
					t.Errorf("%d ends are not known to be told, want %d", got, test.want)
				}
				for key, tally := range x.sink.tallies {
					if len(tally.spells) == 0 || len(tally.spells) > maxSpells {
						t.Errorf("%d spells of %v", len(tally.spells), key)
					}
				}
				time.Sleep(2 * tick)
				kept := x.sink.unsent(time.Now().Add(-tick))
				if test.want > 0 && (len(kept.combined) != 1 || kept.combined[0].Ends != int64(test.want)) {
					t.Errorf("kept %+v, want %d ends", kept.combined, test.want)
				}
			})
		})
	}
}

// TestACallCountsAnyPartOfTheNewestEnds: an Event is counted a while before its call begins. What
// comes between the two is not the answer's, whenever spells are joined.
func TestACallCountsAnyPartOfTheNewestEnds(t *testing.T) {
	const between = newestSpells - 4
	for before := 0; before < 2*maxSpells; before += between {
		synctest.Test(t, func(t *testing.T) {
			x := newTallied(5000 + before)
			e := x.event()
			x.more(between)
			x.sink.asked(e)
			x.sink.answered(e, lastOf(e), nil)
			if got := x.sink.waiting(); got != between {
				t.Errorf("after %d ends, %d are not known to be told, want %d", 5000+before, got, between)
			}
		})
	}
}

// TestCombinedEndsAreKeptAfterASecond: in the midst of a storm the ledger has all but the ends of
// the last second, or of a keptEarly less.
func TestCombinedEndsAreKeptAfterASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTallied(5000)
		kept := x.sink.unsent(time.Now().Add(-tick))
		if n := kept.key.length; n < 3900 || n > 4100 || time.Since(kept.next) > tick+keptEarly {
			t.Errorf("%d ends are kept, and the first of the others is %v old", n, time.Since(kept.next))
		}
	})
}

// TestEndsJoinedForACallAreKept: ends that a call under way counts go into the ledger as early as
// the first of them, and the loop is not told to write what is written.
func TestEndsJoinedForACallAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTallied(1)
		time.Sleep(tick - 200*time.Millisecond)
		x.more(1)
		x.sink.asked(x.event())
		time.Sleep(300 * time.Millisecond)
		kept := x.sink.unsent(time.Now().Add(keptEarly - tick))
		if kept.key.length != 2 || !kept.next.IsZero() {
			t.Errorf("%d ends are kept, and the first of the others is %v old", kept.key.length, time.Since(kept.next))
		}
	})
}

// TestManyEventsAboutNamespaces: what is followed is bounded, whatever names of namespaces come.
func TestManyEventsAboutNamespaces(t *testing.T) {
	sink := NewSink(nil)
	for i := range maxUnsent + 10 {
		sink.count(keyOfCombined(fmt.Sprint("ns", i), Failed))
	}
	if sink.waiting() != maxUnsent {
		t.Errorf("%d ends are followed, want %d", sink.waiting(), maxUnsent)
	}
}
