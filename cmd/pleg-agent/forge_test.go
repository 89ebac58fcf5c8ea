// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// printed returns what an Event prints, counted so often.
func printed(t *testing.T, asJSON bool, name, note string, count int32) string {
	t.Helper()
	var out bytes.Buffer
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e"},
		Type:       "Warning",
		Reason:     "ContainerFailed",
		Regarding:  corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: name},
		Note:       note,
	}
	if count > 1 {
		e.Series = &eventsv1.EventSeries{Count: count}
	}
	_, err := newPrinter(&out, asJSON).Create(t.Context(), e)
	testkit.Check(t, err)
	return out.String()
}

// TestATenantForgesNoCount: the count of a line is not to be taken for the end of a note, which may
// be a tenant's text, or the runtime's.
func TestATenantForgesNoCount(t *testing.T) {
	const boom = "the pod's status cannot be read: boom"
	ours := regexp.MustCompile(`^\S+ +Warning +ContainerFailed +ns/p +\(x(\d+)\) `)
	for _, c := range []struct {
		note  string
		count int32
		want  string
	}{{boom, 1, ""}, {boom, 2, "2"}, {boom + " (x99)", 1, ""}, {boom + " (x99)", 2, "2"}} {
		line := printed(t, false, "p", c.note, c.count)
		got := ""
		if match := ours.FindStringSubmatch(line); match != nil {
			got = match[1]
		}
		if got != c.want || !strings.HasSuffix(line, c.note+"\n") {
			t.Errorf("%s, counted %d: %s", c.note, c.count, line)
		}
	}
}

// TestATenantForgesNoLine: the name of a pod stays in its column.
func TestATenantForgesNoLine(t *testing.T) {
	for _, name := range []string{"p  Container db failed", "p/q", `p"`, "p\nq", "p\x1b[2K", "\u202ep", "", "p\u3164q", strings.Repeat("p ", 5000)} {
		line := printed(t, false, name, "note", 1)
		if !regexp.MustCompile(`^\S+ +Warning +ContainerFailed +ns/"(?:[^"\\]|\\.)*"(?:… \(\d+ bytes\))? +note\n$`).MatchString(line) {
			t.Errorf("%.100q: %.300s", name, line)
		}
		var is struct {
			Name  string
			Count int
		}
		testkit.Check(t, json.Unmarshal([]byte(printed(t, true, name, "note", 3)), &is))
		if is.Count != 3 || len(name) < 100 && is.Name != name {
			t.Errorf("%.100q is %+v in JSON", name, is)
		}
	}
	for _, name := range []string{"worker-5d9f7", "static-n1.example"} {
		testkit.Says(t, "a usual name", printed(t, false, name, "note", 1), fmt.Sprintf("ns/%-21s  note", name))
	}
}
