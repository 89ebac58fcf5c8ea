// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// TestGhost plays a runtime that lists a running container for ever, and no longer has its status.
// The second read without the status is believed: nothing is read without end.
func TestGhost(t *testing.T) {
	d := newDriver(Config[int]{Cache: cache.New[int](nil)}, clock{epoch: time.Now()})
	listed := Pod{UID: "p", Items: []Item{{ID: "s", Kind: Sandbox, Phase: PhaseRunning}, {ID: "c", Phase: PhaseRunning}}}
	has := listed.Items
	now := firstInstant
	reads := 0
	play := func(d *driver[int]) {
		for range 100 {
			now = now.add(time.Millisecond)
			d.tick(now)
			begun := d.begun
			d.begun = nil
			for _, a := range begun {
				now = now.add(time.Microsecond)
				switch a.kind {
				case actList:
					d.onListed(&listedAll{began: a.at, listing: Listing{Pods: []Pod{listed}, Total: 1}}, now)
				case actInspect:
					reads++
					r := &inspected[int]{look: look{uid: a.uid, began: a.at, shows: Pod{UID: "p", Items: has}}, status: new(int)}
					if !a.read.listed {
						r.listing = &listed
					}
					d.onInspected(r, now)
				}
			}
		}
	}
	d.start(now)
	play(d)
	if reads != 1 || len(d.core.pods["p"].items) != 2 {
		t.Fatalf("%d reads, and the pod has %d items, want 1 and 2", reads, len(d.core.pods["p"].items))
	}
	reads = 0
	has = has[:1]
	d.tell(input[int]{kind: inputRequest, request: request{uid: "p", inspect: true}}, now)
	play(d)
	if reads != 2 || len(d.core.pods["p"].items) != 1 {
		t.Errorf("%d reads, and the pod has %d items, want 2 and 1", reads, len(d.core.pods["p"].items))
	}
}

// TestWhatWasMadeSinceALookBegan looks at a pod in which the agent's call makes a container
// meanwhile: a look that began before the call reported casts no doubt on the container, and is not
// the first that lacks it. The next look is.
func TestWhatWasMadeSinceALookBegan(t *testing.T) {
	r := newRecords()
	p := r.ensure("p")
	sandbox := []Item{{ID: "s", Kind: Sandbox, Phase: PhaseRunning}}
	r.show(p, sandbox)
	const reported = firstInstant + 10
	p.expected.add(expectation{
		reportKey: reportKey{id: "c", cause: CauseAck},
		kind:      Container,
		phase:     PhaseRunning,
		at:        reported,
	})
	for _, began := range []instant{reported - 1, reported} {
		counts := began >= reported
		if lacks := r.lacking(p, sandbox, began); (len(lacks) == 1) != counts {
			t.Errorf("a look that began at %d lacks %v, the call reported at %d", began, lacks, reported)
		}
		if doubted := r.doubtMade(p, sandbox, span{began, began + 1}); doubted != counts {
			t.Errorf("a look that began at %d: doubted %v, the call reported at %d", began, doubted, reported)
		}
	}
}
