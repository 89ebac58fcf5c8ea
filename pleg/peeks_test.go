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
