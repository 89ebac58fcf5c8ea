// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Fairness: a pod in need of a read gets its read within a bounded number of reads of other pods
// and 1.5 base periods, however many pods wait, and however many reads hang.

// The bounds of reads at once, in workers: of reads begun less than a tenth of a base period ago
// while others hang, and of all reads. There are two lanes of workers, the second for pods with a
// failed last read, and single probes beside both.
const (
	mostLanes  = 2
	mostProbes = 2
	mostYoung  = 8 * mostLanes
	mostReads  = 128 * mostLanes
)

// probed is the time, in base periods, in which a pod is read while reads time out and nothing ends
// well: single probes find out whether the runtime answers again.
const probed = 10

// timedOut notes the end of a read. After reads have timed out, fewer begin at once, down to a
// single read, until as many have ended well. Pods whose last read failed have workers of their
// own. If a list has answered such a pod since, the read may have had either's.
func (b *boundary) timedOut(x *podPace, now time.Time, err error) {
	for i := range b.fewer {
		own := x.again == (i == 1)
		switch {
		case err == nil && own && !x.either:
			b.fewer[i] = max(0, b.fewer[i]-1)
		case err != nil && (own || x.either) && now.Sub(x.started) >= time.Second:
			b.fewer[i] = b.workers - 1
		}
	}
}

// place is how long a pod has needed a read while the workers were busy.
type place struct {
	since time.Time // zero if the pod does not wait
	reads int       // at the boundary by the time since
}

// fair is the number of reads of others that may begin before the read of a waiting pod: a few of
// each known pod, and of the pods whose need begins together.
func (b *boundary) fair() int { return 8 * (len(b.pace.pods) + b.workers) }

// mustWait reports whether a pod may still lack its read: a young list may serve the pod, or every
// worker is busy.
func (b *boundary) mustWait(at *place, uid cache.UID, now time.Time) bool {
	base := b.pace.settings.base
	if b.listing > 0 && now.Sub(b.listBegun) <= base/10 {
		return true
	}
	fewer := max(b.fewer[0], b.fewer[1])
	if len(b.inflight) < b.workers-fewer {
		return false
	}
	if at.since.IsZero() {
		*at = place{since: now, reads: b.podReads}
	}
	if n := b.podReads - at.reads; n > b.fair() {
		b.fail("unfair", "pod %s needs a read, and %d of other pods have begun before it", uid, n)
	}
	bound := base + base/2
	if fewer > 0 {
		bound = probed * base // who has come later is read first
		if b.fails(uid) && b.podPace(uid).erred {
			bound *= 2 // of the pods whose last read failed, every second probe takes the one that has failed least
		}
	}
	bound = max(bound, probed*b.lately) // before this age no read counts as hung
	if d := now.Sub(at.since); d > bound && len(b.inflight) < mostReads*b.workers {
		b.fail(
			"unfair",
			"pod %s has needed a read for %v, and %d others hold the workers",
			uid,
			d,
			len(b.inflight),
		)
	}
	return true
}

// lookCrowd checks the number of reads at once.
func (b *boundary) lookCrowd(now time.Time) {
	if !b.pace.on {
		return
	}
	young := 0
	for uid := range b.inflight {
		if now.Sub(b.podPace(uid).started) < b.pace.settings.base/10 {
			young++
		}
	}
	n := len(b.inflight)
	if bound := min(max(mostLanes*b.workers+mostProbes, n-young+mostProbes), mostYoung*b.workers); young > bound || n > mostReads*b.workers {
		b.fail("greedy", "%d pods being read at once, %d of them for less than a tenth of a base period; workers %d", n, young, b.workers)
	}
}

// lookNeglected checks that a read has begun for a waiter for a read begun after t: at once, or in
// the pod's turn.
func (b *boundary) lookNeglected(at *place, uid cache.UID, t, waits time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.podPace(uid)
	// The last waiter is served by a read begun later than the last news, and after the loop has heard
	// of the end of the read before.
	d := time.Since(latest(waits, t, x.caused, x.ended, b.opened, b.peekPace.ended[uid]))
	if !b.pace.on || b.closed || d <= 0 || b.inflight[uid] > 0 {
		return
	}
	if x.started.After(x.doubted) && time.Since(x.doubted) < 2*b.pace.settings.grace {
		return // within the grace, reads that contradict a claim are repeated with growing delay
	}
	if !x.started.After(t) && !b.pace.begun.After(t) && !b.mustWait(at, uid, time.Now()) {
		b.fail("late", "somebody has been waiting for pod %s since %v, and it has not been read", uid, d)
	}
}

// showsSame reports whether a status shows the same as a reply: an unknown state counts like any
// other state.
func showsSame(shown, reply []pleg.Item) bool {
	if len(shown) != len(reply) {
		return false
	}
	for _, it := range reply {
		if phaseIn(shown, it.ID) != it.Phase {
			return false
		}
	}
	return true
}
