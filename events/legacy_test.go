// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

func withFallback(server *eventstest.Server) func(*Options) {
	return func(o *Options) { o.Legacy, o.Probe = server.LegacySink(), server.Probe }
}

func TestGroupAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetGroupAbsent(true)
		r := newRig(t, server, withFallback(server))
		for range 5 {
			r.pod("a", 1)
			pass(time.Second)
		}
		all := server.CoreEvents()
		if len(all) != 1 || all[0].Count != 5 {
			t.Fatalf("stored: %+v", all)
		}
		e := all[0]
		if e.Source != (corev1.EventSource{Component: controller, Host: "node-1"}) || e.Reason != "BackOff" || e.Message != "back-off a" || e.Type != "Warning" {
			t.Errorf("stored: %+v", e)
		}
		if !r.Stats().Legacy {
			t.Error("Stats does not tell of the fallback")
		}
		r.wantBooks(0, 0)
	})
}

func TestLegacyCorrelatorFiltersAndAggregates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetGroupAbsent(true)
		r := newRig(t, server, withFallback(server))
		r.pod("other", 1)
		settle(r)
		for i := range 40 {
			r.rec.Eventf(podRef("a"), nil, "Normal", "Created", "Create", "message %d", i)
		}
		pass(time.Second)
		combined := 0
		for _, e := range server.CoreEvents() {
			if strings.HasPrefix(e.Message, "(combined from similar events): ") {
				combined++
			}
		}
		if n := len(server.CoreEvents()); n != 11 || combined != 1 {
			t.Errorf("%d events, %d of them combined; want 11 and 1", n, combined)
		}
		r.wantBooks(15, 0)
		if n := r.Stats().Dropped[DropSpamFilter]; n != 15 {
			t.Errorf("filtered %d, want 15", n)
		}
	})
}

// TestUnreachableIsNotAbsent: a server that is away at the start is not taken for an old one.
func TestUnreachableIsNotAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetFault(during(5*time.Minute, errAway))
		r := newRig(t, server, withFallback(server))
		r.pod("a", 3)
		pass(20 * time.Minute)
		r.wantTold("Finished ×3")
		if n := len(server.CoreEvents()); n != 0 {
			t.Errorf("%d legacy events", n)
		}
		r.wantBooks(0, 0)
	})
}

// TestAbsentAndThenUnreachable: the probe fails; events wait, and go to where they belong in the end.
func TestAbsentAndThenUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetGroupAbsent(true)
		fault := during(3*time.Minute, errAway)
		server.SetFault(func(ctx context.Context, c eventstest.Call) error {
			if c.Verb == eventstest.Probe || c.Core {
				return fault(ctx, c)
			}
			return nil
		})
		r := newRig(t, server, withFallback(server))
		r.pod("a", 4)
		pass(10 * time.Minute)
		all := server.CoreEvents()
		if len(all) != 1 || all[0].Count != 4 {
			t.Errorf("stored: %+v", all)
		}
		r.wantBooks(0, 0)
	})
}

func TestGroupAppears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetGroupAbsent(true)
		r := newRig(t, server, withFallback(server))
		r.pod("a", 2)
		pass(time.Minute)
		server.SetGroupAbsent(false)
		pass(6 * time.Minute)
		r.pod("a", 3)
		pass(6 * time.Minute)
		r.wantTold("Finished ×3")
		if all := server.CoreEvents(); len(all) != 1 || all[0].Count != 2 {
			t.Errorf("legacy events: %+v", all)
		}
		if r.Stats().Legacy {
			t.Error("still in legacy mode")
		}
		r.wantBooks(0, 0)
	})
}

// TestGroupDisappears: what the server was not told of goes the old way, also if several calls are under way at that moment.
func TestGroupDisappears(t *testing.T) {
	for _, writers := range []int{1, 4} {
		t.Run(fmt.Sprint(writers, " writers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := eventstest.NewServer()
				server.SetFault(slowly(time.Second))
				r := newRig(t, server, func(o *Options) {
					withFallback(server)(o)
					o.Writers = writers
				})
				for i := range 8 {
					r.pod(fmt.Sprint("a", i), 5)
				}
				pass(time.Minute)
				server.SetGroupAbsent(true)
				for i := range 8 {
					r.pod(fmt.Sprint("a", i), 10)
					r.pod(fmt.Sprint("b", i), 1)
				}
				pass(time.Minute)
				if all := server.CoreEvents(); len(all) != 16 {
					t.Errorf("%d legacy events", len(all))
				}
				if err := r.shutdown(time.Minute); err != nil {
					t.Error(err)
				}
				r.wantBooks(0, 0)
				if r.tab.all != 0 {
					t.Errorf("%d series are left", r.tab.all)
				}
			})
		})
	}
}

func TestLegacyTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetGroupAbsent(true)
		r := newRig(t, server, withFallback(server))
		r.pod("a", 1)
		pass(time.Second)
		server.SetFault(during(time.Minute, status(429, metav1.StatusReasonTooManyRequests, 0)))
		for i := range 10 {
			r.pod(fmt.Sprint("p", i), 2)
			pass(5 * time.Second)
		}
		pass(5 * time.Minute)
		all := server.CoreEvents()
		if len(all) != 11 {
			t.Errorf("%d events, want 11", len(all))
		}
		r.wantBooks(0, 0)
	})
}

func TestLegacyObjectGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetGroupAbsent(true)
		server.SetTTL(time.Minute)
		r := newRig(t, server, withFallback(server))
		r.pod("a", 1)
		pass(2 * time.Minute)
		r.pod("a", 1)
		pass(time.Second)
		if all := server.CoreEvents(); len(all) != 1 || all[0].Count != 2 {
			t.Errorf("stored: %+v", all)
		}
		r.wantBooks(0, 0)
	})
}

func TestLegacyQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetGroupAbsent(true)
		r := newRig(t, server, func(o *Options) {
			withFallback(server)(o)
			o.MaxQueue = 20
		})
		r.pod("a", 1)
		settle(r)
		server.SetFault(during(time.Minute, errAway))
		for i := range 100 {
			r.pod(fmt.Sprint("p", i), 1)
		}
		r.wantBooks(80, 20)
		pass(10 * time.Minute)
		r.wantBooks(80, 0)
	})
}

// TestNoFallback: without a legacy sink the events of an old server wait, bounded, and are sent when it is upgraded.
func TestNoFallback(t *testing.T) {
	for _, probe := range []bool{false, true} {
		t.Run(fmt.Sprint("probe ", probe), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := eventstest.NewServer()
				server.SetGroupAbsent(true)
				r := newRig(t, server, func(o *Options) {
					if probe {
						o.Probe = server.Probe
					}
				})
				r.pod("a", 4)
				pass(10 * time.Minute)
				r.wantBooks(0, 4)
				server.SetGroupAbsent(false)
				pass(10 * time.Minute)
				r.wantTold("Finished ×4")
				r.wantBooks(0, 0)
			})
		})
	}
}

// TestOddNotFound: the server knows Events and still answers a create with 404. That is about this event.
func TestOddNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetFault(func(_ context.Context, c eventstest.Call) error {
			if c.Verb == eventstest.Create {
				return status(404, metav1.StatusReasonNotFound, 0)
			}
			return nil
		})
		r := newRig(t, server, withFallback(server))
		r.pod("a", 4)
		pass(time.Second)
		r.wantVerbs("create! probe create!")
		r.wantBooks(4, 0)
	})
}

func TestLegacyFace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		r := newRig(t, server, func(o *Options) { o.Instance = "" })
		face := r.NewLegacyRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: "node-7"})
		face.Event(testPod("a"), "Warning", "Failed", "100% wrong: %d %s")
		face.Eventf(testPod("b"), "Normal", "Pulled", "image %q in %v", "x", time.Second)
		face.AnnotatedEventf(testPod("c"), map[string]string{"example.com/a": "b"}, "Normal", "Created", "container %d", 3)
		face.Eventf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-7"}}, "Normal", "NodeReady", "ready")
		synctest.Wait()
		all := server.Events()
		if len(all) != 4 {
			t.Fatalf("stored: %s", brief(all))
		}
		for i, note := range []string{"100% wrong: %d %s", "image \"x\" in 1s", "container 3", "ready"} {
			e := all[i]
			if e.Note != note || e.Action != e.Reason || e.ReportingController != "kubelet" || e.ReportingInstance != "node-7" {
				t.Errorf("stored: %+v", e)
			}
		}
		if all[2].Annotations["example.com/a"] != "b" {
			t.Errorf("annotations: %v", all[2].Annotations)
		}
		if all[3].Namespace != "kube-system" {
			t.Errorf("the node's event is in %q", all[3].Namespace)
		}
	})
}

func TestProbeErrorIsNotAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetGroupAbsent(true)
		r := newRig(t, server, func(o *Options) {
			o.Legacy = server.LegacySink()
			o.Probe = func(context.Context) (bool, error) { return false, errors.New("discovery is broken") }
		})
		r.pod("a", 1)
		pass(time.Hour)
		if n := len(server.CoreEvents()); n != 0 {
			t.Errorf("%d legacy events", n)
		}
		r.wantBooks(0, 1)
	})
}
