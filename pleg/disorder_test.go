// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWhatIsWrongWithEventsIsCounted: claims that come twice or out of order, ends that only the
// removal tells of, payloads that are behind; whether the mailbox merges the claims or not. What is
// in order, replayed, or of a sandbox, which has two events of one phase, counts for nothing.
func TestWhatIsWrongWithEventsIsCounted(t *testing.T) {
	const c, other, s = "c", "other", "s"
	at := func(id string, kind Kind, p Phase) Item { return Item{ID: id, Kind: kind, Phase: p} }
	life := []Item{at(c, Container, PhaseRunning), at(c, Container, PhaseExited), at(c, Container, PhaseRemoved)}
	for _, test := range []struct {
		name                     string
		claims                   []Item
		payload                  []Item // of the last claim
		replayed                 bool
		disordered, untold, late int
	}{
		{name: "in order", claims: life},
		{name: "twice", claims: []Item{life[1], life[1]}, disordered: 1},
		{name: "the start after the end", claims: []Item{life[1], life[0]}, disordered: 1},
		{name: "the end after the removal", claims: []Item{life[2], life[1]}, disordered: 1, untold: 1},
		{name: "all backwards", claims: []Item{life[2], life[1], life[0]}, disordered: 2, untold: 1},
		{name: "removed without an end", claims: life[2:], untold: 1},
		{name: "a backlog", claims: []Item{life[2], life[1], life[1], life[0]}, replayed: true},
		{name: "a sandbox that is created and started", claims: []Item{at(s, Sandbox, PhaseRunning), at(s, Sandbox, PhaseRunning)}},
		{name: "a payload that is behind", claims: []Item{life[1], at(other, Container, PhaseRunning)},
			payload: []Item{at(c, Container, PhaseRunning), at(other, Container, PhaseRunning)}, late: 1},
		{name: "a payload that is ahead", claims: []Item{at(other, Container, PhaseRunning)},
			payload: []Item{life[1], at(other, Container, PhaseRunning)}},
	} {
		for how, wait := range map[string]bool{"one by one": true, "at once": false} {
			if !wait && test.untold > 0 && test.disordered > 0 {
				continue // an end that comes so soon after the removal may be told by then
			}
			t.Run(test.name+", "+how, func(t *testing.T) {
				inBubble(t, func(_ *Config[status], toy *toyRuntime) {
					toy.set("p", Sandbox, s, PhaseRunning)
					toy.set("p", Container, c, PhaseRunning)
					toy.set("p", Container, other, PhaseRunning)
				}, func(b *bed) {
					time.Sleep(10 * time.Second)
					for i, it := range test.claims {
						claim := Claim[status]{Pod: "p", Item: it, CreatedAt: time.Now()}
						if i == len(test.claims)-1 {
							claim.Payload = test.payload
						}
						if test.replayed {
							claim.CreatedAt = time.Now().Add(-time.Hour)
						}
						b.toy.replay(claim)
						if wait {
							synctest.Wait() // the mailbox has been emptied
						}
					}
					synctest.Wait()
					if st := b.gen.Stats(); st.DisorderedClaims != test.disordered || st.UntoldExits != test.untold || st.StalePayloads != test.late {
						t.Errorf("disordered %d, want %d; untold exits %d, want %d; stale payloads %d, want %d",
							st.DisorderedClaims, test.disordered, st.UntoldExits, test.untold, st.StalePayloads, test.late)
					}
				})
			})
		}
	}
}
