// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// schedule decides when the next relist is due. Trust is earned: the period starts at the base;
// doubles, once in a period at most, after a relist without a change that the stream had not
// announced; and falls back to the base when an event was missed, a claim refuted or the stream
// lost.
type schedule struct {
	base, max time.Duration
	period    time.Duration
	ended     instant // when the last relist ended
	raised    instant // when the period last changed
	asked     instant // when a relist was requested before its time; never if not
	askedNow  bool    // the requested relist need not wait for the base period
}

func newSchedule(base, max time.Duration) schedule {
	return schedule{base: base, max: max, period: base, asked: never}
}

// due returns when the next relist shall begin: at the start, a period after the last relist, or on
// request, but no sooner than a base period after the last relist unless the request cannot wait.
func (s *schedule) due() instant {
	if s.ended == 0 {
		return 0
	}
	due := s.ended.add(s.period)
	if s.asked == never {
		return due
	}
	if s.askedNow {
		return min(due, max(s.asked, s.ended.next())) // lists begin at different times
	}
	return min(due, max(s.asked, s.ended.add(s.base)))
}

// ask requests a relist that begins after now: at once, or as soon as the base period allows.
func (s *schedule) ask(now instant, atOnce bool) {
	s.asked, s.askedNow = min(s.asked, now), s.askedNow || atOnce
}

// trust doubles the period.
func (s *schedule) trust(now instant) {
	if now.sub(s.raised) >= s.period {
		s.period, s.raised = doubled(s.period, s.max), now
	}
}

// distrust takes the period back to the base.
func (s *schedule) distrust(now instant) { s.period, s.raised = s.base, now }

// candidate is a change found by a read and announced by no claim. Unless a claim confirms the
// change within the grace, the change was missed, or, if nobody listened all the while, unheard.
type candidate struct {
	item     *item // nil: not a change, but the credit of a list whose changes are all in front
	phase    Phase
	found    instant // when the read was applied
	stream   instant // when the stream was connected that missed the change; 0 if none was up all the while
	deadline instant // the grace after that
}

// addCandidate notes a change found by a read, from a runtime known to have events. Since is the
// begin of the last read without the change.
func (c *core[S]) addCandidate(x *item, phase Phase, since, now instant) {
	if c.eventsSince == 0 || since <= c.eventsSince || x.claimed >= phase {
		return
	}
	e := candidate{item: x, phase: phase, found: now, deadline: now.add(c.cfg.Grace)}
	if c.connected() && since > max(c.conn.connected, c.lastDiscard) {
		e.stream = c.conn.connected
	}
	if phase == PhaseRemoved {
		c.gone[x.id] = x
	}
	c.candidates.push(e)
}

// credit raises the relist period for a list: at once if the list found nothing unannounced, else
// once claims have confirmed every change found so far. A read may see a change before its event.
func (c *core[S]) credit(quiet bool, now instant) {
	if quiet && c.candidates.len() == 0 {
		c.sched.trust(now)
		return
	}
	c.candidates.push(candidate{found: now, deadline: now.add(c.cfg.Grace)})
}

// revokeCredit drops the credit of lists. The changes found by them are still settled.
func (c *core[S]) revokeCredit() {
	c.candidates.keep(func(e candidate) bool { return e.item != nil })
}

