// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"

	"github.com/evented-pleg/evented-pleg/cache"
)

// normalize takes out of a state what decides nothing any more: entries of queues that are passed
// over, times that are over or that are compared with nothing to come, the order of IDs. What it
// leaves is a state that decides the same.
func (v *prover) normalize() {
	c := v.core
	v.normalizeTrust()
	v.normalizeTimes()
	for _, p := range c.pods {
		if p.listingBegan < c.forgotten {
			p.listing = nil // as dropOldListing will have it
		}
		if p.listing == nil {
			p.listingBegan = 0
		}
	}
	c.compactQueues(v.scope.scarce)
	c.compactExpiring()
	c.compactLater()
	oldest := v.oldest()
	v.normalizeCall(oldest)
	if c.guard.floor <= oldest && !v.roundBelow(c.guard.floor) {
		c.guard.floor = 0 // what will be written is newer
	}
	for e := range c.expiring.all() {
		v.normalizePod(e.pod, oldest) // which may be a forgotten one
	}
	for _, p := range c.pods {
		v.normalizePod(p, oldest)
	}
	v.normalizeReads()
	v.normalizeGhosts()
}

// orderFound sorts the changes that one read found, and no others, by their IDs: they are settled
// together, in the order in which the pod's items happened to be.
func orderFound(missing []candidate) {
	for first := 0; first < len(missing); {
		end := first + 1
		for missing[first].item != nil && end < len(missing) && missing[end].item != nil &&
			missing[end].found == missing[first].found {
			end++
		}
		slices.SortStableFunc(missing[first:end], func(a, b candidate) int {
			return strings.Compare(a.item.id, b.item.id)
		})
		first = end
	}
}

// normalizeTrust drops counts, and what serves the judgement of a stream that is not judged.
func (v *prover) normalizeTrust() {
	c, sc := v.core, v.scope
	n := counters{}
	if !c.connected() {
		c.mute = muteStream{} // as the next stream that is opened begins
	}
	if sc.judged() && c.mute.missed != 0 && c.count.claims != c.mute.claims {
		n.claims = 1
	}
	n.acksLost = min(1, c.count.acksLost)
	c.count, c.mute.claims = n, 0
	c.candidates.compact()
	orderFound(c.candidates.items[c.candidates.head:])
	c.conn.attempts = min(c.conn.attempts, maxRestartEOFs)
	if c.unconfirmedDropped < v.oldest() {
		c.unconfirmedDropped = 0 // no read that is still to end began by then
	}
	if sc.judged() {
		return
	}
	c.unconfirmedDropped = 0
	c.candidates, c.mute, c.overruled, c.lastDiscard = fifo[candidate]{}, muteStream{}, overruledClaims{}, 0
	if c.connected() {
		c.eventsSince, c.conn.connected = 1, 1
	}
}

// normalizeTimes puts times that are compared with now alone at the beginnings of their rests, and
// drops what a scope has no use for.
func (v *prover) normalizeTimes() {
	c, sc, now := v.core, v.scope, v.world.now
	c.expired, c.pruned, c.sched.ended = now, timerOf(c.pruned), timerOf(c.sched.ended)
	c.sched.raised = 0 // there is one period
	if !sc.lists && c.lists.applied != 0 {
		c.pin(now)
	}
	if !sc.knows {
		c.uncertainCreates = nil
	}
	if !sc.scarce {
		c.turn = notQueued // there are workers for all
	}
}

// compactQueues drops entries of queues that are passed over, and of the records of pods that have
// been forgotten all but where they wait. Where workers are scarce, entries are passed over when a
// worker is free: until then they hold forgetting back (see oldestRead), and a pod that is to be
// read again may find its old place in the line.
func (c *core[S]) compactQueues(scarce bool) {
	for kind := range c.queues {
		q := &c.queues[kind]
		q.compact()
		if !scarce {
			q.items = slices.DeleteFunc(q.items, func(p *pod) bool { return p.queued != queueKind(kind) })
		}
		for _, p := range q.items {
			if c.pods[p.uid] != p {
				*p = pod{uid: p.uid, wanted: wanted{waited: p.waited}, queueing: queueing{queued: p.queued}}
			}
		}
		q.tidy()
	}
}

