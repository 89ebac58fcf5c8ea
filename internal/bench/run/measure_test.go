// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import "testing"

// TestProcessCPU checks that the CPU time of a restarted runtime is unknown, and never less than
// nothing.
func TestProcessCPU(t *testing.T) {
	before := &processCPU{process: "7 since 100", seconds: 3}
	for name, tt := range map[string]struct {
		before, after *processCPU
		want          float64 // below 0: unknown
	}{
		"the same process":   {before, &processCPU{process: "7 since 100", seconds: 5}, 2},
		"another process":    {before, &processCPU{process: "8 since 200", seconds: 1}, -1},
		"another, same ID":   {before, &processCPU{process: "7 since 200", seconds: 5}, -1},
		"unknown before":     {nil, before, -1},
		"unknown afterwards": {before, nil, -1},
	} {
		got := tt.after.since(tt.before)
		if (got == nil) != (tt.want < 0) || got != nil && *got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
