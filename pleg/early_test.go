// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"testing"
	"time"
)

// TestADeletedIsRemembered: that an ID is gone which no read has shown is remembered for the grace,
// whatever lists show meanwhile, and no longer, whether or not the claim says whose it is.
func TestADeletedIsRemembered(t *testing.T) {
	w := newMoving()
	w.list()
	remembered := func(when string, want int) {
		t.Helper()
		w.core.expire(w.now)
		w.core.housekeep(w.now)
		w.settle()
		if n := len(w.core.unowned) + w.core.unconfirmed; n != want {
			t.Errorf("%s %d of 4 are remembered, want %d", when, n, want)
		}
	}
	b := &batch[status]{claims: 4}
	for i := range 4 {
		l := &podClaims[status]{claims: 1, latest: []latestClaim{{item: Item{ID: fmt.Sprint("gone", i), Phase: PhaseRemoved}}}}
		if i%2 == 0 {
			l.pod = "p"
		}
		b.pods = append(b.pods, l)
	}
	w.claims(b, w.now)
	remembered("at once", 4)
	w.now = w.now.add(100 * time.Millisecond)
	w.list()
	w.now = w.now.add(1800 * time.Millisecond)
	remembered("after a list, within the grace,", 4)
	w.now = w.now.add(10 * time.Second)
	remembered("after the grace", 0)
	if s := w.core.stats(); s.Pods != 0 || s.DirtyPods != 0 || s.Inspections != 0 {
		t.Errorf("something was read, or is kept: %+v", s)
	}
}
