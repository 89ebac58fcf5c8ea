// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// This file has what a restart does: the series of an earlier process go on, or end.

// nextRoster returns the call of a roster. Without a call, wait is the time until the next; blocked
// means that an answer must come before any event is sent. Trouble of the rosters' namespace alone
// blocks nobody.
func (c *core) nextRoster(now time.Time) (j job, blocked bool, wait time.Duration) {
	wait = forever
	if c.opts.NoRoster {
		return j, false, wait
	}
	for _, r := range c.rosters {
		at := r.next.Sub(now)
		if r.next.IsZero() {
			at = forever
		}
		if r.first() {
			at = 0
			blocked = blocked || !c.queue.troubled(c.opts.RosterNamespace)
		}
		switch {
		case c.stage != stageOpen && c.final(r):
			at = 0
		case c.stage != stageOpen && !r.first():
			at = forever
		}
		if r.busy || at > 0 {
			if !r.busy {
				wait = min(wait, at)
			}
			continue
		}
		ok, admission := c.queue.admit(r.place(c.opts.RosterNamespace), now)
		if ok {
			return c.rosterJob(r, now), true, 0
		}
		wait = min(wait, admission)
	}
	return j, blocked, wait
}

// final reports whether the last write of a roster is due: every series has had its own. A roster
// that cannot be written is tried a few times.
func (c *core) final(r *roster) bool {
	ended := len(c.queue.flights) == 0 && c.queue.waiting == 0
	due := !r.next.IsZero() && r.attempts < r.lastTry
	return ended && due && (r.entries || r.goesOn())
}

// unwritten returns the rosters, by namespace/name, of which the last write is still to be made.
func (c *core) unwritten() (names []string) {
	for _, r := range c.rosters {
		owed := r.busy || !r.next.IsZero()
		if owed && (r.entries || r.goesOn()) && !c.opts.NoRoster {
			names = append(names, c.opts.RosterNamespace+"/"+r.name)
		}
	}
	return names
}

// rosterJob returns the call of a roster: a read, or a write.
func (c *core) rosterJob(r *roster, now time.Time) job {
	j := job{
		roster: r,
		place:  r.place(c.opts.RosterNamespace),
		older:  r.src.byNote,
		event:  r.event(c.opts.RosterNamespace, now),
		call:   call{kind: callPatch},
	}
	r.called()
	switch r.phase {
	case rosterUnread, rosterOvertaken:
		j.call.kind = callRead
		return j
	case rosterAbsent:
		j.call.kind = callCreate
	}
	r.rest = now.Add(rosterEvery)
	j.write = r.write(c.stage == stageDraining, func() []string { return c.lines(r) })
	return j
}

// lines returns all lines of a roster, the latest series first. A line that is a path only lets a
// restart read the object: that of a series that ends or is in doubt, and that of an earlier
// process which ended otherwise than the roster says of this one.
func (c *core) lines(r *roster) (lines []string) {
	exact := c.stage == stageDraining
	for _, s := range r.goingOn() {
		r.list(s)
		lines = append(lines, s.line())
	}
	for _, s := range r.ending() {
		lines = append(lines, s.path())
	}
	for l := range r.left.all() {
		if r.exact == exact {
			lines = append(lines, l.line())
		} else {
			lines = append(lines, l.path)
		}
	}
	return lines
}

// renewal returns when a roster with names is written again, lest it expire.
func (c *core) renewal(now time.Time) time.Time { return now.Add(c.opts.Heartbeat * 9 / 10) }

// rosterAnswered books the answer to a read or write of a roster.
func (c *core) rosterAnswered(j job, a reply) {
	defer c.wake()
	a.now = c.clock(a.now)
	r := j.roster
	r.busy = false
	r.rest = a.now
	switch {
	case a.unsent:
	case j.write == nil:
		c.count.Calls["read"]++
	default:
		c.count.Calls["roster"]++
	}
	trouble := a.verdict >= verdictTrouble
	roles := a.verdict == verdictRefused && a.reason == "Forbidden" && c.queue.server.failing()
	switch {
	case a.verdict == verdictStopped:
		c.queue.stopped(j.place, a.now)
		r.becomeDoubtful()
		r.want(a.now)
		return
	case trouble || roles:
		c.failed(j.place, a)
		c.rosterFailed(r, j, a)
		return
	case a.verdict == verdictOK, a.verdict == verdictMissing && j.call.kind == callRead:
		c.queue.succeeded(j.place, a.now) // perhaps no write follows that would open the scopes
	default:
		c.queue.refused(j.place, a.now)
	}
	switch {
	case r.phase == rosterUnread:
		r.answered()
		c.rosterRead(r, a)
	case a.verdict != verdictOK:
		c.rosterRefused(r, a)
	case j.call.kind == callRead:
		r.reread(a.stored)
		r.want(a.now)
	default:
		r.answered()
		r.rest = a.now.Add(rosterEvery)
		r.wrote(j.write, a.stored)
		if r.keeps() && c.stage == stageOpen {
			r.want(c.renewal(a.now))
		}
	}
}

// rosterFailed books a call that is made again. A read is made until it is answered: a write in its
// place would overwrite what an earlier process has left, and would have no version. The server
// might carry it out after a later one.
func (c *core) rosterFailed(r *roster, j job, a reply) {
	r.becomeDoubtful()
	endless := c.stage == stageDraining && c.deadline.IsZero()
	if !a.everywhere || endless { // else nothing gets through
		r.attempts++
		r.rest = a.now.Add(rosterEvery)
	}
	r.want(a.now)
}

