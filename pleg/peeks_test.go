// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// TestNoReadBeginsAtAPeek: a read that begins no later than the last peek has ended may show less,
// and is discarded. Where calls take no time, such reads would follow each other without end.
func TestNoReadBeginsAtAPeek(t *testing.T) {
	d := newDriver(Config[int]{Cache: cache.New[int](nil)}, clock{epoch: time.Now()})
	listed := Pod{UID: "p", Items: []Item{{ID: "s", Kind: Sandbox, Phase: PhaseRunning}}}
	reads := 0
	turn := func(now instant) { // in which all calls are answered
		d.tick(now)
		begun := d.begun
		d.begun = nil
		for _, a := range begun {
			switch a.kind {
			case actList:
				d.onListed(&listedAll{began: a.at, listing: Listing{Pods: []Pod{listed}, Total: 1}}, now)
			case actInspect:
				reads++
				d.onInspected(&inspected[int]{
					look:   look{uid: a.uid, began: a.at, listing: &listed, shows: listed},
					status: new(int),
				}, now)
			}
		}
	}
	now := firstInstant
	d.start(now)
	for range 10 {
		now = now.add(time.Millisecond)
		turn(now)
	}
	d.tell(input[int]{kind: inputRequest, request: request{uid: "p", inspect: true}}, now)
	now = now.add(time.Millisecond)
	d.core.peeks.ensure("p").looked = now
	reads = 0
	for range 20 {
		turn(now)
	}
	if reads != 0 {
		t.Errorf("%d reads began at the instant of the peek", reads)
	}
	for range 20 {
		now = now.next()
		turn(now)
	}
	if reads != 1 {
		t.Errorf("%d reads after the peek, want 1", reads)
	}
}

// TestReadBesideAPeek: a read that overlaps with a peek is made again once. The second is taken,
// unless it shows an ID otherwise than the peek has read it.
func TestReadBesideAPeek(t *testing.T) {
	running := Pod{UID: "p", Items: []Item{{ID: "s", Kind: Sandbox, Phase: PhaseRunning}}}
	ended := Pod{UID: "p", Items: []Item{{ID: "s", Kind: Sandbox, Phase: PhaseExited}}}
	for name, tt := range map[string]struct {
		peeked []Item // read by the peek
		second bool   // the read before was made again
		want   Phase
	}{
		"the first":                          {nil, false, PhaseRunning},
		"the second":                         {nil, true, PhaseExited},
		"the second, of what the peek shows": {running.Items, true, PhaseRunning},
	} {
		d := newDriver(Config[int]{Cache: cache.New[int](nil)}, clock{epoch: time.Now()})
		now := firstInstant
		d.start(now)
		read := func(shows Pod, during func()) {
			now = now.add(time.Second)
			d.tell(input[int]{kind: inputRequest, request: request{uid: "p", inspect: true}}, now)
			now = now.add(time.Second)
			d.tick(now)
			begun := d.begun
			d.begun = nil
			for _, a := range begun {
				if a.kind != actInspect {
					continue
				}
				now = now.add(time.Millisecond)
				during()
				now = now.add(time.Millisecond)
				d.onInspected(&inspected[int]{
					look:   look{uid: "p", began: a.at, listing: &shows, shows: shows},
					status: new(int),
				}, now)
			}
		}
		read(running, func() {})
		p := d.core.pods["p"]
		read(ended, func() {
			p.crossed = tt.second
			x := d.core.peeks.ensure("p")
			x.looked = now
			x.read = setOfItems(tt.peeked)
		})
		if got := p.items[0].phase; got != tt.want {
			t.Errorf("%s: the pod's sandbox is %v, want %v", name, got, tt.want)
		}
	}
}
