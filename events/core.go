// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/klog/v2"
)

// stage is how far a shutdown has come.
type stage uint8

const (
	stageOpen     stage = iota // events are taken
	stageStopped               // a shutdown began: nothing is taken any more
	stageDraining              // the rest is being sent
	stageOver                  // late answers are not booked
)

// core routes occurrences, times and answers between the rooms: the table of series, the queue, the
// limits and the rosters. core makes no call, and has neither clock nor lock: the broadcaster's
// lock is held for each method.
type core struct {
	opts  *Options
	stage stage
	// now is the latest time that came with an occurrence, an answer or a look for a call.
	now time.Time
	// deadline is the end of the shutdown, zero for none.
	deadline time.Time
	// wake lets a writer look for calls.
	wake func()

	table   table
	queue   queue
	limits  limits
	rosters []*roster // by the source's index
	// granted holds the kinds of calls in a namespace that a role is known to allow, with the time
	// at which one was taken while they were held for a 403, zero for never.
	granted map[grant]time.Time
	count   Stats
	// lastErr is the error of the last failed call, nil after a success.
	lastErr error
	// birth is the latest time in a name.
	birth time.Time
	// silent is, by reason why events are lost, until when no further message is logged.
	silent map[string]time.Time
	// notes are messages to be logged when the lock is free.
	notes []func(klog.Logger)
}

// grant is the unit of a role: calls of a kind in a namespace.
type grant struct {
	namespace string
	kind      callKind
}

func newCore(o *Options, wake func()) core {
	pace := ladder{base: o.BackoffBase, longest: o.BackoffMax, jitter: rand.Float64}
	return core{
		opts:    o,
		wake:    wake,
		table:   newTable(),
		queue:   newQueue(o.Writers, pace),
		limits:  newLimits(o),
		granted: map[grant]time.Time{},
		count: Stats{
			Dropped:     map[string]int64{},
			Calls:       map[string]int64{},
			Retries:     map[string]int64{},
			Rejected:    map[string]int64{},
			Transitions: map[string]int64{},
		},
		silent: map[string]time.Time{},
	}
}

// clock returns the time of an input, which is the latest so far if the input had to wait for the
// lock: here no time goes back.
func (c *core) clock(now time.Time) time.Time {
	if now.After(c.now) {
		c.now = now
	}
	return c.now
}

// take books an occurrence, in all books at once. It returns false if it needs the built series,
// and has booked nothing.
func (c *core) take(e *emission, built *series, now time.Time) bool {
	booked := c.book(e, built, now)
	if booked {
		c.count.Emitted++
	}
	return booked
}

// book is take without the sum.
func (c *core) book(e *emission, built *series, now time.Time) bool {
	switch {
	case c.stage != stageOpen:
		c.count.drop(DropShutdown, 1)
		return true
	case c.opts.Sink == nil:
		c.count.drop(DropNoSink, 1)
		return true
	}
	now = c.clock(now)
	taken := c.occur(e, now)
	if !taken && built != nil {
		c.begin(e, built, now)
	}
	return taken || built != nil
}

// occur counts an occurrence of a series in the table. It returns false if the occurrence begins a
// series.
func (c *core) occur(e *emission, now time.Time) bool {
	s := c.table.find(&e.key, e.hash)
	own := s != nil
	if !own {
		s = c.combined(e, now)
	}
	if s == nil {
		return false
	}
	pause := now.Sub(s.st.last)
	switch {
	case s.st.phase == phaseResting && !s.st.silent(now, c.opts):
		c.count.drop(DropRejected, 1)
		return true
	case !s.st.occur(now, c.opts):
		return false
	}
	c.count.Unsent++
	e.taken = true
	e.combined = !own
	if s.in == c.table.leaving { // evicted, and going on
		c.table.share(s)
	}
	if s.age.held() || s.st.phase == phaseStored {
		c.table.touch(s)
	}
	// Slow loops are written as often as by client-go's recorder, unless the server refuses that.
	early := pause >= slowLoop && !s.st.denied && now.Before(s.st.due)
	if early && c.limits.tokens.has(hash(objectOf(&s.key.regarding)), now) {
		c.table.unhurry(s)
		s.st.due = now
	}
	c.enqueue(s, now)
	return true
}

