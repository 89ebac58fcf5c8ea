// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// TestTheRotaForgets: where rounds are off, no pod has a turn, and where a round takes longer than
// any pod lives, the rota keeps no more pods that have gone than there are.
func TestTheRotaForgets(t *testing.T) {
	for _, every := range []time.Duration{-1, 1000 * time.Hour} {
		t.Run(every.String(), func(t *testing.T) {
			d := newDeck(5)
			d.core.cfg.Reread = every
			d.core.rota = rota{}
			for _, p := range d.core.pods {
				p.onRota = false
			}
			for i := range 200 {
				uid := cache.UID(fmt.Sprint("short-", i))
				short := Pod{UID: uid, Items: []Item{{ID: fmt.Sprint("s-", i), Kind: Sandbox, Phase: PhaseRunning}}}
				d.list(Listing{Delta: true, Pods: []Pod{short}})
				d.step(time.Second)
				d.shown[uid] = Pod{UID: uid}
				d.list(Listing{Delta: true, Gone: []cache.UID{uid}})
				d.step(time.Second)
				d.drain()
				if err := d.invariants(d.now); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(d.core.pods); n != len(d.pods) {
				t.Errorf("%d pods are remembered, want %d", n, len(d.pods))
			}
			most := 2 * len(d.core.pods)
			if every < 0 {
				most = 0
			}
			if n := d.core.rota.pods.len(); n > most {
				t.Errorf("the rota has %d pods, want %d at most: there are %d", n, most, len(d.core.pods))
			}
		})
	}
}

// TestTheRotaGoesOn: pods removed from the rota because they have gone take the turns after a
// reconnect with them, and the others have theirs.
func TestTheRotaGoesOn(t *testing.T) {
	r := rota{}
	gone := make(map[*pod]bool)
	known := func(p *pod) bool { return !gone[p] }
	var pods []*pod
	for i := range 9 {
		p := &pod{uid: cache.UID(fmt.Sprint(i)), entry: statusEntry, read: 1}
		gone[p] = i%3 != 0
		pods = append(pods, p)
	}
	for _, p := range pods[:6] {
		r.join(p, time.Hour, firstInstant)
	}
	r.reconnected(firstInstant)
	for _, p := range pods[6:] {
		r.join(p, time.Hour, firstInstant)
	}
	r.forgotten(3, known)
	if r.pods.len() != 3 || r.soon != 2 {
		t.Errorf("%d pods, %d of them soon, want 3 and 2", r.pods.len(), r.soon)
	}
	for _, p := range []*pod{pods[0], pods[3]} {
		if got := r.reread(time.Hour, known, r.due(time.Hour)); got != p {
			t.Errorf("pod %v has the turn, want %q", got, p.uid)
		}
	}
	r.join(pods[1], time.Hour, firstInstant)
	if r.pods.len() != 4 {
		t.Error("a pod that was removed cannot join again")
	}
}