// compactLater drops entries that are passed over, and orders those of one rest by their pods: they
// come up in one turn of the loop, in an order that two moves tell apart where workers are scarce.
func (c *core[S]) compactLater() {
	c.laterQ = slices.DeleteFunc(c.laterQ, func(e laterEntry) bool {
		return e.at != e.pod.laterAt || c.pods[e.pod.uid] != e.pod
	})
	slices.SortFunc(c.laterQ, func(a, b laterEntry) int {
		if restOf(a.at) == restOf(b.at) {
			return byUID(a.pod, b.pod)
		}
		return cmp.Compare(a.at, b.at)
	})
	c.laterQ = slices.CompactFunc(c.laterQ, func(a, b laterEntry) bool { return a.pod == b.pod })
	if len(c.laterQ) == 0 {
		c.laterQ = nil
	}
}

// comeUp has all pods that are to be looked at later come up in this turn, the given one first.
func (c *core[S]) comeUp(first cache.UID, now instant) {
	c.compactLater()
	for i := range c.laterQ {
		e := &c.laterQ[i]
		if e.at = now; e.pod.uid == first {
			e.at--
		}
		e.pod.laterAt = e.at
	}
	heap.Init(&c.laterQ)
}

// normalizeGhosts has what serves the checks alone say only what they make of it.
func (v *prover) normalizeGhosts() {
	for i := range v.scope.ids {
		d := &v.world.ids[i]
		if d.ever&maskRemoved != 0 {
			d.ever, d.over = proveOver, d.over || !v.scope.restarts // a new generator tells anew
		} else if d.ever&maskDied != 0 {
			d.ever |= maskStarted
		}
	}
}

// roundBelow says that a round may confirm a pod as of a read from before that time.
func (v *prover) roundBelow(floor instant) bool {
	for _, r := range v.core.rounds {
		for p := range r.pending {
			if r.began <= p.read && p.read < floor {
				return true
			}
		}
	}
	return false
}

// compactExpiring leaves out the entries of a pod that come up together with one before.
func (c *core[S]) compactExpiring() {
	q := &c.expiring
	q.compact()
	kept := q.items[:0]
	for _, e := range q.items {
		if !slices.ContainsFunc(kept, func(k expiry) bool { return k.pod == e.pod && c.together(k.at, e.at) }) {
			kept = append(kept, e)
		}
	}
	q.items = kept
	q.tidy()
}

// together says that two instants are in one rest, and that no read that is under way, or that
// waits for a worker with a list to build upon, began between them.
func (c *core[S]) together(a, b instant) bool {
	if restOf(a) != restOf(b) || c.lists.inflight && (a < c.lists.began) != (b < c.lists.began) {
		return false
	}
	if c.queues[inListed].len() > 0 && (a < c.lists.applied) != (b < c.lists.applied) {
		return false
	}
	for _, f := range c.inflight {
		if (a < f.began) != (b < f.began) {
			return false
		}
	}
	for _, p := range c.pods {
		if p.listing != nil && (a < p.listingBegan) != (b < p.listingBegan) {
			return false
		}
	}
	return true
}

// normalizeCall has the begin of the agent's call, and the time by which the core may have
// forgotten something, say only what they decide: whether what the call returns is believed.
func (v *prover) normalizeCall(oldest instant) {
	w, c := &v.world, v.core
	if w.calling && w.callBegan != 1 {
		switch making := w.verb == v.scope.ids[w.call].shows[1]; {
		case making && w.callBegan <= c.forgotten:
			w.callBegan = 1
		case making && w.callBegan < oldest:
			w.callBegan = 2
		case making:
		case w.verb == PhaseExited && v.sinceOf(w.call) > w.callBegan:
			w.callBegan = 1
		default:
			w.callBegan = w.now
		}
	}
	c.forgotten = min(c.forgotten, 1) // listings from before that have been dropped
}

// sinceOf returns since when an ID is known to be in its phase, or claimed.
func (v *prover) sinceOf(i uint8) instant {
	l := &v.scope.ids[i]
	if x := v.core.index[l.id]; x != nil {
		return x.since
	}
	if p := v.core.pods[l.pod]; p != nil {
		return p.unconfirmed[l.id].at
	}
	return 0
}

// normalizeReads forgets when reads were started once that makes no difference.
func (v *prover) normalizeReads() {
	c, now := v.core, v.world.now
	for p, f := range c.inflight {
		if now > f.started.add(proveDelay) || restOf(f.started) == restOf(f.began) {
			f.started = f.began
		}
		c.inflight[p] = f
	}
	// Whether the last list has crossed a read, and when the first was started that it has not.
	crossed, first := false, now
	for _, r := range v.world.reads {
		switch {
		case r.asked >= c.lists.finished:
			first = min(first, r.asked)
		case restOf(r.asked) == restOf(r.began):
			r.asked = r.began
			fallthrough
		default:
			crossed = true
		}
	}
	if crossed {
		c.lists.finished = first
		return
	}
	c.lists.finished = 0
	for _, r := range v.world.reads {
		if restOf(r.asked) == restOf(r.began) {
			r.asked = r.began
		}
	}
}