// combined returns the live combined series in which an event is counted, nil for none.
func (c *core) combined(e *emission, now time.Time) *series {
	if !c.limits.combines(&e.key) {
		return nil
	}
	for _, part := range []bool{true, false} {
		if part && e.key.note == "" {
			continue // a recorder without notes combines only what has no token
		}
		for _, k := range e.key.combinations(e.note, part) {
			s := c.table.find(&k, hash(k))
			if s != nil && !s.st.silent(now, c.opts) {
				return s
			}
		}
	}
	return nil
}

// begin puts a new series into the table, or drops the event by a limit. An evicted series is
// continued.
func (c *core) begin(e *emission, built *series, now time.Time) {
	r := c.rosters[e.key.source]
	s := built
	g, revived := c.evicted(s, now)
	_, restarts := r.left.latest(s.id.hint())
	continues := revived || restarts
	bucket := e.key.bucket(s.pair)
	key, token := c.limits.choose(e.key, bucket, e.note, now)
	if key != e.key && !continues {
		s = newSeries(&key, hash(key), r.src, &built.content)
		s.content.note = cut(combinedNote+e.note, maxNote)
		g, revived = c.evicted(s, now)
	}
	prev := c.table.byKey[s.hash] // its time is over, or its key has the same hash by chance
	if why := c.roomFor(s, prev, now); why != "" {
		c.count.drop(why, 1)
		return
	}
	if token && !continues {
		c.limits.tokens.allow(bucket, now)
	}
	c.count.Unsent++
	e.taken = true
	e.combined = s != built
	if prev != nil {
		prev.st.tick(now, c.opts)
		if prev.st.end == going {
			prev.st.becomeEvicted()
		}
		c.table.retire(prev)
		c.settle(prev, now)
	}
	if revived {
		c.table.gone.forget(s.id)
		s.begins(g.st.revived(now), g.name)
	} else {
		s.begins(begin(now), c.newName(s, now))
		c.claim(r, s, now)
	}
	c.enter(s)
	c.settle(s, now)
	c.evict(now)
}

// evicted returns the evicted series that a new one continues, if there is one.
func (c *core) evicted(s *series, now time.Time) (g gone, ok bool) {
	g, ok = c.table.gone.get(s.id)
	return g, ok && now.Sub(g.st.last) < c.opts.FinishAfter
}

// roomFor makes room for a new series, or returns the reason to drop its event. Where all room is
// used, a series of the namespace with the most goes for one of a namespace with less.
func (c *core) roomFor(s, prev *series, now time.Time) (why string) {
	t := &c.table
	namespace := s.content.namespace
	queueFull := t.pending.n >= c.opts.MaxQueue
	tableFull := t.all-t.pending.n >= 2*c.opts.MaxSeries // as many are on their way out
	switch {
	case prev == nil && c.limits.full(s.pair):
		return DropObjectCap
	case queueFull && t.pending.givesWay(namespace) == nil:
		return DropQueueFull
	case tableFull && t.leaving.givesWay(namespace) == nil:
		return DropTableFull
	}
	if queueFull {
		c.giveUp(t.pending.givesWay(namespace), DropQueueFull, now)
	}
	if tableFull {
		c.giveUp(t.leaving.givesWay(namespace), DropTableFull, now)
	}
	return ""
}

// giveUp drops what a series has not written.
func (c *core) giveUp(s *series, why string, now time.Time) {
	lost := s.st.count - s.st.stored
	c.count.Unsent -= lost
	c.count.drop(why, lost)
	r := c.rosters[s.key.source]
	if s.listed && s.st.untouched() { // of an earlier process: as if no series had continued it
		r.unlist(s)
		r.left.add(leftover{path: s.path()})
	}
	r.remove(s, now)
	c.forget(s)
}

