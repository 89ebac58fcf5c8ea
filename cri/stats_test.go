// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"reflect"
	"strings"
	"testing"
)

// TestCounts wants each number of Stats once from Counts, under its own name.
func TestCounts(t *testing.T) {
	s := Stats{Calls: map[string]uint64{"List": 1000}}
	want := map[float64]string{1000: "calls/list"}
	for i, f := range reflect.VisibleFields(reflect.TypeFor[Stats]()) {
		switch v := reflect.ValueOf(&s).Elem().Field(i); v.Kind() {
		case reflect.Uint64:
			v.SetUint(uint64(i))
		case reflect.Int:
			v.SetInt(int64(i))
		default:
			continue
		}
		want[float64(i)] = strings.ToLower(f.Name)
	}
	numbers := len(want) - len(s.Calls)
	serve(t, &stub{}, Config{}).Counts(func(string, float64) { numbers-- })
	if numbers != 0 {
		t.Errorf("Counts of a client yields %d numbers too few", numbers)
	}
	s.counts(func(name string, v float64) {
		if strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "client_"), "_", "")) != want[v] {
			t.Errorf("%s is yielded for %q", name, want[v])
		}
		delete(want, v)
	})
	if len(want) > 0 {
		t.Errorf("Counts leaves out %v", want)
	}
}