// timerOf puts an instant that is compared with now alone at the beginning of its rest.
func timerOf(at instant) instant {
	if at == 0 {
		return 0
	}
	return restOf(at) + 1
}

// pin has no list be due after the first: lists are rarer than all else.
func (c *core[S]) pin(now instant) { c.sched.ended = now }

func (q *fifo[T]) compact() {
	q.items, q.head = q.items[q.head:], 0
	q.tidy()
}

func (q *fifo[T]) tidy() {
	if len(q.items) == 0 {
		q.items = nil
	}
}

// normalizePod does so for a pod. Oldest is the begin of the oldest read that is still to end.
func (v *prover) normalizePod(p *pod, oldest instant) {
	sc, w := v.scope, &v.world
	if !sc.judged() {
		p.unjudged()
	}
	if p.own.hold <= w.now {
		p.own.hold = 0
	}
	p.own.returned = 0
	v.normalizeOwn(p, oldest)
	if p.changedAt < oldest {
		p.changedAt = 0
	}
	if p.notYet != 0 && p.notYet <= w.now {
		p.notYet = 1
	}
	for _, l := range []*ladder{&p.reread, &p.teardown, &p.backoff} {
		if l.step >= proveDelay {
			l.step, l.end = proveDelay, 1 // a longer one there is not
		}
		if l.end <= oldest {
			l.end = min(l.end, 1)
		}
	}
	if !sc.deltas && !differs(p) {
		delete(v.core.changedSinceList, p.uid)
	}
	v.normalizeRead(p, oldest)
	if p.forced.after(proveDelay) <= w.now {
		p.forced = 0
	}
	for id, s := range p.unconfirmed {
		if s.at.add(proveGrace) < oldest {
			s.at = 1
			p.unconfirmed[id] = s
		}
	}
	if len(p.unconfirmed) == 0 {
		p.unconfirmed = nil
	}
	if len(p.conflicts) == 0 {
		p.conflicts = nil
	}
	if len(p.items) == 0 {
		p.items = nil
	}
	slices.SortFunc(p.items, func(a, b *item) int { return strings.Compare(a.id, b.id) })
	for i, x := range p.items {
		x.at = i
		x.normalize(v, oldest)
	}
}

// normalizeOwn keeps of what calls have told about a pod what decides whether all of it is known.
func (v *prover) normalizeOwn(p *pod, oldest instant) {
	c, o := v.core, &p.own
	switch {
	case !v.scope.knows:
		o.listed, o.unlisted, o.creating, p.uncertainCreate = 0, 0, 0, false
		p.callFailed = p.callFailed && v.scope.sandboxes()
	case v.scope.judged():
	case c.listedAt(p) > o.unlisted:
		o.listed, o.unlisted = 0, 0
	default:
		if o.listed = 0; o.unlisted < oldest {
			o.unlisted = c.lists.applied // the next read is later
		}
	}
}

// normalizeRead puts together when a pod was last read, once that is compared with what somebody
// wants alone.
func (v *prover) normalizeRead(p *pod, oldest instant) {
	switch {
	case v.scope.judged() || p.read >= oldest || v.roundBy(p.read):
	case max(p.want, p.force) == 0:
		p.read = min(p.read, 2)
	case p.force == 0 && p.read > p.want:
		p.read = p.want + 1
	case p.force == 0:
		p.read = min(p.read, 2)
	}
}

// normalize does so for an ID.
func (x *item) normalize(v *prover, oldest instant) {
	if x.first < oldest {
		x.first = 1
	}
	w := &v.world
	called := w.calling && w.verb == PhaseExited && v.scope.ids[w.call].id == x.id
	x.since = 1
	if called && w.callBegan == 1 {
		x.since = 2
	}
	switch {
	case x.byClaim && x.confirmed.add(proveGrace) < oldest,
		!x.byClaim && x.phase != PhaseRemoved && x.confirmed < oldest:
		x.confirmed = 2
	}
}

// unjudged forgets what serves the judgement of the stream alone.
func (p *pod) unjudged() {
	for _, x := range p.items {
		x.claimed, x.cause, x.shownAgain = PhaseUnknown, CauseRead, false
		if x.byClaim {
			x.claimed, x.cause = x.phase, CauseClaim
		}
	}
}
