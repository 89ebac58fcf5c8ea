// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// Fairness: a pod that needs a read gets one within a bounded number of other pods' reads, whoever
// else waits, and reads that hang hold half of the workers at most while it waits.

// hungAfter is how long after its begin a read counts as hung, in base periods.
const hungAfter = 1

// place is how long a pod has been found to need a read, counted in reads of other pods.
type place struct {
	waiting bool
	reads   int // of the ledger when it was first found to need one
}

// fair is how many reads of others may begin before one of a pod that needs it: a few of each pod
// that is known, and of those that begin together.
func (b *ledger) fair() int { return 8 * (len(b.pace.pods) + b.workers) }

// mustWait says that a pod that needs a read may not have got it yet: a list is under way, which may
// serve it, or every worker is busy, and it has its turn soon. Its own last read may have hung: then
// it waits for the workers that such reads may hold.
func (b *ledger) mustWait(at *place, uid cache.UID, now time.Time) bool {
	if b.listing > 0 || b.podPace(uid).slow {
		return true
	}
	if len(b.inflight) < b.workers {
		return false
	}
	if !at.waiting {
		*at = place{waiting: true, reads: b.podReads}
	}
	if n := b.podReads - at.reads; n > b.fair() {
		b.fail("unfair", "pod %s needs a read, and %d of other pods have begun before it", uid, n)
	}
	if n := b.hung(now); n > max(1, b.workers/2) {
		b.fail("unfair", "pod %s needs a read, and %d of %d workers are held by reads that hang", uid, n, b.workers)
	}
	return true
}

// hung counts the reads that have been under way for too long.
func (b *ledger) hung(now time.Time) int {
	n := 0
	for uid := range b.inflight {
		if now.Sub(b.podPace(uid).started) > hungAfter*b.pace.settings.base+time.Millisecond {
			n++
		}
	}
	return n
}

// cutShort notes that the generator has ended a read before it had failed: it may only do so when the
// read hangs, and the pod may be read again at once.
func (b *ledger) cutShort(uid cache.UID, now time.Time) {
	if !b.pace.on || b.stopping {
		return
	}
	x := b.podPace(uid)
	if d := now.Sub(x.started); d <= hungAfter*b.pace.settings.base {
		b.fail("greedy", "the read of pod %s is given up after %v", uid, d)
	}
	x.cause(now)
	x.ended, x.slow = now, true
}

// timed notes whether a read that has ended was in time.
func (b *ledger) timed(uid cache.UID, now time.Time) {
	if b.pace.on {
		x := b.podPace(uid)
		x.slow = now.Sub(x.started) > hungAfter*b.pace.settings.base
	}
}
