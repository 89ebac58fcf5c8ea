// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// TestRestarts: a process that ends in order and comes back ten times in the middle of a series leaves one object with the exact count.
func TestRestarts(t *testing.T) {
	for _, tc := range []struct {
		name string
		list bool
		per  int // occurrences between two restarts
	}{
		{"by name", false, 100}, {"by list", true, 100}, {"one occurrence each, by name", false, 1}, {"one occurrence each, by list", true, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := eventstest.NewServer()
				const times = 11
				for range times {
					r := idleRig(t, server, func(o *Options) {
						if tc.list {
							o.List = server.List
						}
					})
					r.start()
					for range tc.per {
						r.pod("a", 1)
						pass(100 * time.Millisecond)
					}
					if err := r.shutdown(time.Second); err != nil {
						t.Fatal(err)
					}
					r.wantBooks(0, 0)
					pass(time.Minute)
				}
				r := newRig(t, server, nil)
				r.wantTold(fmt.Sprintf("Unknown ×%d", times*tc.per))
				r.pod("a", 1)
				pass(6 * time.Minute)
				r.wantTold(fmt.Sprintf("Finished ×%d", times*tc.per+1))
			})
		})
	}
}

// TestListedSeriesIsFinished: with a list, a series whose occurrences ended with the process is finished by the next one.
func TestListedSeriesIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		r := newRig(t, server, nil)
		r.pod("a", 7)
		pass(time.Second)
		if err := r.shutdown(time.Second); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		next := newRig(t, server, func(o *Options) { o.List = server.List })
		settle(next)
		pass(6 * time.Minute)
		next.wantTold("Finished ×7")
	})
}

// TestSeriesOfClientGoIsContinued: an event that another recorder named is found by the list and keeps its name.
func TestSeriesOfClientGoIsContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		ref := podRef("a")
		now := metav1.NewMicroTime(time.Now())
		if _, err := server.Sink().Create(t.Context(), &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a.17e2"}, EventTime: now, Type: "Warning", Reason: "BackOff", Action: "Restarting",
			ReportingController: controller, ReportingInstance: "node-1", Regarding: *ref, Note: "old",
			Series: &eventsv1.EventSeries{Count: 40, LastObservedTime: now},
		}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		r := newRig(t, server, func(o *Options) { o.List = server.List })
		r.pod("a", 2)
		pass(6 * time.Minute)
		r.wantTold("Finished ×42")
		if e := r.one(); e.Name != "a.17e2" {
			t.Errorf("its name is %s", e.Name)
		}
	})
}

func TestListRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		for range 2 {
			r := newRig(t, server, func(o *Options) {
				o.List = func(context.Context, string, string) ([]eventsv1.Event, string, error) {
					return nil, "", apierrors.NewForbidden(resource, "", errors.New("a node may not list"))
				}
			})
			r.pod("a", 5)
			pass(time.Second)
			if err := r.shutdown(time.Second); err != nil {
				t.Fatal(err)
			}
		}
		r := newRig(t, server, nil)
		r.wantTold("Unknown ×10")
	})
}

// TestRestartLater: after more than the threshold it is another series, under another name, also for the restart after that.
func TestRestartLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		run := func(n int) {
			r := newRig(t, server, nil)
			r.pod("a", n)
			pass(time.Second)
			if err := r.shutdown(time.Second); err != nil {
				t.Fatal(err)
			}
		}
		run(2)
		pass(10 * time.Minute)
		run(3)
		pass(10 * time.Minute)
		run(4)
		pass(time.Minute)
		run(5) // continues
		all := server.Events()
		if len(all) != 3 || told(&all[0]) != "Unknown ×2" || told(&all[1]) != "Unknown ×3" || told(&all[2]) != "Unknown ×9" {
			t.Errorf("stored: %s", brief(all))
		}
	})
}

