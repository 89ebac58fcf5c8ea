// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"testing"
)

// TestUnplacedCallsAreBounded: a read that hangs remembers the calls without a pod that return
// meanwhile, each ID once, and when there are too many, any may be about its pod.
func TestUnplacedCallsAreBounded(t *testing.T) {
	r := newReads(1)
	p := &pod{}
	r.begin(p, &flight{began: firstInstant, started: firstInstant})
	f := r.inflight[p]
	isPods := func(id string) bool { return id == "pods" }
	for range 2 * maxUnplaced {
		r.returnedUnplaced("other")
	}
	if len(f.unplaced) != 1 || f.outdated(isPods) {
		t.Errorf("after calls about one ID of another pod: %d IDs, outdated %v", len(f.unplaced), f.outdated(isPods))
	}
	r.returnedUnplaced("pods")
	if !f.outdated(isPods) {
		t.Error("after a call about its ID the read is not outdated")
	}
	f.unplaced = nil
	for i := range 2 * maxUnplaced {
		r.returnedUnplaced(fmt.Sprint(i))
	}
	if len(f.unplaced) != maxUnplaced || !f.outdated(isPods) {
		t.Errorf("after many calls: %d IDs, outdated %v", len(f.unplaced), f.outdated(isPods))
	}
}
