// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/events"
)

// TestASickNamespaceAndARestart: where the API server takes no Event of one namespace, a restart
// repeats the reports of that namespace, and none of the others.
func TestASickNamespaceAndARestart(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed ", killed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fakeruntime.Config{Seed: 46})
				w.sick.Store("sick")
				a := w.start(nil)
				time.Sleep(time.Second)
				end := func(namespace string) {
					pod := must(w.runtime.AddPod(fakeruntime.PodSpec{Name: "p", Namespace: namespace}))(t)
					id := must(w.runtime.AddContainer(pod, fakeruntime.ContainerSpec{Name: "app"}))(t)
					check(t, w.runtime.Start(id))
					time.Sleep(5 * time.Second)
					check(t, w.runtime.Exit(id, 1))
					time.Sleep(5 * time.Second)
				}
				end("sick")
				for _, namespace := range []string{"a", "b", "c"} {
					end(namespace)
				}
				if killed {
					a.kill()
				} else {
					a.stop()
				}
				w.sick.Store("")
				a = w.start(nil)
				time.Sleep(time.Minute)
				a.stop()
				got := known(w)
				for _, namespace := range []string{"sick", "a", "b", "c"} {
					if got[namespace] != 1 {
						t.Errorf("%d ends of %s at the server, want 1", got[namespace], namespace)
					}
				}
			})
		})
	}
}

// TestALoopAndAKill: the ends of a fast loop that wait for the next write of their count are in the
// ledger, so that a killed agent loses none of them.
func TestALoopAndAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeruntime.Config{Seed: 46})
		a := w.start(nil)
		time.Sleep(time.Second)
		pod := must(w.runtime.AddPod(fakeruntime.PodSpec{Name: "p", Namespace: "ns"}))(t)
		const ends = 60
		for range ends {
			id := must(w.runtime.AddContainer(pod, fakeruntime.ContainerSpec{Name: "app"}))(t)
			check(t, w.runtime.Start(id))
			time.Sleep(3 * time.Second)
			check(t, w.runtime.Exit(id, 1))
		}
		time.Sleep(3 * time.Second)
		_, recent, _ := a.kill()
		unsent := a.broadcaster.Stats().Dropped[events.DropShutdown]
		if recent != 0 || unsent == 0 {
			t.Fatalf("%d ends unsent, %d of the last second: no count waits", unsent, recent)
		}
		a = w.start(nil)
		time.Sleep(10 * time.Minute)
		a.stop()
		if got := known(w)["ns"]; got != ends {
			t.Errorf("%d ends at the server, want %d", got, ends)
		}
	})
}

// TestAnUnsentReportIsKeptAfterASecond: whenever a report is made, a second later the ledger holds
// it, so that a kill loses no more than the documentation says.
func TestAnUnsentReportIsKeptAfterASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeruntime.Config{Seed: 46})
		w.away.Store(true)
		a := w.start(nil)
		pod := must(w.runtime.AddPod(fakeruntime.PodSpec{Name: "p", Namespace: "ns"}))(t)
		for n := range 12 {
			id := must(w.runtime.AddContainer(pod, fakeruntime.ContainerSpec{Name: "app"}))(t)
			check(t, w.runtime.Start(id))
			time.Sleep(time.Duration(n+1) * 1270 * time.Millisecond)
			check(t, w.runtime.Exit(id, 1))
			for a.reporter.Stats().Outcomes[Reported] <= uint64(n) {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(tick)
			synctest.Wait()
			kept := must(loadLedger(w.ledger, time.Now()))(t).Unsent
			if !slices.ContainsFunc(kept, func(e End) bool { return e.ID == id }) {
				t.Errorf("end %d is not kept a second after its report: %d are", n, len(kept))
			}
		}
		a.stop()
	})
}

// TestALoopInADeletedNamespace: the recorder drops the ends of a container whose Event was refused,
// without a call. The ledger keeps the report of a namespace in trouble all the same.
func TestALoopInADeletedNamespace(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %v", killed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fakeruntime.Config{Seed: 46})
				w.sick.Store("sick")
				w.deleteNamespace("gone")
				a := w.start(nil)
				time.Sleep(time.Second)
				for _, namespace := range []string{"sick", "gone"} {
					pod := must(w.runtime.AddPod(fakeruntime.PodSpec{Name: "p", Namespace: namespace}))(t)
					for range 2 {
						w.end(pod, 1)
					}
				}
				if killed {
					a.kill()
				} else {
					a.stop()
				}
				w.sick.Store("")
				a = w.start(nil)
				time.Sleep(time.Minute)
				a.stop()
				if got := known(w)["sick"]; got != 2 {
					t.Errorf("%d ends at the server, want 2", got)
				}
			})
		})
	}
}

