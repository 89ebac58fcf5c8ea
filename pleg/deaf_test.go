// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"io"
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

// TestEventsMissedAtOnceEndNoStream: changes that were found before it was known that events are
// missed, or before the stream was connected, are no sign that the stream has gone silent since.
func TestEventsMissedAtOnceEndNoStream(t *testing.T) {
	setSilent := func(b *bed, silent bool, refuse error) {
		b.toy.mu.Lock()
		defer b.toy.mu.Unlock()
		b.toy.silent, b.toy.refuse = silent, refuse
	}
	cut := func(b *bed) {
		setSilent(b, true, io.ErrUnexpectedEOF)
		b.toy.cutStreams()
		time.Sleep(100 * time.Millisecond)
		setSilent(b, true, nil) // the next attempt is a second later, and connected one after that
	}
	for name, tc := range map[string]struct {
		before     func(b *bed)
		between    time.Duration
		reconnects int
	}{
		"the stream was up":         {func(b *bed) { setSilent(b, true, nil) }, 1200 * time.Millisecond, 0},
		"the stream was down":       {cut, 1200 * time.Millisecond, 1},
		"the stream was down first": {cut, 10 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := &notes{}
			configure := func(c *Config[status], toy *toyRuntime) {
				c.Recorder, c.RelistMax = recorder, time.Second
				toy.set("p", Container, "c1", PhaseRunning)
				toy.set("p", Container, "c2", PhaseRunning)
			}
			inBubble(t, configure, func(b *bed) {
				time.Sleep(10 * time.Second)
				tc.before(b)
				b.toy.set("p", Container, "c1", PhaseExited)
				time.Sleep(tc.between)
				b.toy.set("p", Container, "c2", PhaseExited)
				time.Sleep(20 * time.Second)
				s := b.gen.Stats()
				if s.Reconnects != tc.reconnects || s.State != StreamConnected {
					t.Errorf("a healthy stream was ended: %+v", s)
				}
				if n := recorder.count(ReasonStreamLost); n != tc.reconnects {
					t.Errorf("%d reports of a lost stream, want %d", n, tc.reconnects)
				}
				b.shows("p")
			})
		})
	}
}

// TestMuteStreamOnABusyNode: missed events that follow each other faster than the grace give a mute
// stream away too.
func TestMuteStreamOnABusyNode(t *testing.T) {
	inBubble(t, func(_ *Config[status], toy *toyRuntime) { toy.silent = true }, func(b *bed) {
		time.Sleep(5 * time.Second)
		for i := range 20 {
			b.toy.set("p", Container, fmt.Sprint(i), PhaseRunning)
			time.Sleep(500 * time.Millisecond)
		}
		if s := b.gen.Stats(); s.Reconnects == 0 {
			t.Errorf("nothing was heard of 20 starts in 10 s: %+v", s)
		}
		b.events()
	})
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
