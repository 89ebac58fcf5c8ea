// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"testing"
	"time"
)

// TestNoPayloadWhileAReadDisagrees: a container that an old list alone shows, which a newer read
// has overtaken, may have gone before that read. A payload that shows it too, as a stale one does,
// dominates what is known, and must not put it beside the time of the newer read.
func TestNoPayloadWhileAReadDisagrees(t *testing.T) {
	s, x := Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}, Item{ID: "x", Kind: Container, Phase: PhaseRunning}
	w := newMoving()
	w.list(Pod{UID: "p", Items: []Item{s}})
	w.read("p", s)
	old := w.now + 1
	w.now += instant(time.Millisecond)
	w.read("p", s)
	fresh := w.cache.AsOf("p")
	w.now += instant(time.Millisecond)
	w.revision++
	w.onListed(&listedAll{began: old, listing: Listing{Revision: w.revision, Pods: []Pod{{UID: "p", Items: []Item{s, x}}}}}, w.now)
	offered := &status{UID: "p", Items: []Item{s, x}}
	w.claims(&batch[status]{claims: 1, pods: []*podClaims[status]{{
		pod: "p", claims: 1, latest: []latestClaim{{item: x}}, payload: offered.Items, status: func() (*status, error) { return offered, nil },
	}}}, w.now+1)
	if shown, _ := w.cache.Get("p"); shown == offered {
		t.Errorf("the cache shows %v as of %v, when a read had not shown x", shown, fresh)
	}
	w.read("p", s, x) // it is there after all
	if shown, _ := w.cache.Get("p"); len(shown.Items) != 2 {
		t.Errorf("after a read that shows it: %v", shown)
	}
}
