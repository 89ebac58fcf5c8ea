// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientevents "k8s.io/client-go/tools/events"

	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/events/eventstest"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// TestEventstestAgrees sends the same requests to the real server and to package eventstest's
// server. Both must give the same answers: most tests of the recorder rely on the latter.
func TestEventstestAgrees(t *testing.T) {
	c := sharedCluster(t)
	admin := c.client(adminToken)
	makeNamespace(t, admin, "accept")
	fake := httptest.NewServer(eventstest.NewServer())
	defer fake.Close()
	other := testkit.Must(kubernetes.NewForConfig(&rest.Config{Host: fake.URL, QPS: -1}))(t)
	t.Run("events.k8s.io", func(t *testing.T) {
		agree(
			t,
			&clientevents.EventSinkImpl{Interface: admin.EventsV1()},
			&clientevents.EventSinkImpl{Interface: other.EventsV1()},
		)
	})
	t.Run("core", func(t *testing.T) { agree(t, events.NewClientSink(admin), events.NewClientSink(other)) })
}

// agree sends requests to two sinks, through one API.
func agree(t *testing.T, sinks ...clientevents.EventSink) {
	prefix := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")) + "-"
	now := metav1.NewMicroTime(time.Now())
	base := func(name string) *eventsv1.Event {
		return &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "accept",
				Name:      name,
			},
			EventTime:           now,
			ReportingController: "example.com/c",
			ReportingInstance:   "i",
			Action:              "A",
			Reason:              "R",
			Type:                "Normal",
			Note:                "n",
			Regarding:           corev1.ObjectReference{Kind: "Pod", Namespace: "accept", Name: "p", UID: "u"},
		}
	}
	// Both sinks are asked; the answers are compared by their codes.
	same := func(t *testing.T, ask func(s clientevents.EventSink) error) {
		t.Helper()
		var codes [2]int32
		var errs [2]error
		for i, s := range sinks {
			errs[i] = ask(s)
			if st, ok := errs[i].(apierrors.APIStatus); ok {
				codes[i] = st.Status().Code
			} else if errs[i] != nil {
				t.Fatal(errs[i])
			}
		}
		if codes[0] != codes[1] {
			t.Errorf("the real one says %d (%v), eventstest %d (%v)", codes[0], errs[0], codes[1], errs[1])
		}
	}

	for i, tc := range []struct {
		name   string
		change func(e *eventsv1.Event)
	}{
		{"as it should be", func(*eventsv1.Event) {}},
		{"upper case in the name", func(e *eventsv1.Event) { e.Name += ".X" }},
		{"a name of 253", func(e *eventsv1.Event) { e.Name = prefix + strings.Repeat("a", 253-len(prefix)) }},
		{"a name of 254", func(e *eventsv1.Event) { e.Name = prefix + strings.Repeat("a", 254-len(prefix)) }},
		{"no eventTime", func(e *eventsv1.Event) { e.EventTime = metav1.MicroTime{} }},
		{"no type", func(e *eventsv1.Event) { e.Type = "" }},
		{"another type", func(e *eventsv1.Event) { e.Type = "Error" }},
		{"no controller", func(e *eventsv1.Event) { e.ReportingController = "" }},
		{"a controller that is no qualified name", func(e *eventsv1.Event) { e.ReportingController = "a b" }},
		{"a controller of 64", func(e *eventsv1.Event) { e.ReportingController = strings.Repeat("a", 64) }},
		{"no instance", func(e *eventsv1.Event) { e.ReportingInstance = "" }},
		{"an instance of 128", func(e *eventsv1.Event) { e.ReportingInstance = strings.Repeat("a", 128) }},
		{"an instance of 129", func(e *eventsv1.Event) { e.ReportingInstance = strings.Repeat("a", 129) }},
		{"no action", func(e *eventsv1.Event) { e.Action = "" }},
		{"an action of 129", func(e *eventsv1.Event) { e.Action = strings.Repeat("a", 129) }},
		{"128 bytes of wide characters", func(e *eventsv1.Event) { e.Reason = strings.Repeat("é", 64) }},
		{"130 bytes of wide characters", func(e *eventsv1.Event) { e.Reason = strings.Repeat("é", 65) }},
		{"no reason", func(e *eventsv1.Event) { e.Reason = "" }},
		{"no note", func(e *eventsv1.Event) { e.Note = "" }},
		{"a note of 1024", func(e *eventsv1.Event) { e.Note = strings.Repeat("n", 1024) }},
		{"a note of 1025", func(e *eventsv1.Event) { e.Note = strings.Repeat("n", 1025) }},
		{"1026 bytes of wide characters", func(e *eventsv1.Event) { e.Note = strings.Repeat("€", 342) }},
		{"regarding in another namespace", func(e *eventsv1.Event) { e.Regarding.Namespace = "default" }},
		{"regarding without namespace", func(e *eventsv1.Event) { e.Regarding.Namespace = "" }},
		{"the same in default", func(e *eventsv1.Event) { e.Regarding.Namespace, e.Namespace = "", "default" }},
		{"the same in kube-system", func(e *eventsv1.Event) { e.Regarding.Namespace, e.Namespace = "", "kube-system" }},
		{"a deprecated count", func(e *eventsv1.Event) { e.DeprecatedCount = 1 }},
		{"a deprecated source", func(e *eventsv1.Event) { e.DeprecatedSource.Component = "x" }},
		{"a series of 2", func(e *eventsv1.Event) { e.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: now} }},
		{"a series of 1", func(e *eventsv1.Event) { e.Series = &eventsv1.EventSeries{Count: 1, LastObservedTime: now} }},
		{"a series without a time", func(e *eventsv1.Event) { e.Series = &eventsv1.EventSeries{Count: 2} }},
		{"a bad annotation", func(e *eventsv1.Event) { e.Annotations = map[string]string{"bad key": ""} }},
		{"huge annotations", func(e *eventsv1.Event) { e.Annotations = map[string]string{"k": strings.Repeat("x", 257<<10)} }},
		{"odd references", func(e *eventsv1.Event) {
			e.Regarding.Name, e.Regarding.UID = "UPPER case/\x00", "\n"
			e.Related = &corev1.ObjectReference{Namespace: "Not A Namespace"}
		}},
	} {
		t.Run("create/"+tc.name, func(t *testing.T) {
			e := base(fmt.Sprintf("%screate-%d", prefix, i))
			tc.change(e)
			create := func(s clientevents.EventSink) error { _, err := s.Create(t.Context(), e.DeepCopy()); return err }
			same(t, create)
			same(t, create) // again: the name is taken now, or it is as bad as before
		})
	}

	for i, patch := range []string{
		"{}", "{\"series\":{\"count\":5,\"lastObservedTime\":\"2026-01-01T00:00:00.000000Z\"}}", "{\"series\":{\"count\":1,\"lastObservedTime\":\"2026-01-01T00:00:00.000000Z\"}}",
		"{\"note\":\"other\"}", "{\"reason\":\"other\"}", "{\"metadata\":{\"annotations\":{\"a\":\"b\"}}}", "{\"metadata\":{\"annotations\":{\"a b\":\"b\"}}}",
		"{\"metadata\":{\"labels\":{\"a\":\"b\"}}}", "{\"metadata\":{\"resourceVersion\":\"1\"}}", "not json",
	} {
		t.Run("patch/"+patch, func(t *testing.T) {
			e := base(fmt.Sprintf("%spatch-%d", prefix, i))
			if patch != "not json" { // the versions disagree on which of the two faults comes first
				same(
					t,
					func(s clientevents.EventSink) error { _, err := s.Patch(t.Context(), e, []byte(patch)); return err },
				) // it is not there
			}
			same(
				t,
				func(s clientevents.EventSink) error { _, err := s.Create(t.Context(), e.DeepCopy()); return err },
			)
			same(
				t,
				func(s clientevents.EventSink) error { _, err := s.Patch(t.Context(), e, []byte(patch)); return err },
			)
		})
	}

	t.Run("put", func(t *testing.T) {
		e := base(prefix + "put")
		e.Series = &eventsv1.EventSeries{Count: 9, LastObservedTime: now}
		same(
			t,
			func(s clientevents.EventSink) error { _, err := s.Update(t.Context(), e.DeepCopy()); return err },
		) // creates
		e.Series.Count = 3 // may go down
		same(
			t,
			func(s clientevents.EventSink) error { _, err := s.Update(t.Context(), e.DeepCopy()); return err },
		)
		stale := e.DeepCopy()
		stale.ResourceVersion = "1"
		same(
			t,
			func(s clientevents.EventSink) error { _, err := s.Update(t.Context(), stale.DeepCopy()); return err },
		)
		e.Note = "other"
		same(
			t,
			func(s clientevents.EventSink) error { _, err := s.Update(t.Context(), e.DeepCopy()); return err },
		)
	})
}
