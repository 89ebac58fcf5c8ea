// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
	"sort"
	"time"
)

// limiter decides how many reads of pods are under way. It tells a slow runtime, which more reads
// make slower, from reads that hang, which must not hold up others, by the reads that end:
//
//   - A read hangs if a read begun no earlier has ended well, and if the read is several times as
//     old as reads have lasted of late. Reads that hang do not count against the workers.
//   - While nothing ends, a slow runtime and a hung one look alike. Single probes find out.
//   - While reads get slower the more of them are under way, the runtime is busy with those that
//     seem to hang, and no further ones are begun in their place.
//
// A limiter knows times and numbers, and no pods. The zero limiter has no workers.
type limiter struct {
	workers int // reads at once, beside those that hang
	// fewer is by how much less than workers are allowed. The number grows when reads time out and
	// no read begun since has ended well, at fewerAt last, and shrinks with each read that ends
	// well.
	fewer   int
	fewerAt instant

	// begins are the begins of the reads under way, in order. Written by begin and end.
	begins []instant
	// passed is the begin of the latest read that has ended well. Other reads begun by then may
	// hang.
	passed instant
	// recent is how long the longest of the recent reads lasted that did not hang.
	recent recent
	// late is how long a read lasted that seemed to hang, and ended well all the same, and
	// lateUntil the end of the time for which other reads are therefore given as long.
	late      time.Duration
	lateUntil instant
	// brisk is how long the shortest of the last reads lasted, and best the shortest with no more
	// reads under way than workers. Both rise by an eighth with each read.
	brisk, best time.Duration
	// quiet is since when nothing has ended well, and no probe has begun.
	quiet instant
	// probes is the number of probes begun since a read has last ended well.
	probes int
	// awake is the end of the last time that the generator stood still. Reads begun before are of
	// no known age. Written by stood.
	awake instant
}

const (
	// hangFactor is how many times as old as the longest of late a read is that hangs.
	hangFactor = 4
	// hangAtLeast is the least age of a read that hangs.
	hangAtLeast = 100 * time.Millisecond
	// probeFirst is the pause before the first probe, if reads last no longer. Pauses double.
	probeFirst = 100 * time.Millisecond
	// probeBase bounds the growth of the pause before a probe of a pod that came after the last
	// probe, and before any other while no more than probedReads times the workers are under way.
	probeBase = time.Second
	// probeMax bounds the pause before all other probes, and before those of a slow runtime.
	probeMax = 8 * time.Second
	// probedReads bounds the reads of a crowd of pods, as a multiple of the workers, while nothing
	// ends.
	probedReads = 2
	// timeoutAtLeast is how long a failed read has lasted at least if it has timed out.
	timeoutAtLeast = time.Second
	// busyFactor is how many times as long as the best read the recent reads last on a busy
	// runtime.
	busyFactor = 2
	// moreWorkers bounds the reads at once that do not hang, as a multiple of the workers: beside
	// many reads that hang, as many others may begin, since most of them may hang, too.
	moreWorkers = 8
	// allReads bounds the reads at once, as a multiple of the workers.
	allReads = 128
)

// longest returns how long the longest of the recent reads lasted that did not hang, as judged when
// the oldest read under way began.
func (l *limiter) longest(now instant) time.Duration {
	if len(l.begins) > 0 {
		now = min(now, l.begins[0])
	}
	return l.recent.asOf(now)
}

// patience returns the age from which on a read may hang.
func (l *limiter) patience(now instant) time.Duration {
	d := max(hangAtLeast, hangFactor*l.longest(now))
	if now < l.lateUntil {
		d = max(d, l.late)
	}
	return d
}

// hung returns the number of reads under way that hang.
func (l *limiter) hung(now instant) int {
	latest := now.add(-l.patience(now))
	if latest < l.awake {
		return 0
	}
	latest = min(l.passed, latest)
	return sort.Search(len(l.begins), func(i int) bool { return l.begins[i] > latest })
}