// rosterRead books the names read. A roster that is refused or absent is to be created.
func (c *core) rosterRead(r *roster, a reply) {
	if a.err == nil {
		r.becomeStored(a.stored.ResourceVersion)
	} else {
		r.becomeAbsent()
	}
	if r.goesOn() { // begun after so many failures
		r.want(a.now.Add(rosterSoon))
	}
	if a.err != nil || a.stored.ReportingInstance != r.src.instance {
		return
	}
	r.take(a.stored, a.now)
	if r.left.n > 0 {
		r.want(c.renewal(a.now)) // with those that go on
	}
	for x := r.own.first; x != nil; x = x.next {
		if c.table.find(&x.owner.key, x.owner.hash) == x.owner {
			c.claim(r, x.owner, a.now)
		}
	}
}

// rosterRefused books a call that was not accepted. After a patch of another version the next call
// waits like after a failure: two processes of an instance do not race.
func (c *core) rosterRefused(r *roster, a reply) {
	r.becomeDoubtful()
	switch {
	case a.verdict == verdictConflict && (r.conflicts < maxFaults || c.stage == stageDraining):
		c.lastErr = a.err
		r.attempts++
		r.conflicts++
		r.becomeOvertaken()
		r.rest = a.now.Add(rosterEvery)
		r.want(a.now)
	case a.verdict == verdictMissing && r.phase != rosterAbsent:
		r.becomeAbsent()
		r.changes = 0
		r.want(a.now)
	default:
		r.answered()
		r.becomeAbsent()
		r.rest = a.now.Add(c.opts.Heartbeat)
		c.note(func(l klog.Logger) {
			l.Info("Event series will not be continued after a restart: their roster cannot be stored", "err", a.err)
		})
		if c.stage == stageOpen {
			r.want(a.now)
		}
	}
}

// claim lets a new series continue the object of an earlier process, if there is one. What a
// process that ended in order has left is known; else a read comes first.
func (c *core) claim(r *roster, s *series, now time.Time) {
	l, ok := r.claim(s)
	if !ok {
		return
	}
	known := r.exact && l.count > 0
	l.state = stateUnknown
	goOn, _ := l.continues(s.st.begun, c.opts)
	if known && !goOn { // that series is over
		r.drop(l.path, now)
		return
	}
	_, s.name, _ = strings.Cut(l.path, "/")
	r.list(s) // the object names it, and so does the next whole
	if known {
		s.st.adopt(l.found, false, now)
		s.seen = r.shared
		c.count.turn("adopted")
		r.add(s, now)
	} else {
		s.st.becomeUnread()
	}
	c.queue.move(&s.ticket)
}

// endLeft takes an object into the table that no series has continued within the threshold, and
// returns the time until the next.
func (c *core) endLeft(now time.Time) (wait time.Duration) {
	wait = forever
	if c.stage != stageOpen {
		return wait
	}
	for _, r := range c.rosters {
		for {
			l, until := r.nextLeft(now, c.opts.FinishAfter)
			if until > 0 {
				wait = min(wait, until)
				break
			}
			c.endOf(r, l, now)
		}
	}
	return wait
}

// endOf takes an object of an earlier process into the table for the call that ends its series, if
// there is one to make.
func (c *core) endOf(r *roster, l leftover, now time.Time) {
	switch {
	case l.count == 0 || l.count == 1 && !r.exact: // read it: it may be more by now
		st := begin(r.readAt)
		st.count = 0
		st.becomeFinished()
		st.becomeUnread()
		c.end(r, l.path, st, now)
	case l.count == 1: // as it is
		r.drop(l.path, now)
	default:
		l.state = stateOngoing
		if r.exact {
			l.state = stateUnknown
		} else {
			l.version = "" // it has counted on
			c.count.turn("abandoned")
		}
		goOn, _ := l.continues(r.readAt, c.opts)
		st := l.closed(goOn, !r.exact, now)
		st.mark = true
		c.end(r, l.path, st, now)
	}
}

// end takes an object into the table for the calls that end its series.
func (c *core) end(r *roster, path string, st state, now time.Time) {
	s := &series{
		key:  seriesKey{source: r.index},
		st:   st,
		seen: r.shared,
		soon: -1,
		left: true,
	}
	r.list(s) // the object does, from the earlier process on
	s.ticket.owner = s
	s.content.namespace, s.name, _ = strings.Cut(path, "/")
	s.key.regarding.Name = path // stands in for the object, which nothing here knows
	c.enter(s)
	c.settle(s, now)
}

// restored books the first read of an object of an earlier process: its series goes on, or ends.
func (c *core) restored(s *series, f found, now time.Time) {
	r := c.rosters[s.key.source]
	goOn, killed := f.continues(s.st.begun, c.opts)
	if killed && (!goOn || s.left) {
		c.count.turn("abandoned")
	}
	s.seen = r.shared
	switch {
	case s.left:
		s.st = f.closed(goOn, killed, now)
	case goOn:
		s.st.adopt(f, killed, now)
		c.count.turn("adopted")
		if s.st.stored > 1 {
			r.add(s, now)
		}
	default:
		r.unlist(s) // the name goes over
		c.end(r, s.path(), f.closed(goOn, killed, now), now)
		c.rename(s, now)
	}
}