// enter puts a series into memory.
func (c *core) enter(s *series) {
	if !s.left {
		c.table.byKey[s.hash] = s
	}
	c.table.all++
	r := c.rosters[s.key.source]
	r.own.insert(s, &s.mine, r.own.last)
	c.limits.count(s, 1)
}

// forget removes a series from memory.
func (c *core) forget(s *series) {
	c.table.retire(s)
	c.table.unhurry(s)
	c.queue.leave(&s.ticket)
	s.hold(nil)
	c.rosters[s.key.source].own.drop(&s.mine)
	c.table.all--
	c.limits.count(s, -1)
}

// newName returns a name for the object of a series. The time in a name is later than all earlier
// ones, even if the clock is set back or two events share a clock reading.
func (c *core) newName(s *series, now time.Time) string {
	if now.UnixNano() <= c.birth.UnixNano() {
		now = c.birth.Add(1)
	}
	c.birth = now
	return eventName(s.key.regarding.Name, &s.id, now)
}

// settle brings the rooms in line with the state of a series.
func (c *core) settle(s *series, now time.Time) {
	t := &c.table
	if !s.known && (s.st.stored > 0 || s.st.phase == phaseResting || s.st.phase == phaseDone) {
		s.known = true
	}
	if s.st.over(now) && !s.inflight {
		c.depart(s, now)
		return
	}
	t.share(s)
	switch {
	case s.st.end == finished:
		t.retire(s)
	case s.st.end == evicted:
		t.unage(s)
	case s.known && !s.age.held():
		t.touch(s)
	}
	c.enqueue(s, now)
}

// depart lets a series go that has no call left to make.
func (c *core) depart(s *series, now time.Time) {
	switch {
	case s.st.phase == phaseResting:
	case s.st.end == suspended: // stays in aged, for the last roster
		c.table.share(s)
		c.queue.remove(&s.ticket)
		if !s.age.held() {
			c.table.touch(s)
		}
		return
	case s.st.end == finished && s.st.stored > 1 && !s.st.denied:
		c.count.turn("finished")
	case s.st.end == evicted && s.st.stored > 0:
		c.table.gone.put(gone{s.id, s.name, s.st}, 2*c.opts.MaxSeries)
	}
	c.rosters[s.key.source].remove(s, now)
	c.forget(s)
}

// enqueue lets a writer make the call of a series, if there is one.
func (c *core) enqueue(s *series, now time.Time) {
	if s.ticket.in == nil && !s.inflight && s.st.owes(now) {
		c.queue.push(&s.ticket, s.st.end == evicted && s.ticket.seq >= 0)
		c.wake()
	}
}

// evict makes room in the table by closing the longest idle series, of the namespaces with the
// most. Their last writes are sent before all others.
func (c *core) evict(now time.Time) {
	for c.table.aged.n > c.opts.MaxSeries && c.stage == stageOpen {
		s := c.table.yields()
		c.table.unage(s)
		c.queue.remove(&s.ticket) // for the front
		s.st.becomeEvicted()
		c.count.turn("evicted")
		c.settle(s, now)
	}
}

// sweep ends silent series, lets those be written that are due, and returns the time until the
// next. A shutdown ends them all.
func (c *core) sweep(now time.Time) (wait time.Duration) {
	wait = forever
	if c.stage != stageOpen {
		return wait
	}
	for x := c.table.aged.first; x != nil; x = c.table.aged.first {
		s := x.owner
		d := s.st.quiet().Add(c.opts.FinishAfter).Sub(now)
		if d > 0 {
			wait = d
			break
		}
		s.st.tick(now, c.opts)
		c.settle(s, now)
	}
	for c.table.hurried.Len() > 0 {
		s := c.table.hurried.items[0]
		d := s.st.due.Sub(now)
		if d > 0 {
			return min(wait, d)
		}
		c.table.unhurry(s)
		c.enqueue(s, now)
	}
	return wait
}