// settle counts the changes whose grace has passed, and takes the stream's trust for those that the
// stream has missed and for the claims that reads have refuted in this turn. Creations and removals
// are counted apart, because runtimes differ in the events that they send for them (KEP-3386:
// kube_pod_missed_events). So are changes while nobody listened: the runtime is not to blame.
func (c *core[S]) settle(now instant) {
	if c.refuted.n > 0 {
		c.overruled = now
		c.distrust(ReasonEventsOverruled, "reads refute events of the runtime: %v", c.refuted, now)
		c.refuted = findings{}
	}
	var missed, unheard findings
	found := never
	for {
		e, ok := c.candidates.front()
		if !ok || e.deadline > now {
			break
		}
		c.candidates.pop()
		x := e.item
		switch {
		case x == nil:
			if missed.n == 0 && c.connected() {
				c.sched.trust(now)
			}
			continue
		case x.pod.calls > 0 && x.claimed < e.phase: // the change may be the effect of a call under way
			e.deadline = now.add(c.cfg.Grace)
			c.candidates.push(e)
			continue
		case c.gone[x.id] == x && e.phase == PhaseRemoved:
			delete(c.gone, x.id)
		}
		heard := e.stream != 0 && c.connected() && e.stream == c.conn.connected && e.found > c.lastDiscard
		switch life := e.phase == PhaseRunning || e.phase == PhaseExited; {
		case x.claimed == e.phase, x.claimed > e.phase && !life:
		case x.claimed > e.phase && heard && c.lastClaim >= e.found: // a later event names no end of its own
		case life && heard:
			missed.add(x.title() + " is " + e.phase.String())
			found = min(found, e.found)
		case life:
			unheard.add(x.title() + " is " + e.phase.String())
		case heard && e.phase == PhaseRemoved:
			c.count.missedRemovals++
		case heard:
			c.count.missedCreations++
		}
	}
	if unheard.n > 0 {
		c.count.unheard += unheard.n
		c.reportPaced(Report{
			Reason: ReasonChangesUnheard, Action: "Relist",
			Note: "containers or sandboxes changed while no event could be heard; reads found them: " + unheard.String(),
		}, now)
	}
	if missed.n > 0 {
		c.count.missed += missed.n
		c.distrust(ReasonEventsMissed, "the runtime changed containers or sandboxes without an event: %v", missed, now)
		c.checkMute(found, now)
	}
}

// distrust takes the relist period back to the base, and reports why.
func (c *core[S]) distrust(reason Reason, note string, what findings, now instant) {
	c.revokeCredit()
	c.sched.distrust(now)
	c.reportPaced(Report{
		Reason: reason, Action: "Relist", Warning: true,
		Note: fmt.Sprintf(note, what) + fmt.Sprintf("; relisting every %v", c.sched.period),
	}, now)
}

// noteOverruled notes that a read has refuted the claim of an ID: the read began more than the
// grace after the claim, and shows less. core.settle follows in the same turn.
func (c *core[S]) noteOverruled(x *item, claimed Phase) {
	c.count.overruled++
	c.refuted.add(fmt.Sprintf("%s was announced as %v, and is %v more than %v later", x.title(), claimed, x.phase, c.cfg.Grace))
}

// muteStream tells a stream that loses events from a stream that hangs open and carries none.
type muteStream struct {
	missed instant // since when events are missing, on the present stream; 0 if none is
	ending bool    // the stream is being ended as mute
}

// checkMute handles missed changes, the first of which a read found at the given time. If events
// were missed before that, and no claim has come since, the stream is ended and opened anew: a
// runtime that has forgotten its subscriber shows no other sign.
func (c *core[S]) checkMute(found, now instant) {
	m := &c.mute
	switch {
	case m.ending:
	case m.missed == 0 || c.lastClaim >= m.missed:
		m.missed = now
	case found > m.missed:
		m.ending = true
		c.todo.do(action[S]{kind: actCut})
	}
}

// namedAtMost is the number of changes named by a report; the others are counted.
const namedAtMost = 3

// findings are changes or claims for a report.
type findings struct {
	first []string // in words
	n     int
}

// add enters a change or a claim, in words.
func (f *findings) add(what string) {
	if f.n++; f.n <= namedAtMost {
		f.first = append(f.first, what)
	}
}

// String names the first findings, and counts the others.
func (f findings) String() string {
	s := strings.Join(f.first, ", ")
	if more := f.n - len(f.first); more > 0 {
		s += fmt.Sprintf(", and %d more", more)
	}
	return s
}