// TestRestartWithinALaterLongSeries: the third series goes on for five hours, long after the first has expired; a restart still finds it.
func TestRestartWithinALaterLongSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		r := newRig(t, server, nil)
		for range 2 {
			r.pod("a", 2)
			pass(7 * time.Minute)
		}
		n := 0
		for range 5 * 60 {
			r.pod("a", 1)
			n++
			pass(time.Minute)
		}
		if err := r.shutdown(time.Second); err != nil {
			t.Fatal(err)
		}
		next := newRig(t, server, nil)
		next.pod("a", 1)
		pass(6 * time.Minute)
		all := server.Events()
		if last := told(&all[len(all)-1]); last != fmt.Sprintf("Finished ×%d", n+1) {
			t.Errorf("stored: %s, want the last one to count %d", brief(all), n+1)
		}
	})
}

// TestForeignObjectUnderOurName: the name is taken by something that is not ours; it stays as it is.
func TestForeignObjectUnderOurName(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(e *eventsv1.Event)
	}{
		{"another controller", func(e *eventsv1.Event) { e.ReportingController = "other" }},
		{"another instance", func(e *eventsv1.Event) { e.ReportingInstance = "node-2" }},
		{"another UID", func(e *eventsv1.Event) { e.Regarding.UID = "older" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				scratch := eventstest.NewServer()
				r := newRig(t, scratch, nil)
				r.pod("a", 1)
				settle(r)
				foreign := r.one()
				foreign.ResourceVersion, foreign.Generation = "", 0
				tc.change(&foreign)

				server := eventstest.NewServer()
				if _, err := server.Sink().Create(t.Context(), &foreign); err != nil {
					t.Fatal(err)
				}
				next := newRig(t, server, nil)
				next.pod("a", 3)
				pass(6 * time.Minute)
				all := server.Events()
				if len(all) != 2 || told(&all[0]) != "single" || told(&all[1]) != "Finished ×3" {
					t.Errorf("stored: %s", brief(all))
				}
				next.wantBooks(0, 0)
			})
		})
	}
}

// TestEveryNameTaken: whatever the server holds, the walk ends.
func TestEveryNameTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		n := 0
		server.SetFault(func(_ context.Context, c eventstest.Call) error {
			if c.Verb == eventstest.Create && n < 100 {
				n++
				return apierrors.NewAlreadyExists(resource, c.Name)
			}
			return nil
		})
		r := newRig(t, server, nil)
		r.pod("a", 2)
		pass(6 * time.Minute)
		r.wantBooks(0, 0)
		r.wantTold("Finished ×2")
	})
}

// TestCreateOnlyRole: a role that may create but not patch keeps its first events; what cannot be told is counted.
func TestCreateOnlyRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetFault(func(_ context.Context, c eventstest.Call) error {
			if c.Verb == eventstest.Patch {
				return apierrors.NewForbidden(resource, c.Name, errors.New("no"))
			}
			return nil
		})
		for range 2 {
			r := newRig(t, server, nil)
			r.pod("a", 3)
			pass(time.Second)
			_ = r.shutdown(time.Second)
			r.wantBooks(2, 0)
		}
		if n := len(server.Events()); n != 2 {
			t.Errorf("%d events", n)
		}
	})
}

func TestClockBehindTheStoredEvent(t *testing.T) {
	p := policy{threshold: 6 * time.Minute, heartbeat: 30 * time.Minute}
	now := time.Now()
	for _, tc := range []struct {
		ahead time.Duration
		want  bool
	}{{0, true}, {5 * time.Minute, true}, {-5 * time.Minute, true}, {6 * time.Minute, false}, {-6 * time.Minute, false}, {time.Hour, false}} {
		s := begin(now)
		s.task = taskRead
		_, e := step(s, input{kind: inDone, now: now, op: op{kind: opRead}, seen: snapshot{ours: true, count: 9, series: true, eventTime: now.Add(tc.ahead - time.Hour), last: now.Add(tc.ahead)}}, &p)
		if e.adopted != tc.want {
			t.Errorf("an event %v ahead: adopted is %t", tc.ahead, e.adopted)
		}
	}
}