// busy reports whether reads get slower the more of them are under way.
func (l *limiter) busy() bool {
	return l.brisk > hangAtLeast/2 && l.brisk > busyFactor*l.best
}

// room reports whether fewer reads are under way than workers, beside those that hang.
func (l *limiter) room(now instant) bool {
	hung := l.hung(now)
	workers := l.workers - l.fewer
	if l.busy() {
		return len(l.begins) < 2*l.workers && len(l.begins)-hung < workers
	}
	most := min(max(hung, workers), moreWorkers*l.workers)
	return len(l.begins)-hung < most && len(l.begins) < allReads*l.workers/2
}

// probeAt returns when a probe may begin: another read although nothing has ended. Newest is since
// when the latest comer has needed a read. Pauses double. They are shorter the more reads hang: the
// next read will probably hang, too, and tell nothing. A comer since then waits less, but for as
// long as two ends are apart while reads take no longer than of late: otherwise, on a slow runtime,
// pods that come one after another would all be probes, and be read before those that wait. A read
// several times as long as the shortest of late is no measure: the runtime froze for a while.
func (l *limiter) probeAt(newest, now instant) instant {
	if len(l.begins) >= allReads*l.workers {
		return never
	}
	hung := l.hung(now)
	pause := probeFirst << min(l.probes, 30)
	if newest > l.quiet {
		usual := min(l.longest(now), hangFactor*l.brisk)
		apart := usual / time.Duration(max(1, len(l.begins)-hung)) // of the ends
		return l.quiet.add(min(max(min(pause, probeBase), 2*apart), probeMax))
	}
	most := probeBase
	if len(l.begins)-hung >= probedReads*(l.workers-l.fewer) {
		most = probeMax
	}
	return l.quiet.add(max(l.longest(now), min(pause, most)/time.Duration(1+hung/l.workers)))
}

// may reports whether another read may begin.
func (l *limiter) may(newest, now instant) bool {
	return l.room(now) || now >= l.probeAt(newest, now)
}

// next returns when another read may begin though none ends. After is the time of the last look.
func (l *limiter) next(newest, after instant) instant {
	at := l.probeAt(newest, after)
	if hung := l.hung(after); hung < len(l.begins) && l.begins[hung] <= l.passed {
		at = min(at, max(l.begins[hung], l.awake).add(l.patience(after)))
	}
	return max(at, after.next())
}

// silent returns since when the oldest read under way has been awaited if none has ended well
// since; never if none is under way, or if some have.
func (l *limiter) silent() instant {
	if len(l.begins) == 0 || l.passed >= l.begins[0] || l.recent.longest == 0 { // how long reads last is not known yet
		return never
	}
	return max(l.begins[0], l.awake)
}

// stood notes that the generator has stood still until now.
func (l *limiter) stood(now instant) {
	l.awake = now
	l.quiet = now
}

// lasted returns how long a read has been awaited.
func (l *limiter) lasted(read span) time.Duration { return read.ended.sub(max(read.began, l.awake)) }

// begin notes the begin of a read.
func (l *limiter) begin(now instant) {
	switch {
	case len(l.begins) == 0:
		l.quiet = now
		l.probes = 0
	case !l.room(now):
		l.quiet = now
		l.probes++
	}
	l.begins = append(l.begins, now)
}

// end notes the end of a read begun at the given time.
func (l *limiter) end(began instant, well bool, now instant) {
	i, found := slices.BinarySearch(l.begins, began)
	if !found {
		return
	}
	hung := i < l.hung(now)
	under := len(l.begins)
	l.begins = slices.Delete(l.begins, i, i+1)
	took := max(l.lasted(span{began, now}), 1)
	if !well {
		if took >= timeoutAtLeast && began > max(l.passed, l.fewerAt) {
			l.fewer += (l.workers - l.fewer) / 2
			l.fewerAt = now
		}
		return
	}
	l.fewer = max(0, l.fewer-1)
	switch {
	case began < l.awake: // how long it took is not known
	case hung:
		l.late = took
		l.lateUntil = now.add(took)
	default:
		l.recent.add(took, now)
		l.brisk = shorter(l.brisk, took)
		if under <= l.workers {
			l.best = shorter(l.best, took)
		}
	}
	l.passed = max(l.passed, began)
	l.quiet = now
	l.probes = 0
}