// TestManyCodesAndAKill: the Event that counts the ends of many codes together acknowledges those
// of none that has an Event of its own, whose count waits.
func TestManyCodesAndAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeruntime.Config{Seed: 46})
		w.burst = 0 // the recorder's default
		a := w.start(nil)
		time.Sleep(time.Second)
		pod := must(w.runtime.AddPod(fakeruntime.PodSpec{Name: "p", Namespace: "ns"}))(t)
		ends := int32(0)
		end := func(code int32) {
			w.end(pod, code)
			ends++
		}
		for code := range int32(25) {
			end(code + 1)
		}
		for range 20 {
			end(1)
		}
		if a.sink.waiting() == 0 {
			t.Error("no count waits")
		}
		end(40)
		if stored := w.server.Events(); !slices.ContainsFunc(stored, func(e eventsv1.Event) bool { return e.Action == e.Reason }) {
			t.Errorf("nothing is combined in %d Events", len(stored))
		}
		a.kill()
		a = w.start(nil)
		time.Sleep(10 * time.Minute)
		a.stop()
		if got := known(w)["ns"]; got != ends {
			t.Errorf("%d ends at the server, want %d", got, ends)
		}
	})
}

// end has a new container of a pod run for 3 s and end, and waits until that is reported.
func (w *world) end(pod string, code int32) {
	id := must(w.runtime.AddContainer(pod, fakeruntime.ContainerSpec{Name: "app"}))(w.t)
	check(w.t, w.runtime.Start(id))
	time.Sleep(3 * time.Second)
	check(w.t, w.runtime.Exit(id, code))
	time.Sleep(2 * time.Second)
}

// known returns the ends that the API server knows of, by namespace.
func known(w *world) map[string]int32 {
	got := make(map[string]int32)
	for _, e := range w.server.Events() {
		switch {
		case e.Regarding.Kind != "Pod":
		case e.Series != nil:
			got[e.Regarding.Namespace] += e.Series.Count
		default:
			got[e.Regarding.Namespace]++
		}
	}
	return got
}

// scripted is a sink with the next answer.
type scripted struct {
	stored *eventsv1.Event
	err    error
}

func (s *scripted) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return e, s.err
}

func (s *scripted) Update(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return e, s.err
}

func (s *scripted) Patch(context.Context, *eventsv1.Event, []byte) (*eventsv1.Event, error) {
	return s.stored, s.err
}

// left returns the attempts of the reports that are not known to be taken.
func left(s *Sink) (attempts []uint32) {
	for _, r := range s.reports {
		attempts = append(attempts, r.end.Attempt)
	}
	return attempts
}

