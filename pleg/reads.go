// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// reads is the room of the reads of single pods: which pods need one, which of them is next, and
// which reads are under way. The room decides how many reads run at once, and when many are
// replaced by a list of everything; why and when a pod needs a read is the pod's demand.
type reads struct {
	// dirty are the pods in need of a read; all others are as listed. Only place writes dirty. Each of
	// them is in a lane, in later, or being read.
	dirty map[*pod]struct{}

	// lanes are the pods to be read now. Place adds a pod, once, and take removes it.
	lanes [lanes]lane[*pod] `prove:"-"`

	// later are the pods to be read, or to be looked at again, at a time. Place adds an entry, and
	// dueNow removes it. Of a pod's entries the earliest alone counts: see place.later.
	later agenda[*pod]

	// inflight are the reads under way, at most one of a pod. Begin adds a read, and end drops it. The
	// limiters of the lanes have the same number under way.
	inflight map[*pod]*flight
}

// place is where a pod stands among the reads. Only reads writes it, and check holds it against the
// lanes, the agenda and the reads under way.
type place struct {
	// queued reports whether the pod waits in a lane, and reading whether the pod is being read: not
	// both. Place sets queued, and take ends it; begin sets reading, and end ends it.
	queued  bool
	reading bool

	// failures is how many reads of all statuses have failed in a row, at most failsAgain. Only end
	// writes failures. A read that succeeds ends the row, also one of some statuses.
	failures uint8

	// later is the time of the pod's earliest entry in reads.later; zero if none is there. Place and
	// dueNow write later. Entries of other times are of no meaning.
	later instant `prove:"timers,scarce:begins"`

	// since is since when the pod waits in a lane; zero if the pod needs no read, or is being read.
	// Place and begin write since. A pod that leaves the lane and is not read comes back with it.
	since instant `prove:"marks,scarce:begins"`

	// readEnd is when the last read of the pod ended, well or not; zero before the first. Only end
	// writes readEnd.
	readEnd instant `prove:"marks"`
}

// failsAgain is the number of reads that fail in a row after which the last failure is reported
// although a list has shown the pod since the read began: lists do not show what such reads are
// for. The cache keeps the status without the error, as lists answer for its phases.
const failsAgain = 2

// failing reports whether not only the last read has failed.
func (p *place) failing() bool { return p.failures >= failsAgain }

func newReads(workers int) reads {
	r := reads{
		dirty:    make(map[*pod]struct{}),
		inflight: make(map[*pod]*flight),
	}
	for i := range r.lanes {
		r.lanes[i].workers = workers
	}
	r.lanes[laneAgain].failed = true
	return r
}

// flight is a read of a pod under way. Core.inspect makes it, and writes the fields up to listed;
// core.onInspected gives listed the list of the read itself. The rest is noted during the read.
type flight struct {
	began   instant // time of the result: begin of the list that the read builds on, or started
	started instant `prove:"ordered,scarce:begins"`
	lane    int
	full    bool          // all statuses are read
	before  instant       `prove:"-"`                   // begin of the last read of all statuses before this one
	agreed  instant       `prove:"marks,judged:begins"` // begin of the last look in agreement with the record before this one
	excused bool          `prove:"-"`                   // the read may show changed content for a reason of the agent's own: see pod.excusable
	listed  []Item        // by the list that the read builds on; nil if it builds on none
	lapped  bool          // a list has ended during the read, as core.visitAll notes
	crossed bool          // a payload has been stored during the read: see reads.cross
	retold  retold        // what was told during the read, and was no news: see noteForLooks
	took    time.Duration `prove:"-"` // how long the read was awaited, once it has ended

	// unplaced are the IDs of calls of the agent's own, of no known pod, that have returned during
	// the read, each once, at most maxUnplaced. Only returnedUnplaced writes them.
	unplaced []string
}

