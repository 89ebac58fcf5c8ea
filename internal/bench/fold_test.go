// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strings"
	"testing"
)

func TestFold(t *testing.T) {
	long := strings.Repeat("word ", 40) + strings.Repeat("x", 100) + " end"
	got := Fold(long, 4)
	if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(long), " ") {
		t.Errorf("words were lost or made: %q", got)
	}
	for i, line := range strings.Split(got, "\n") {
		if n := len([]rune(line)); n > Columns && !strings.Contains(line, "xxx") {
			t.Errorf("line %d has %d columns: %q", i, n, line)
		}
		if i > 0 && !strings.HasPrefix(line, "    ") {
			t.Errorf("line %d is not indented: %q", i, line)
		}
	}
	if got := Fold("short", 4); got != "short" {
		t.Errorf("Fold changed a short line to %q", got)
	}
}

// TestTextFits80Columns of a run with everything that it may tell.
func TestTextFits80Columns(t *testing.T) {
	r := &Result{OK: true, Comparison: &ComparisonResult{}}
	r.Load.Faults = []string{"drop=0.3", "stale=0.5", "swap-stop-delete=1", "hang-status=1", "duplicate=0.5"}
	r.Load.Broken, r.Load.Errors = 12345, map[string]int{"StartContainer": 12000, "StopPodSandbox": 345}
	r.Events.Unseen, r.Events.Changes = 123456, 1234567
	r.Consistency.BeforeRelist = 1000
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimRight(line, "\n"); len([]rune(line)) > Columns {
			t.Errorf("%d columns: %q", len([]rune(line)), line)
		}
	}
}