// TestSink checks which reports each answer of the API server is about.
func TestSink(t *testing.T) {
	forbidden := apierrors.NewForbidden(eventsv1.Resource("events"), "x", errors.New("no"))
	end := func(attempt uint32, namespace, container string, code int32) *End {
		return &End{
			Kind:      Failed,
			Pod:       Ref{UID: "u", Namespace: namespace, Name: "p"},
			Container: container,
			Attempt:   attempt,
			ExitCode:  code,
			CodeKnown: true,
		}
	}
	event := func(e *End, at time.Time) *eventsv1.Event {
		return &eventsv1.Event{
			EventTime: metav1.NewMicroTime(at),
			Reason:    string(e.Kind),
			Action:    actionOf(e),
			Regarding: corev1.ObjectReference{Namespace: e.Pod.Namespace, UID: "u", FieldPath: fieldPathOf(e)},
		}
	}
	series := func(e *eventsv1.Event, last time.Time) *eventsv1.Event {
		e.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(last)}
		return e
	}
	second := func(n int) time.Time { return time.Now().Add(time.Duration(n) * time.Second) }
	app := end(0, "a", "app", 1)
	for _, test := range []struct {
		name string
		call func(sink *Sink, inner *scripted)
		want []uint32
	}{
		{"nothing", func(*Sink, *scripted) {}, []uint32{0, 1, 2, 3, 4}},
		{"an event of one end", func(sink *Sink, _ *scripted) {
			_, _ = sink.Create(t.Context(), event(app, second(-4)))
		}, []uint32{1, 2, 3, 4}},
		{"a series", func(sink *Sink, _ *scripted) {
			_, _ = sink.Patch(t.Context(), series(event(app, second(-4)), second(-1)), nil)
		}, []uint32{1, 2, 3}},
		{"a series without its last end", func(sink *Sink, _ *scripted) {
			_, _ = sink.Patch(t.Context(), series(event(app, second(-4)), second(-3)), nil)
		}, []uint32{1, 2, 3, 4}},
		{"a call that fails", func(sink *Sink, inner *scripted) {
			inner.err = errAway
			_, _ = sink.Create(t.Context(), event(app, second(0)))
			_, _ = sink.Patch(t.Context(), series(event(app, second(-4)), second(0)), nil)
		}, []uint32{0, 1, 2, 3, 4}},
		{"a read", func(sink *Sink, inner *scripted) {
			inner.stored = series(event(app, second(-4)), second(-3))
			_, _ = sink.Patch(t.Context(), event(app, second(-4)), nil)
		}, []uint32{1, 2, 3, 4}},
		{"a read of what the call does not know", func(sink *Sink, inner *scripted) {
			inner.stored = series(event(app, second(-4)), second(0))
			_, _ = sink.Patch(t.Context(), event(app, second(-4)), nil)
		}, []uint32{1, 2, 3}},
		{"an event of what has no token", func(sink *Sink, _ *scripted) {
			combined := series(event(app, second(-4)), second(0))
			combined.Action = combined.Reason
			combined.Regarding.FieldPath = ""
			_, _ = sink.Patch(t.Context(), combined, nil)
		}, []uint32{3}},
		{"given up, the refused first", func(sink *Sink, inner *scripted) {
			inner.err = forbidden
			_, _ = sink.Create(t.Context(), event(end(0, "b", "app", 1), second(0)))
			sink.bound(4)
		}, []uint32{0, 1, 2, 4}},
		{"refused, and away since", func(sink *Sink, inner *scripted) {
			inner.err = forbidden
			_, _ = sink.Create(t.Context(), event(end(0, "b", "app", 1), second(0)))
			inner.err = errAway
			_, _ = sink.Create(t.Context(), event(end(0, "b", "app", 1), second(0)))
			sink.bound(4)
		}, []uint32{0, 1, 2, 4}},
		{"refused, and taken in part since", func(sink *Sink, inner *scripted) {
			inner.err = forbidden
			_, _ = sink.Create(t.Context(), event(app, second(0)))
			inner.err = nil
			_, _ = sink.Create(t.Context(), event(app, second(-4)))
			sink.bound(3)
		}, []uint32{2, 3, 4}},
		{"refused, and tried again", func(sink *Sink, inner *scripted) {
			inner.err = forbidden
			_, _ = sink.Create(t.Context(), event(end(0, "b", "app", 1), second(0)))
			sink.bound(5)
		}, []uint32{0, 1, 2, 3, 4}},
		{"given up", func(sink *Sink, _ *scripted) { sink.bound(-1) }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &scripted{}
				sink := NewSink(inner)
				for i, e := range []*End{app, end(1, "a", "other", 1), end(2, "a", "app", 2), end(3, "b", "app", 1), end(4, "a", "app", 1)} {
					sink.add(e, false)
					time.Sleep(time.Second)
					if i == 0 {
						e.Attempt = 9 // a copy is kept
					}
				}
				app.Attempt = 0
				test.call(sink, inner)
				if got := left(sink); !slices.Equal(got, test.want) {
					t.Errorf("left %v, want %v", got, test.want)
				}
			})
		})
	}
}

// TestEqualReportsAtOnce: an Event counts the report before it, and not an equal one that follows
// at once, as when a process starts and makes its predecessor's reports again. A read shows the
// times of the stored Event in whole microseconds.
func TestEqualReportsAtOnce(t *testing.T) {
	for _, read := range []bool{false, true} {
		t.Run(fmt.Sprint("read ", read), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &scripted{}
				sink := NewSink(inner)
				time.Sleep(500 * time.Nanosecond) // a stored time has whole microseconds
				var first *eventsv1.Event
				for i := range uint32(3) {
					e := &End{Kind: Failed, Attempt: i, Container: "app", Pod: Ref{UID: "u", Namespace: "a"}}
					sink.add(e, true)
					if i == 0 {
						first = &eventsv1.Event{
							EventTime: metav1.NowMicro(),
							Reason:    string(e.Kind),
							Action:    actionOf(e),
							Regarding: corev1.ObjectReference{Namespace: "a", UID: "u", FieldPath: fieldPathOf(e)},
						}
					}
				}
				if read {
					inner.stored = first.DeepCopy()
					inner.stored.EventTime.Time = inner.stored.EventTime.Truncate(time.Microsecond)
					_, _ = sink.Patch(t.Context(), first, nil)
				} else {
					_, _ = sink.Create(t.Context(), first)
				}
				if got, want := left(sink), []uint32{1, 2}; !slices.Equal(got, want) {
					t.Errorf("left %v, want %v", got, want)
				}
			})
		})
	}
}

