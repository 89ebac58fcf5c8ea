// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checkCounts wants each number of Stats once from Counts.
func checkCounts(t *testing.T, c *Client) {
	t.Helper()
	got := make(map[string]float64)
	c.Counts(func(name string, v float64) {
		if _, twice := got[name]; twice {
			t.Errorf("%s is yielded twice", name)
		}
		got[name] = v
	})
	s := c.Stats()
	want := map[string]float64{
		"client_connects": float64(s.Connects), "client_abandoned": float64(s.Abandoned),
		"client_unattributed": float64(s.Unattributed), "client_malformed": float64(s.Malformed),
		"client_duplicates": float64(s.Duplicates), "client_unknown_events": float64(s.UnknownEvents),
		"client_unknown_states": float64(s.UnknownStates), "client_incomplete_events": float64(s.IncompleteEvents),
		"client_oversized_events": float64(s.OversizedEvents), "client_late_exits": float64(s.LateExits),
	}
	for method, n := range s.Calls {
		want["client_calls/"+method] = float64(n)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Counts beside Stats (-want +got):\n%s", diff)
	}
}

// TestCountsForgetNothing wants every number of Stats in Counts.
func TestCountsForgetNothing(t *testing.T) {
	numbers := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Stats]()) {
		if f.Type.Kind() != reflect.Map && f.Type.Kind() != reflect.String {
			numbers++
		}
	}
	plain := 0
	serve(t, &stub{}, Config{}).Counts(func(name string, _ float64) {
		if !strings.Contains(name, "/") {
			plain++
		}
	})
	if plain != numbers {
		t.Errorf("Stats has %d numbers, Counts yields %d", numbers, plain)
	}
}
