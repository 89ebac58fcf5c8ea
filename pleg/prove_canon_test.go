// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// The time of a search. Every delay that the core knows is some proveUnits long, and time passes in
// two ways: by a moment of a few nanoseconds for each input, and by proveJump at once, which is
// longer than every delay but the grace, and more than half of that. So what the core decides
// depends on the order of instants within one such rest, and on how many rests lie between, and a
// state whose instants are renumbered accordingly is the same state: see canon.
const (
	proveUnit  = time.Duration(1 << 20)
	proveDelay = 50 * proveUnit // every delay but the grace
	proveJump  = 60 * proveUnit
	proveGrace = 100 * proveUnit
	proveOld   = 2 * proveJump // older than this is no older than this: all delays are over

	proveMoment = 2       // nanoseconds from one input to the next, and between instants of a state
	proveNow    = 1 << 40 // where now is put
)

// canon renumbers the instants that an encoder has collected, the last of which is now, so that
// states that no decision of the core can tell apart become the same. What is ordered keeps its
// order; a moment keeps its place among the begins of the reads that may still be compared with it,
// and loses its place among all else. Oldest is the begin of the oldest of those reads, or now. Each
// instant since then, and each moment, keeps the rest in which it is.
func (q *quotient) canon(e *encoder, oldest instant) []instant {
	now := e.at[len(e.at)-1]
	q.order = q.order[:0]
	for i, at := range e.at {
		if at != 0 && at != never {
			q.order = append(q.order, stamped{at.add(shifted(at, now, oldest)), e.kind[i]})
		}
	}
	slices.SortFunc(q.order, func(a, b stamped) int { return cmp.Compare(a.at, b.at) })
	q.placeRests(now, oldest)
	edge := oldest // what is ordered, and older, keeps its order alone
	for i, at := range e.at {
		if e.kind[i] == dated && restOf(at) == restOf(now) {
			edge = min(edge, at)
		}
	}
	q.from, q.ordered, q.moments = q.from[:0], q.ordered[:0], q.moments[:0]
	old, place, last, begun := instant(proveMoment), instant(-1), instant(0), instant(0)
	for i := 0; i < len(q.order); {
		at, classes := q.order[i].at, [instantClasses]bool{}
		if q.place[i] != place {
			place = q.place[i]
			last, begun = place, place
		}
		for ; i < len(q.order) && q.order[i].at == at; i++ {
			classes[q.order[i].class] = true
		}
		to, isOrdered := begun+1, classes[begin] || classes[order] || classes[dated]
		switch {
		case isOrdered && at < edge:
			old += proveMoment
		case isOrdered:
			last += proveMoment
			if classes[begin] && at >= oldest {
				begun, to = last, last
			}
		}
		q.from, q.moments = append(q.from, at), append(q.moments, to)
		if at < edge {
			q.ordered = append(q.ordered, old)
		} else {
			q.ordered = append(q.ordered, last)
		}
	}
	q.out = q.out[:0]
	for i, at := range e.at {
		if at != 0 && at != never {
			shift := shifted(at, now, oldest)
			k, _ := slices.BinarySearch(q.from, at.add(shift))
			if e.kind[i] == moment {
				at = q.moments[k].add(-shift)
			} else {
				at = q.ordered[k]
			}
		}
		q.out = append(q.out, at)
	}
	return q.out
}

// placeRests says for each instant where the rest that it is in is put: the present one at
// proveNow, and each before it as long before the next as it was, but no longer than all delays
// take. What was as long before the oldest read under way, which it may still be compared with, is
// put together: only its order matters.
func (q *quotient) placeRests(now, oldest instant) {
	q.place = append(q.place[:0], make([]instant, len(q.order))...)
	present, edge := restOf(now), restOf(oldest)-instant(proveOld)
	next, nextPlace := present, instant(proveNow)
	for i := len(q.order) - 1; i >= 0; i-- {
		rest := max(restOf(q.order[i].at), edge)
		switch {
		case rest >= present:
			q.place[i] = proveNow + rest - present
			continue
		case rest < next:
			nextPlace -= min(next-rest, instant(proveOld))
			next = rest
		}
		q.place[i] = nextPlace
	}
}

// shifted returns the grace for an instant that is the grace before another one, which is where its
// order counts: an ack dates a claim back so that the grace ends with the ack. Else, and once all
// reads under way began after that, it returns 0.
func shifted(at, now, oldest instant) time.Duration {
	rest := restOf(now) - restOf(at)
	if rest <= 0 || rest%instant(proveJump) != instant(proveGrace%proveJump) || restOf(at.add(proveGrace)) < restOf(oldest) {
		return 0
	}
	return proveGrace
}

// restOf returns the beginning of the rest that an instant is in.
func restOf(at instant) instant { return at - at%instant(proveUnit) }

type stamped struct {
	at    instant
	class instantClass
}

// quotient is the memory of canon, used again.
type quotient struct {
	order            []stamped
	place            []instant // of the rest that each is in
	from             []instant // what there is, and what it becomes: what is ordered, and a moment
	ordered, moments []instant
	out              []instant
}

