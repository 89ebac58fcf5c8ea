// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

func TestMailboxMergesByIDAndPhase(t *testing.T) {
	m := newMailbox[status](100)
	opened := time.Unix(1000, 0)
	put := func(pod cache.UID, id string, phase Phase, at time.Time) {
		m.put(Claim[status]{Pod: pod, Item: Item{ID: id, Phase: phase}, CreatedAt: at}, at.Before(opened) && !at.IsZero())
	}
	put("p", "a", PhaseRunning, opened.Add(1))
	put("p", "a", PhaseExited, opened.Add(2))
	put("p", "a", PhaseRunning, opened.Add(3)) // late
	put("p", "b", PhaseCreated, opened.Add(-1))
	put("q", "c", PhaseRemoved, time.Time{})
	for i := range 40 {
		put("r", fmt.Sprint(i), PhaseRunning, opened)
		put("r", fmt.Sprint(i), PhaseExited, opened)
	}
	var b batch[status]
	m.take(&b)
	if b.claims != 85 || b.replayed != 1 || b.dropped != 0 || len(b.pods) != 3 {
		t.Fatalf("claims %d, replayed %d, dropped %d, pods %d", b.claims, b.replayed, b.dropped, len(b.pods))
	}
	p := b.pods[0]
	if len(p.latest) != 2 || p.latest[0].item.Phase != PhaseExited || p.latest[0].stamp != opened.Add(2).UnixNano() {
		t.Errorf("pod p was told %+v", p.latest)
	}
	if r := b.pods[2]; len(r.latest) != 40 || r.latest[39].item.Phase != PhaseExited {
		t.Errorf("pod r was told of %d IDs", len(r.latest))
	}
	m.recycle(&b)
	m.take(&b)
	if b.claims != 0 || len(b.pods) != 0 {
		t.Errorf("the second take brought %d claims of %d pods", b.claims, len(b.pods))
	}
}

func TestMailboxIsBounded(t *testing.T) {
	m := newMailbox[status](10)
	for i := range 1000 {
		m.put(Claim[status]{Pod: cache.UID(fmt.Sprint(i % 7)), Item: Item{ID: fmt.Sprint(i), Phase: PhaseRunning}}, false)
	}
	var b batch[status]
	m.take(&b)
	ids := 0
	for _, l := range b.pods {
		ids += len(l.latest)
	}
	if ids != 10 || b.dropped != 990 {
		t.Errorf("%d IDs kept, %d claims dropped; want 10, 990", ids, b.dropped)
	}
}

// Every claim's memory is given back exactly once: when a later payload takes its place, when the
// mailbox is full, or when the loop is done with it.
func TestMailboxReleasesEveryClaimOnce(t *testing.T) {
	const claims = 3000
	m := newMailbox[status](maxFree + 100)
	released := make([]int, claims)
	var b batch[status]
	for i := range claims {
		c := Claim[status]{Pod: cache.UID(fmt.Sprint(i % 500)), Item: Item{ID: fmt.Sprint(i % 700), Phase: PhaseRunning}, Release: func() { released[i]++ }}
		if i%3 > 0 {
			c.Payload = []Item{c.Item}
		}
		m.put(c, false)
		if i%3 > 0 && i < 300 && released[i] > 0 {
			t.Fatalf("claim %d was released while it waits", i)
		}
		if i%1000 == 999 {
			m.take(&b)
			for _, l := range b.pods {
				if l.payload != nil && l.release == nil {
					t.Fatalf("a pod with the payload %v has nothing to release", l.payload)
				}
			}
			m.recycle(&b)
		}
	}
	for i, n := range released {
		if n != 1 {
			t.Errorf("claim %d was released %d times", i, n)
		}
	}
}