// TestSinkIsBounded: the oldest reports are forgotten, those of the last tick are not in the
// ledger, and what is in the ledger has another key after each change.
func TestSinkIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := NewSink(nil)
		for i := range maxUnsent + 10 {
			sink.add(&End{Attempt: uint32(i)}, false)
		}
		if sink.waiting() != maxUnsent || sink.reports[0].end.Attempt != 10 {
			t.Errorf("%d reports from %d", sink.waiting(), sink.reports[0].end.Attempt)
		}
		sink.bound(3)
		if got := left(sink); !slices.Equal(got, []uint32{maxUnsent + 7, maxUnsent + 8, maxUnsent + 9}) {
			t.Errorf("left %v, want the last three", got)
		}
		keys := make(map[unsentKey]bool)
		for step, want := range []int{0, 1, 4, 3} {
			switch step {
			case 1:
				sink.add(&End{}, true)
			case 2:
				time.Sleep(tick)
			case 3:
				sink.bound(3)
			}
			kept := sink.unsent(time.Now().Add(-tick))
			if len(kept.ends) != want || keys[kept.key] {
				t.Errorf("step %d: %d reports, want %d; the key is new: %v", step, len(kept.ends), want, !keys[kept.key])
			}
			keys[kept.key] = true
		}
	})
}

// TestWhatTheServerRefuses is given up first, whatever the server says, and so are ends that the
// Event about a namespace counts.
func TestWhatTheServerRefuses(t *testing.T) {
	events := eventsv1.Resource("events")
	for _, refusal := range []error{
		apierrors.NewForbidden(events, "x", errors.New("no")),
		apierrors.NewInvalid(eventsv1.SchemeGroupVersion.WithKind("Event").GroupKind(), "x", nil),
		apierrors.NewBadRequest("x"),
		apierrors.NewRequestEntityTooLargeError("x"),
		apierrors.NewNotFound(events, "x"), // the namespace is gone
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := &scripted{}
			sink := NewSink(inner)
			first := &End{Kind: Failed, Pod: Ref{UID: "u", Namespace: "a"}, Container: "app", Attempt: 1}
			sink.add(first, false)
			sink.count(keyOfCombined("b", Failed))
			second := &End{Kind: Failed, Pod: Ref{UID: "u", Namespace: "c"}, Container: "app", Attempt: 2}
			sink.add(second, false)
			time.Sleep(time.Second)
			inner.err = refusal
			for _, about := range []corev1.ObjectReference{
				{Namespace: "c", UID: "u", FieldPath: fieldPathOf(second)},
				{Namespace: "b"},
			} {
				e := &eventsv1.Event{
					EventTime: metav1.NowMicro(),
					Reason:    string(Failed),
					Action:    actionOf(second),
					Regarding: about,
				}
				if about.UID == "" {
					e.Action = combinedAction
				}
				_, _ = sink.Create(t.Context(), e)
			}
			sink.bound(1)
			if got := left(sink); !slices.Equal(got, []uint32{1}) || sink.waiting() != 1 {
				t.Errorf("%v: left %v, and %d in all, want the first alone", refusal, got, sink.waiting())
			}
		})
	}
}

// TestEndsOfAPodAtOnce: above the recorder's limits one Event counts the ends of all containers of
// a pod, and its time tells which. So no two of a kind have one time.
func TestEndsOfAPodAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := NewSink(&scripted{})
		for i, name := range []string{"a", "b", "a"} {
			sink.add(&End{
				Kind:      Failed,
				Pod:       Ref{UID: "u", Namespace: "ns"},
				Container: name,
				ExitCode:  int32(i),
				CodeKnown: true,
			}, false)
		}
		for i := range sink.reports[1:] {
			if apart := sink.reports[i+1].at.Sub(sink.reports[i].at); apart <= time.Microsecond {
				t.Errorf("ends %d and %d are %v apart", i, i+1, apart)
			}
		}
	})
}