// next takes the next call. A wait other than zero means no call before then.
func (c *core) next(now time.Time) (j job, wait time.Duration) {
	if c.stage == stageStopped || c.stage == stageOver {
		return j, over
	}
	now = c.clock(now)
	wait = c.sweep(now)
	// The names left by an earlier process are read before new calls, or a series would get two
	// objects.
	j, blocked, d := c.nextRoster(now)
	wait = min(wait, d)
	if j.roster == nil && !blocked {
		wait = min(wait, c.endLeft(now))
		j, d = c.pick(now)
		wait = min(wait, d)
	}
	switch {
	case j.call.kind != callNone:
	case c.drained():
		return j, over
	default:
		return j, max(wait, 1)
	}
	j.limit = c.callLimit(now)
	if j.roster != nil || j.call.kind == callRead && j.series.st.untouched() {
		j.limit = min(j.limit, restoreTimeout)
	}
	if c.queue.waiting+len(c.rosters) > 1 {
		c.wake() // there is more for another writer
	}
	return j, 0
}

// drained reports whether a shutdown has no call left to make.
func (c *core) drained() bool {
	if c.stage != stageDraining || len(c.queue.flights) > 0 || c.queue.waiting > 0 {
		return false
	}
	return c.opts.NoRoster || !slices.ContainsFunc(c.rosters, c.final)
}

// callLimit returns the longest time for a call. One that hangs does not use up all the time of a
// shutdown.
func (c *core) callLimit(now time.Time) time.Duration {
	if c.stage == stageOpen || c.deadline.IsZero() {
		return writeTimeout
	}
	return min(c.deadline.Sub(now)/3, writeTimeout)
}

// pick takes the first series that may be sent. Without a call, retry is the time until there may
// be one.
func (c *core) pick(now time.Time) (j job, retry time.Duration) {
	for {
		t, wait := c.queue.take(now)
		if t == nil {
			return j, wait
		}
		s := t.owner.(*series)
		j = c.callOf(s, now)
		if j.call.kind != callNone {
			return j, 0
		}
		c.queue.stopped(s.place(), now)
		c.settle(s, now)
	}
}

// callOf returns the call of a series, if one is left to make.
func (c *core) callOf(s *series, now time.Time) (j job) {
	r := c.rosters[s.key.source]
	at := s.place()
	if s.seen != r.shared {
		s.st.mistrust(now)
	}
	k := s.st.next(now, c.opts)
	if k.kind == callNone {
		return j
	}
	s.inflight = true
	c.table.unhurry(s) // the answer decides when the next call is due
	return job{
		series: s,
		place:  at,
		older:  r.src.byNote,
		call:   k,
		event:  s.event(r.src, k),
	}
}

// becomeStopped takes no more occurrences and begins no more calls, for a shutdown that ends at the
// given time, zero for none.
func (c *core) becomeStopped(deadline time.Time) {
	c.stage = stageStopped
	c.deadline = deadline
}

func (c *core) becomeDraining() { c.stage = stageDraining }

func (c *core) becomeOver() { c.stage = stageOver }

// suspend closes all series for their last writes. A restart may continue them.
func (c *core) suspend(now time.Time) {
	now = c.clock(now)
	c.becomeDraining()
	c.queue.reset()
	for _, r := range c.rosters {
		r.hasToEnd(now)
	}
	var all []*series
	for x := c.table.aged.first; x != nil; x = x.next {
		all = append(all, x.owner)
	}
	var others []*series
	for _, s := range c.table.byKey {
		if !s.age.held() {
			others = append(others, s)
		}
	}
	slices.SortFunc(others, byBegin)
	for _, s := range append(all, others...) {
		if s.st.end == going {
			s.st.becomeSuspended()
			c.settle(s, now)
		}
	}
}

// abandon drops what is left, and returns the number of series and occurrences.
func (c *core) abandon() (series int, occurrences int64) {
	c.becomeOver()
	series = c.queue.waiting + len(c.queue.flights)
	for _, r := range c.rosters {
		if r.busy {
			series--
		}
	}
	occurrences = c.count.Unsent
	c.count.drop(DropShutdown, occurrences)
	c.count.Unsent = 0
	c.table = newTable()
	for _, r := range c.rosters {
		r.own = links{}
	}
	c.queue = newQueue(c.opts.Writers, c.queue.pace)
	return series, occurrences
}
