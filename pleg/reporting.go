// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"strings"
	"time"
)

// What goes on about the node is reported at once and then ever more rarely: after 10 s, 40 s, 160
// s and every ten minutes. What has rested for ten minutes begins anew. The stream's transitions
// are not paced: the reconnect delay keeps them rare, and each is news.
const (
	firstPause   = 10 * time.Second
	pauseFactor  = 4
	longestPause = 10 * time.Minute
)

// pace is how the reports of one reason are paced. It belongs to the core.
type pace struct {
	reason Reason
	next   instant       // no report before this
	pause  time.Duration // before next; 0 if none was made
	told   instant       // when the last report was made
	seen   instant       // when the reason last came up
	held   int           // times it has come up since its last report
	last   Report        // the last that was held
}

// paced reports, or holds a report back.
func (c *core[S]) paced(r Report, now instant) {
	p := c.paceOf(r.Reason, now)
	p.seen = now
	if now < p.next {
		p.held++
		p.last = r
		return
	}
	c.release(p, r, now)
}

// paceOf returns the pace of a reason; a reason that has rested begins anew, with what it has held
// back.
func (c *core[S]) paceOf(reason Reason, now instant) *pace {
	p := c.paceIfAny(reason)
	switch {
	case p == nil:
		p = &pace{reason: reason, next: now, seen: now}
		c.paces = append(c.paces, p)
	case now.sub(p.seen) >= longestPause:
		p.next, p.pause, p.seen = now, 0, now
	}
	return p
}

// paceIfAny returns the pace of a reason that has come up, or nil.
func (c *core[S]) paceIfAny(reason Reason) *pace {
	for _, p := range c.paces {
		if p.reason == reason {
			return p
		}
	}
	return nil
}

// reportHeld reports, for each reason whose pause is over, what it has held back: it may not come
// up again.
func (c *core[S]) reportHeld(now instant) {
	for _, p := range c.paces {
		if p.held == 0 || now < p.next {
			continue
		}
		r := p.last
		if age := now.sub(p.seen).Round(time.Second); age > 0 {
			r.Note += fmt.Sprintf(" (%v ago)", age)
		}
		p.held-- // the report stands for itself
		c.release(p, r, now)
	}
}

// release makes a report that stands for those held as well.
func (c *core[S]) release(p *pace, r Report, now instant) {
	r.Held += p.held
	p.held, p.last = 0, Report{}
	p.pause = min(max(firstPause, pauseFactor*p.pause), longestPause)
	p.told, p.next = now, now.add(p.pause)
	c.todo.report(r)
}

// over is told that what a reason reports has ended. What was held back is reported with a last
// word, at once, or when the first pause is over if it came and went within that.
func (c *core[S]) over(reason Reason, word string, now instant) {
	p := c.paceIfAny(reason)
	if p == nil || p.held == 0 {
		return
	}
	p.last.Note += word
	if now.sub(p.told) >= firstPause {
		r := p.last
		p.held-- // the report stands for itself
		c.release(p, r, now)
	}
}

// namedAtMost is how many changes a report names; the others are counted.
const namedAtMost = 3

// toll is what there is to report of changes that no event told of. It belongs to the core.
type toll struct {
	first []string // the first of them, in words
	n     int
}

// add enters a change.
func (t *toll) add(x *item, phase Phase) {
	if t.n++; t.n <= namedAtMost {
		t.first = append(t.first, fmt.Sprintf("%s is %v", x.title(), phase))
	}
}

// String names the first changes and counts the others.
func (t *toll) String() string {
	s := strings.Join(t.first, ", ")
	if more := t.n - len(t.first); more > 0 {
		s += fmt.Sprintf(", and %d more", more)
	}
	return s
}

// reportTolls reports the changes that have come up and that may be reported by now.
func (c *core[S]) reportTolls(now instant) {
	if t := &c.missedToll; c.tollDue(ReasonEventsMissed, t, now) {
		c.paced(Report{
			Reason: ReasonEventsMissed, Action: "Relist", Warning: true,
			Note: fmt.Sprintf("the runtime changed the state of %d containers or sandboxes without telling; relisting every %v: %v",
				t.n, c.sched.period, t),
		}, now)
		*t = toll{}
	}
	if t := &c.unheardToll; c.tollDue(ReasonChangesUnheard, t, now) {
		c.paced(Report{
			Reason: ReasonChangesUnheard, Action: "Relist",
			Note: fmt.Sprintf("%d containers or sandboxes changed while no event could be heard; lists found them: %v", t.n, t),
		}, now)
		*t = toll{}
	}
}

// tollDue says that a toll is to be reported now.
func (c *core[S]) tollDue(reason Reason, t *toll, now instant) bool {
	return t.n > 0 && now >= c.paceOf(reason, now).next
}

// reportsDue returns when something that is held back is to be reported, or a list begins to hang.
func (c *core[S]) reportsDue() instant {
	at := never
	for _, p := range c.paces {
		if p.held > 0 || p.reason == ReasonEventsMissed && c.missedToll.n > 0 || p.reason == ReasonChangesUnheard && c.unheardToll.n > 0 {
			at = min(at, p.next)
		}
	}
	if c.lists.inflight && !c.lists.hanging {
		at = min(at, c.lists.began.add(c.cfg.RelistSlow).next())
	}
	return at
}

// lookHanging reports, once, that the list under way hangs: its timeout may be minutes away, and
// nobody else says so until then.
func (c *core[S]) lookHanging(now instant) {
	if !c.lists.inflight || c.lists.hanging || now.sub(c.lists.began) <= c.cfg.RelistSlow {
		return
	}
	c.lists.hanging = true
	c.paced(Report{
		Reason: ReasonRelistHangs, Action: "Relist", Warning: true,
		Note: fmt.Sprintf("a list of the runtime has not been answered for %v; it is given up after %v",
			now.sub(c.lists.began).Round(time.Millisecond), c.cfg.RelistTimeout),
	}, now)
}

// title names the item for people.
func (x *item) title() string {
	name := x.id
	if x.name != "" {
		name = x.name + " (" + x.id + ")"
	}
	return fmt.Sprintf("%s %s of pod %s", x.kind, name, x.pod.title())
}
