// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"testing"
	"time"
)

func TestRecent(t *testing.T) {
	at := func(d time.Duration) instant { return firstInstant.add(d) }
	var r recent
	if got := r.asOf(at(time.Hour)); got != 0 {
		t.Errorf("nothing is known, and the longest lasted %v", got)
	}
	for _, step := range []struct {
		what string
		took time.Duration // zero: none has ended
		at   time.Duration
		want time.Duration
	}{
		{"the first", 8 * time.Second, 0, 8 * time.Second},
		{"a shorter one", time.Second, time.Second, 8*time.Second - 7*time.Second/8},
		{"a longer one", 16 * time.Second, 2 * time.Second, 16 * time.Second},
		{"less than a minute later", 0, time.Minute + time.Second, 16 * time.Second},
		{"a minute later", 0, time.Minute + 2*time.Second, 8 * time.Second},
		{"two minutes later", 0, 2*time.Minute + 2*time.Second, 4 * time.Second},
		{"years later", 0, 1e6 * time.Hour, 1},
		{"before that", 0, 0, 16 * time.Second},
		{"a short one after two minutes", time.Second, 2*time.Minute + 2*time.Second, 4*time.Second - 3*time.Second/8},
	} {
		if step.took != 0 {
			r.add(step.took, at(step.at))
		}
		if got := r.asOf(at(step.at)); got != step.want {
			t.Errorf("%s: %v, want %v", step.what, got, step.want)
		}
	}
}
