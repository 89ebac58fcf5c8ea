// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"testing"
	"time"
)

// TestMuteStreamIsOpenedAnew: a stream that hangs open and carries nothing is noticed by the second
// change that it has not told of, and opened again; one that loses events but tells of others is
// left alone.
func TestMuteStreamIsOpenedAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		between    func(b *bed)
		reconnects int
	}{
		"it tells nothing": {func(*bed) {}, 1},
		"it tells of other containers": {func(b *bed) {
			b.toy.mu.Lock()
			b.toy.silent = false
			b.toy.mu.Unlock()
			b.toy.set("q", Container, "d", PhaseRunning)
			b.toy.mu.Lock()
			b.toy.silent = true
			b.toy.mu.Unlock()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := &notes{}
			configure := func(c *Config[status], toy *toyRuntime) {
				c.Recorder, c.RelistMax = recorder, 64*time.Second
				toy.set("p", Sandbox, "s", PhaseRunning)
				for _, id := range []string{"c1", "c2", "c3"} {
					toy.set("p", Container, id, PhaseRunning)
				}
				toy.silent = true
			}
			inBubble(t, configure, func(b *bed) {
				time.Sleep(5 * time.Minute)
				b.toy.set("p", Container, "c1", PhaseExited)
				time.Sleep(2 * time.Minute)
				if s := b.gen.Stats(); s.Reconnects != 0 || s.Missed != 1 || s.State != StreamConnected {
					t.Errorf("after one missed event: %+v", s)
				}
				tc.between(b)
				b.toy.set("p", Container, "c2", PhaseExited)
				time.Sleep(2 * time.Minute)
				if s := b.gen.Stats(); s.Reconnects != tc.reconnects || s.Missed != 2 || s.State != StreamConnected {
					t.Errorf("after a second one: %+v", s)
				}
				if n := recorder.count(ReasonStreamLost); n != tc.reconnects {
					t.Errorf("%d reports of a lost stream, want %d", n, tc.reconnects)
				}
				b.toy.mu.Lock()
				b.toy.silent = false
				b.toy.mu.Unlock()
				b.events()
				b.toy.set("p", Container, "c3", PhaseExited)
				b.want("p ContainerDied c3")
				b.shows("p")
			})
		})
	}
}

// notes counts reports. The loop is its only writer; reading it is for when the loop rests.
type notes struct{ reports []Report }

func (n *notes) Record(r Report) { n.reports = append(n.reports, r) }

func (n *notes) count(reason Reason) (found int) {
	for _, r := range n.reports {
		if r.Reason == reason {
			found++
		}
	}
	return found
}
