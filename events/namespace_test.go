// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// tenantWeather is what befalls the calls of one namespace.
type tenantWeather struct {
	name  string
	fault eventstest.Fault
	after eventstest.AfterFault
	// loses: the server's word is that the events are not taken.
	loses bool
}

// namespaceWeathers are those that the API server has for a namespace. Where nobody listens, no
// namespace is to blame: TestNothingIsLostInTrouble has that.
func namespaceWeathers() []tenantWeather {
	quota := apierrors.NewForbidden(resource, "x", errors.New("exceeded quota: events, used: 100, limited: 100"))
	terminating := apierrors.NewForbidden(resource, "x", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "bad")
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "x", nil)
	busy := status(429, metav1.StatusReasonTooManyRequests, 60)
	conflict := apierrors.NewConflict(resource, "x", errors.New("modified"))
	creates := func(c eventstest.Call) bool { return c.Verb == eventstest.Create }
	patches := func(c eventstest.Call) bool { return c.Verb == eventstest.Patch }
	cut := func(eventstest.Call) error { return errReset }
	n := 0
	return []tenantWeather{
		{name: "quota exceeded", fault: where(creates, always(quota)), loses: true},
		{name: "quota that a few get", loses: true, fault: where(creates, serially(func(context.Context, eventstest.Call) error {
			n++
			if n%5 == 0 {
				return nil
			}
			return quota
		}))},
		{name: "terminating", fault: where(creates, always(terminating)), loses: true},
		{name: "gone", fault: where(creates, always(gone)), loses: true},
		{name: "422 for all", fault: always(invalid), loses: true},
		{name: "422 for patches", fault: where(patches, always(invalid))},
		{name: "429 for a minute", fault: always(busy)},
		{name: "409 for patches", fault: where(patches, always(conflict))},
		{name: "expired", fault: where(patches, always(apierrors.NewNotFound(resource, "x")))},
		{name: "29 s a call", fault: slowly(29 * time.Second)},
		{name: "31 s a call", fault: slowly(31 * time.Second)},
		{name: "answers are lost", after: cut},
		{name: "answers are late and lost", fault: slowly(29 * time.Second), after: cut},
	}
}

// TestWeatherOfANamespace: an hour of each weather delays no event of another namespace. Then all
// that the server does not refuse is stored, once.
func TestWeatherOfANamespace(t *testing.T) {
	for _, w := range underRace(namespaceWeathers()) {
		t.Run(w.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.server.SetTTL(100 * time.Hour)
				r.in("bad", "loop")
				r.in("good-0", "before")
				pass(time.Minute)
				if w.fault != nil {
					bad := func(c eventstest.Call) bool { return c.Namespace == "bad" }
					r.server.SetFault(where(bad, w.fault))
				}
				r.server.SetAfterFault(func(c eventstest.Call) error {
					if w.after != nil && c.Namespace == "bad" {
						return w.after(c)
					}
					return nil
				})
				emitted := map[string]time.Time{}
				for i := range fewer(360, 6) {
					name := fmt.Sprint("other-", i)
					r.in("bad", "loop")
					r.in("bad", fmt.Sprint("new-", i))
					pass(time.Second)
					emitted[name] = time.Now()
					r.in(fmt.Sprint("good-", i%3), name)
					pass(9 * time.Second)
				}
				r.server.SetFault(nil)
				r.server.SetAfterFault(nil)
				pass(time.Hour)
				r.wantSoon(emitted)
				r.wantWeathered(w)
			})
		})
	}
}

// wantSoon checks that the events about pods were stored within two seconds.
func (r *rig) wantSoon(emitted map[string]time.Time) {
	r.t.Helper()
	var worst time.Duration
	for _, c := range r.server.Calls() {
		name, _, _ := strings.Cut(c.Name, ".")
		at, ok := emitted[name]
		if ok && c.Err == nil && c.Verb == eventstest.Create {
			worst = max(worst, c.At.Sub(at))
			delete(emitted, name)
		}
	}
	if worst > 2*time.Second || len(emitted) > 0 {
		r.t.Errorf("events of other namespaces are stored up to %v late, %d never", worst, len(emitted))
	}
}

// wantWeathered checks that the books and the server agree after a weather.
func (r *rig) wantWeathered(w tenantWeather) {
	r.t.Helper()
	s := r.Stats()
	dropped := sum(s.Dropped)
	if !w.loses {
		r.wantBooks(0, 0)
	}
	count, ongoing := stored(r.server)
	if count != s.Emitted-dropped || s.Unsent != 0 || ongoing > 0 {
		r.t.Errorf("emitted %d, dropped %v, unsent %d, stored %d, %d are Ongoing",
			s.Emitted, s.Dropped, s.Unsent, count, ongoing)
	}
}