// normalize takes out of a state what decides nothing any more: entries of queues that are passed
// over, times that are over or that are compared with nothing to come, the order of IDs. What it
// leaves is a state that decides the same.
func (v *prover) normalize() {
	c, sc, now := v.core, v.scope, v.world.now
	n := counters{}
	if !c.connected() {
		c.deafness = deafness{} // as the next stream that is opened begins
	}
	if sc.judged() && c.deafness.missed != 0 && c.count.claims != c.deafness.claims {
		n.claims = 1
	}
	n.acksLost = min(1, c.count.acksLost)
	c.count, c.deafness.claims = n, 0
	c.expired, c.sched.raised = now, timerOf(c.sched.raised)
	if !sc.memory || !sc.lists {
		c.sched.raised = 0
	}
	c.pruned, c.sched.ended = timerOf(c.pruned), timerOf(c.sched.ended)
	if !sc.judged() {
		c.missing, c.deafness, c.lies = fifo[candidate]{}, deafness{}, lies{}
		c.deaf = 0
		if c.conn.state == StreamConnected {
			c.heard, c.conn.connected = 1, 1
		}
	}
	if !sc.lists {
		c.pin(now)
	}
	if !sc.knows {
		c.unborn = nil
	}
	c.conn.attempts = min(c.conn.attempts, eofsOfRestart)
	if !sc.scarce {
		c.turn = notQueued // there are workers for all
	}
	for kind := range c.queues {
		q := &c.queues[kind]
		q.compact()
		q.items = slices.DeleteFunc(q.items, func(p *pod) bool { return p.queued != queueKind(kind) })
		q.tidy()
	}
	for _, p := range c.pods {
		if p.listingBegan < c.forgotten {
			p.listing = nil // as dropOldListing will have it
		}
		if p.listing == nil {
			p.listingBegan = 0
		}
	}
	oldest := v.oldest()
	c.compactExpiring()
	c.missing.compact()
	c.laterQ = slices.DeleteFunc(c.laterQ, func(e laterEntry) bool { return e.at != e.pod.laterAt || c.pods[e.pod.uid] != e.pod })
	slices.SortFunc(c.laterQ, func(a, b laterEntry) int {
		if restOf(a.at) == restOf(b.at) {
			return byUID(a.pod, b.pod) // they come up in one turn of the loop
		}
		return int(a.at - b.at)
	})
	c.laterQ = slices.CompactFunc(c.laterQ, func(a, b laterEntry) bool { return a.pod == b.pod })
	if len(c.laterQ) == 0 {
		c.laterQ = nil
	}
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
	for i := range v.world.ids {
		v.world.ids[i].normalize(v.scope)
		if p := c.pods[sc.ids[min(i, len(sc.ids)-1)].pod]; p == nil || p.queued == notQueued {
			v.world.ids[i].fair = 0
		}
	}
}

// normalize has the ghosts of an ID say only what the checks make of them.
func (d *proveID) normalize(sc *proveScope) {
	if d.ever&maskRemoved != 0 {
		d.ever, d.over = proveOver, d.over || !sc.restarts // a new generator tells anew
	} else if d.ever&maskDied != 0 {
		d.ever |= maskStarted
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

// together says that two instants are in one rest, and that no read under way began between them.
func (c *core[S]) together(a, b instant) bool {
	if restOf(a) != restOf(b) || c.lists.inflight && (a < c.lists.began) != (b < c.lists.began) {
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

// normalizeCall has the begin of the agent's call, and the time by which the core may have forgotten
// something, say only what they decide: whether what the call returns is taken for what it has done.
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
		return p.suspects[l.id].at
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
	crossed, first := false, now // whether the last list has crossed a read, and when the first was started that it has not
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

// pin has no list be due: lists are rarer than all else.
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
	if !sc.memory {
		p.own.returned = 0
	}
	v.normalizeOwn(p, oldest)
	if p.moved < oldest && !sc.memory {
		p.moved = 0
	}
	if p.notYet != 0 && p.notYet <= w.now {
		p.notYet = 1
	}
	for _, l := range []*ladder{&p.reread, &p.going, &p.backoff} {
		if l.step >= proveDelay {
			l.step, l.end = proveDelay, 1 // a longer one there is not
		}
		if l.end <= oldest {
			l.end = min(l.end, 1)
		}
	}
	if !sc.deltas && !differs(p) {
		delete(v.core.touched, p.uid)
	}
	v.normalizeRead(p, oldest)
	if p.forced.after(proveDelay) <= w.now {
		p.forced = 0
	}
	for id, s := range p.suspects {
		if s.at.add(proveGrace) < oldest {
			s.at = 1
			p.suspects[id] = s
		}
	}
	if len(p.suspects) == 0 {
		p.suspects = nil
	}
	if len(p.contested) == 0 {
		p.contested = nil
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
		o.listed, o.unlisted, o.making, o.mayMake = 0, 0, 0, false
		o.failed = o.failed && v.scope.sandboxes()
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
	case x.byClaim && x.sure.add(proveGrace) < oldest, !x.byClaim && x.phase != PhaseRemoved && x.sure < oldest:
		x.sure = 2
	}
}

// unjudged forgets what serves the judgement of the stream alone.
func (p *pod) unjudged() {
	for _, x := range p.items {
		x.claimed, x.cause, x.borne = PhaseUnknown, CauseRead, false
		if x.byClaim {
			x.claimed, x.cause = x.phase, CauseClaim
		}
	}
}