// shorter returns the shorter of a recent duration and a new duration. The recent duration rises by
// an eighth.
func shorter(old, took time.Duration) time.Duration {
	if old == 0 {
		return took
	}
	return min(took, old+old/8)
}

// lane is the pods that wait for a read, and the limiter of their reads.
type lane[P any] struct {
	limiter
	// waiting are the pods, in the order in which they came to need a read: what is left of array.
	waiting []waiter[P]
	// array is waiting with the room in front, which is used again once no pod waits.
	array []waiter[P]
	// last reports whether the last pod taken was not the oldest.
	last bool
	// failed reports whether the lane is that of pods whose last read failed.
	failed bool
}

// waiter is a pod that waits for a read.
type waiter[P any] struct {
	pod   P
	since instant       // since when the pod needs the read
	delay time.Duration // of the pod's reads, which doubles with each that fails
}

// push adds a pod.
func (l *lane[P]) push(w waiter[P]) {
	i := len(l.waiting) // nearly always the newest
	for i > 0 && l.waiting[i-1].since > w.since {
		i--
	}
	full := len(l.waiting) == cap(l.waiting)
	l.waiting = slices.Insert(l.waiting, i, w)
	if full {
		l.array = l.waiting
	}
}

// newest returns since when the latest comer waits.
func (l *lane[P]) newest() instant {
	return l.waiting[len(l.waiting)-1].since
}

// may reports whether a pod may be taken.
func (l *lane[P]) may(now instant) bool {
	return len(l.waiting) > 0 && l.limiter.may(l.newest(), now)
}

// next returns when a pod may be taken though no read ends; never if none waits.
func (l *lane[P]) next(after instant) instant {
	if len(l.waiting) == 0 {
		return never
	}
	return l.limiter.next(l.newest(), after)
}

// take removes the pod that is read next. A pod must be waiting. As long as workers are free, the
// oldest pod is taken. Beside reads that hang, the oldest may be behind others that hang, so that
// every second read, and each probe, takes the newest pod. A slow runtime is probed too rarely for
// that to put off the others: see probeAt.
//
// Pods whose last read failed come again and again, those that hang too, and the newest is most
// often one of these. There, one probe takes the pod that has failed least, and the next the
// oldest: beside 100 pods that hang for ever, a pod that has failed once is read 23 s after it can
// be, and a pod that has failed for long within 4 minutes. With the oldest alone the first took 6
// minutes, with the newest alone the second was never read.
func (l *lane[P]) take(now instant) P {
	i := 0
	switch {
	case l.room(now):
		l.last = len(l.begins) >= l.workers && !l.last
		if l.last {
			i = len(l.waiting) - 1
		}
	case !l.failed:
		l.last = true
		i = len(l.waiting) - 1
	default:
		l.last = !l.last
		if l.last {
			i = l.leastDelayed()
		}
	}
	p := l.waiting[i].pod
	switch {
	case len(l.waiting) == 1:
		l.waiting[0] = waiter[P]{}
		l.waiting = l.array[:0]
	case i == 0:
		l.waiting[0] = waiter[P]{}
		l.waiting = l.waiting[1:]
	default:
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return p
}

// leastDelayed returns the place of the pod that has failed least, the oldest of several.
func (l *lane[P]) leastDelayed() int {
	least := 0
	for i := range l.waiting {
		if l.waiting[i].delay < l.waiting[least].delay {
			least = i
		}
	}
	return least
}

// The lanes. Pods whose last read failed have workers of their own, so that their reads, which may
// hang again, hold up no other pod.
const (
	laneFirst = iota
	laneAgain
	lanes
)