// place puts a pod where it belongs if its next read is due at the given time; never if none is.
func (r *reads) place(p *pod, next, now instant) {
	if next == never {
		delete(r.dirty, p)
		if !p.queued {
			p.since = 0
		}
		return
	}
	r.dirty[p] = struct{}{}
	switch {
	case p.reading || p.queued:
	case next <= now:
		if p.since == 0 {
			p.since = now
		}
		p.queued = true
		r.lanes[p.lane()].push(waiter[*pod]{p, p.since, p.retry.step})
	case p.later == 0 || next < p.later:
		p.later = next
		r.later.enter(next, p)
	}
}

// dueNow removes the next pod whose time has come, and returns it; nil if there is none.
func (r *reads) dueNow(now instant) *pod {
	for r.later.next() <= now {
		e := r.later.take()
		if e.at == e.of.later {
			e.of.later = 0
			return e.of
		}
	}
	return nil
}

// take removes the next pod that may be read now from its lane, and returns both; nil if there is
// none.
func (r *reads) take(now instant) (p *pod, lane int) {
	for i := range r.lanes {
		if r.lanes[i].may(now) {
			p := r.lanes[i].take(now)
			p.queued = false
			return p, i
		}
	}
	return nil, 0
}

// begin notes that a read of a pod begins.
func (r *reads) begin(p *pod, f *flight) {
	p.reading = true
	p.since = 0
	r.lanes[f.lane].begin(f.started)
	r.inflight[p] = f
}

// stood notes that the generator has stood still until now.
func (r *reads) stood(now instant) {
	for i := range r.lanes {
		r.lanes[i].stood(now)
	}
}

// end notes that the read of a pod has ended, and returns what was noted at its begin.
func (r *reads) end(p *pod, well bool, now instant) *flight {
	f := r.inflight[p]
	f.took = r.lanes[f.lane].lasted(span{f.started, now})
	r.lanes[f.lane].end(f.started, well, now)
	p.reading = false
	p.readEnd = now
	switch {
	case well:
		p.failures = 0
	case f.full: // lists show all that other reads are for
		p.failures = min(p.failures+1, failsAgain)
	}
	delete(r.inflight, p)
	return f
}

// cross notes that a payload of a pod is stored. A read under way may have looked earlier: it shows
// the phases, and the content is left to the next read; but two reads in a row are not left out, as
// events may come faster than reads end, and somebody may wait for the content.
func (r *reads) cross(p *pod) {
	if f := r.inflight[p]; f != nil {
		f.crossed = !p.crossed
	}
}

// maxUnplaced bounds the calls a read remembers. Beyond, each may be about the read's pod.
const maxUnplaced = 64

// returnedUnplaced notes that a call about an ID of no known pod has returned. A read under way may
// have looked earlier, and show the ID for the first time, and fields from before the call.
func (r *reads) returnedUnplaced(id string) {
	for _, p := range inOrder(r.inflight) {
		f := r.inflight[p]
		if len(f.unplaced) < maxUnplaced && !slices.Contains(f.unplaced, id) {
			f.unplaced = append(f.unplaced, id)
		}
	}
}

// outdated reports whether a call about an ID of the pod has returned during the read. Has reports
// whether an ID is the pod's.
func (f *flight) outdated(has func(id string) bool) bool {
	return len(f.unplaced) == maxUnplaced || slices.ContainsFunc(f.unplaced, has)
}

// startedBefore reports whether the read of a pod under way was started before a time.
func (r *reads) startedBefore(p *pod, at instant) bool {
	return p.reading && r.inflight[p].started < at
}

// since returns the begin of the read of a pod under way; zero if there is none.
func (r *reads) since(p *pod) instant {
	if f := r.inflight[p]; f != nil {
		return f.began
	}
	return 0
}

// crowded reports whether at least that many pods wait for their first read.
func (r *reads) crowded(pods int) bool {
	return len(r.lanes[laneFirst].waiting) >= pods
}

// first returns the limiter of the reads of pods whose last read has not failed.
func (r *reads) first() *limiter { return &r.lanes[laneFirst].limiter }

// beganAt reports whether a read under way began at exactly that instant.
func (r *reads) beganAt(now instant) bool {
	for _, f := range r.inflight {
		if f.began == now {
			return true
		}
	}
	return false
}

