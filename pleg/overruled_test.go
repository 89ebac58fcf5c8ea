// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestALieCostsTrust: an overruled claim takes the relist period back to the base and is reported
// with pod and ID; a flood of them makes few reports, and none of them goes uncounted.
func TestALieCostsTrust(t *testing.T) {
	recorder := &notes{}
	configure := func(c *Config[status], toy *toyRuntime) {
		c.Recorder, c.RelistMax = recorder, 64*time.Second
		for i := range 50 {
			toy.set("p", Container, fmt.Sprint("c", i), PhaseRunning)
		}
	}
	inBubble(t, configure, func(b *bed) {
		time.Sleep(5 * time.Minute)
		if s := b.gen.Stats(); s.RelistPeriod != 64*time.Second {
			t.Fatalf("before the first lie: %+v", s)
		}
		lie := func(i int) {
			it := Item{ID: fmt.Sprint("c", i), Phase: PhaseExited}
			b.toy.mu.Lock()
			c := b.toy.claim("p", it)
			for j := range c.Payload {
				if c.Payload[j].ID == it.ID {
					c.Payload[j].Phase = PhaseExited
				}
			}
			b.toy.tell(c)
			b.toy.mu.Unlock()
		}
		lie(7)
		time.Sleep(3 * time.Second)
		b.gen.RequestRelist("p")
		time.Sleep(10 * time.Millisecond)
		if s := b.gen.Stats(); s.Overruled != 1 || s.RelistPeriod != time.Second {
			t.Errorf("after a lie: %+v", s)
		}
		b.shows("p")
		if n := recorder.count(ReasonEventsOverruled); n != 1 {
			t.Fatalf("%d reports of the first lie", n)
		}
		first := recorder.last(ReasonEventsOverruled)
		for _, word := range []string{"container c7 ", "pod default/p (p)", "Exited", "Running", "every 1s"} {
			if !first.Warning || !strings.Contains(first.Note, word) {
				t.Errorf("the report does not say %q: %+v", word, first)
			}
		}
		for i := range 50 {
			lie(i)
			time.Sleep(400 * time.Millisecond)
		}
		time.Sleep(overruledReportEvery + 2*time.Second)
		s, n := b.gen.Stats(), recorder.count(ReasonEventsOverruled)
		if s.Overruled != 51 || n < 3 || n > 5 {
			t.Errorf("%d reports of 51 lies in 35 s: %+v", n, s)
		}
		told := 0
		for _, r := range recorder.reports {
			if more := 0; r.Reason == ReasonEventsOverruled {
				if _, rest, ok := strings.Cut(r.Note, "; "); ok {
					_, _ = fmt.Sscanf(rest, "%d more", &more)
				}
				told += 1 + more
			}
		}
		if told != 51 {
			t.Errorf("the reports tell of %d overruled claims", told)
		}
		b.shows("p")
		b.events()
	})
}

// TestOverruledClaimsRevokeCredit: what lists credited the stream with before a claim was overruled
// does not raise the period after.
func TestOverruledClaimsRevokeCredit(t *testing.T) {
	inBubble(t, func(c *Config[status], toy *toyRuntime) {
		c.RelistMax = 64 * time.Second
		toy.set("p", Container, "c", PhaseRunning)
		toy.set("q", Container, "d", PhaseCreated)
	}, func(b *bed) {
		time.Sleep(5 * time.Minute)
		b.toy.replay(Claim[status]{Pod: "p", Item: Item{ID: "c", Phase: PhaseExited}})
		time.Sleep(2500 * time.Millisecond)
		b.toy.mu.Lock()
		b.toy.silent = true
		b.toy.mu.Unlock()
		b.toy.set("q", Container, "e", PhaseCreated) // found by the list, which credits the stream once the grace has passed
		b.gen.RequestRelist("")
		time.Sleep(10 * time.Millisecond)
		b.toy.replay(Claim[status]{Pod: "p", Item: Item{ID: "c", Phase: PhaseExited}})
		time.Sleep(2100 * time.Millisecond)
		b.gen.RequestRelist("p")
		time.Sleep(10 * time.Millisecond)
		synctest.Wait() // the loop, which owns the core, has come to rest
		if n := b.gen.core.candidates.len(); n != 0 {
			t.Errorf("%d lists still credit the stream", n)
		}
		b.events()
	})
}