// A lasting condition of the node is reported at once and then ever more rarely: after 10 s, 40 s,
// 160 s and every ten minutes. A condition that has rested for ten minutes begins anew.
const (
	firstPause   = 10 * time.Second
	pauseFactor  = 4
	longestPause = 10 * time.Minute
)

// pace paces the reports of a reason.
type pace struct {
	reason Reason
	next   instant       // no report before this
	pause  time.Duration // before next; 0 before the first report
	seen   instant       // when the reason last came up
	held   *Report       // the last report held back; nil if none
	n      int           // reports held back
}

// reportPaced makes a report or holds the report back.
func (c *core[S]) reportPaced(r Report, now instant) {
	p := c.paceOf(r.Reason)
	if now.sub(p.seen) >= longestPause {
		p.next, p.pause = 0, 0
	}
	p.seen = now
	if now < p.next {
		p.n++
		p.held = &r
		return
	}
	c.release(p, r, now)
}

// paceOf returns the pace of a reason.
func (c *core[S]) paceOf(reason Reason) *pace {
	i := slices.IndexFunc(c.paces, func(p pace) bool { return p.reason == reason })
	if i < 0 {
		i = len(c.paces)
		c.paces = append(c.paces, pace{reason: reason})
	}
	return &c.paces[i]
}

// reportHeld makes the held report of each reason whose pause is over: the reason may not come up
// again.
func (c *core[S]) reportHeld(now instant) {
	for i := range c.paces {
		if p := &c.paces[i]; p.n > 0 && now >= p.next {
			r := *p.held
			if age := now.sub(p.seen).Round(time.Second); age > 0 {
				r.Note += fmt.Sprintf(" (%v ago)", age)
			}
			p.n-- // the report is not one of those held
			c.release(p, r, now)
		}
	}
}

// release makes a report, which stands for the held reports as well.
func (c *core[S]) release(p *pace, r Report, now instant) {
	r.Held = p.n
	p.n, p.held = 0, nil
	p.pause = min(max(firstPause, pauseFactor*p.pause), longestPause)
	p.next = now.add(p.pause)
	c.todo.report(r)
}

// reportsDue returns when the next held report is due, or the list under way counts as hung.
func (c *core[S]) reportsDue() instant {
	at := never
	for i := range c.paces {
		if c.paces[i].n > 0 {
			at = min(at, c.paces[i].next)
		}
	}
	return min(at, c.listHangs())
}

// listHangs returns when the list under way is to be reported as hung; never if that was done.
func (c *core[S]) listHangs() instant {
	if !c.lists.inflight || c.paceOf(ReasonRelistHangs).seen > c.lists.began {
		return never
	}
	return c.lists.began.add(c.cfg.RelistSlow).next()
}

// lookHanging reports, once, that the list under way hangs: its timeout may be minutes away, and
// nothing else reports the hang until then.
func (c *core[S]) lookHanging(now instant) {
	if now >= c.listHangs() {
		c.reportPaced(Report{
			Reason: ReasonRelistHangs, Action: "Relist", Warning: true,
			Note: fmt.Sprintf("a list of the runtime has not been answered for %v", now.sub(c.lists.began).Round(time.Millisecond)),
		}, now)
	}
}

// fifo is a queue over a slice.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) push(v T) { q.items = append(q.items, v) }
func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) front() (v T, ok bool) {
	if q.head == len(q.items) {
		return v, false
	}
	return q.items[q.head], true
}

// all yields the queue, front first.
func (q *fifo[T]) all() iter.Seq[T] { return slices.Values(q.items[q.head:]) }

// keep removes all other entries.
func (q *fifo[T]) keep(kept func(T) bool) {
	rest := slices.DeleteFunc(q.items[q.head:], func(v T) bool { return !kept(v) })
	q.items = q.items[:q.head+len(rest)]
}

// pop removes the front, which must exist.
func (q *fifo[T]) pop() T {
	var zero T
	v := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head > 1024 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return v
}