// oldest returns the begin of the oldest read under way, or now.
func (r *reads) oldest(now instant) instant {
	oldest := now
	for _, f := range r.inflight {
		oldest = min(oldest, f.began)
	}
	return oldest
}

// deadline returns when a pod may be read, or is to be looked at, though no read ends. After is
// the time of the last look.
func (r *reads) deadline(after instant) instant {
	at := never
	for i := range r.lanes {
		at = min(at, r.lanes[i].next(after))
	}
	return min(at, r.later.next())
}

// sweeps reports whether a list of everything is to replace the reads of many pods, all of which
// have come to need a read since the last list began: at once if waiters want so many, else a
// base period after the last list, or a flood of claims would be a flood of lists. Reads that
// wait for no list do not count: a list would be one call more.
func (r *reads) sweeps(k *records, cfg *limits, last lastList, now instant) bool {
	queue := r.lanes[laneFirst].waiting
	if now <= last.ended || len(queue) < cfg.SweepAt ||
		queue[len(queue)-cfg.SweepAt].since <= last.began {
		return false
	}
	again := now >= last.ended.add(cfg.SweepAgain)
	due := 0
	waited := 0
	looks := 4 * cfg.SweepAt
	for _, w := range slices.Backward(queue) {
		looks--
		if looks < 0 || w.since <= last.began {
			return false
		}
		p := w.pod
		if p.nextListed(k, cfg) > now {
			continue
		}
		due++
		wants := p.want != 0 && p.want < now ||
			p.content != 0 && p.content < now
		if wants && p.force == 0 &&
			p.entry == statusEntry &&
			!p.unmet() && !p.differs() {
			waited++
		}
		if again && due >= cfg.SweepAt || waited >= cfg.SweepAt {
			return true
		}
	}
	return false
}

// lastList is when the last list of everything began, and ended.
type lastList struct {
	began instant
	ended instant
}

// check reports each violated invariant of the room: each pod that needs a read, by its demand, is
// where its record says, and will be read.
func (r *reads) check(check checker, pods map[cache.UID]*pod, due func(*pod) instant, now instant) {
	queued := make(map[*pod]bool)
	under := 0
	for i := range r.lanes {
		l := &r.lanes[i]
		for _, w := range l.waiting {
			check(!queued[w.pod], "pod %q is queued twice", w.pod.uid)
			check(w.since == w.pod.since && w.since > 0,
				"pod %q waits since %d, queued since %d", w.pod.uid, w.pod.since, w.since)
			queued[w.pod] = true
		}
		check(len(l.begins) <= allReads*l.workers, "%d reads under way", len(l.begins))
		under += len(l.begins)
	}
	for p := range r.dirty {
		check(pods[p.uid] == p, "pod %q is dirty and is forgotten", p.uid)
	}
	for p, f := range r.inflight {
		check(pods[p.uid] == p && p.reading, "pod %q is being read, and forgotten", p.uid)
		check(0 < f.began && f.began <= f.started && f.started <= now,
			"the read of pod %q began %d, was started %d, now %d", p.uid, f.began, f.started, now)
	}
	check(len(r.inflight) == under,
		"%d reads under way, %d of them limited", len(r.inflight), under)
	later := make(map[*pod]bool)
	for _, e := range r.later {
		later[e.of] = later[e.of] || e.at == e.of.later
	}
	for _, p := range pods {
		_, dirty := r.dirty[p]
		_, reading := r.inflight[p]
		next := due(p)
		switch {
		case dirty != (next != never):
			check(false, "pod %q needs a read and is not dirty, or is dirty for nothing: %+v", p.uid, &p.demand)
		case next == never && p.empty():
			check(false, "pod %q is remembered for nothing", p.uid)
		case dirty && !p.reading && !p.queued && !later[p]:
			check(false, "pod %q needs a read that nobody will make", p.uid)
		case later[p] != (p.later != 0) || queued[p] != p.queued || reading != p.reading:
			check(false, "pod %q is not where its record says: %+v", p.uid, &p.place)
		}
	}
}
