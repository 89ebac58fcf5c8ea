// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import "testing"

// TestThinned wants a list of many values to be bounded, even and from all of its time.
func TestThinned(t *testing.T) {
	l := thinned[int]{most: 8}
	for i := range 1000 {
		l.add(i)
		if len(l.list) > l.most {
			t.Fatalf("%d values are kept of %d, at most %d may be", len(l.list), i+1, l.most)
		}
	}
	for i, v := range l.list {
		if v != i*l.every {
			t.Errorf("value %d is %d, want every %dth: %v", i, v, l.every, l.list)
		}
	}
	if last := l.list[len(l.list)-1]; last < 1000-l.every {
		t.Errorf("the last value kept is %d of 1000, with every %dth kept", last, l.every)
	}
}
