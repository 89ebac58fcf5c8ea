// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"

	"github.com/evented-pleg/evented-pleg/cache"
)

// reading is a report that becomes the state of a pod. There are four kinds: a read of the
// statuses, a read that shows nothing of the pod, a payload that dominates, and a peek.
type reading[S any] struct {
	// status shows the items; nil if it could not be read, or if nothing of the pod is left.
	status *S

	// items are the IDs in status, and those in unread.
	items []Item

	// unread are the IDs whose status could not be read. In items they stand at the phase that a
	// list has shown.
	unread idSet

	// err is why; nil if everything was read.
	err error

	// beside reports, of a peek, whether err is the entry's, which stays.
	beside bool

	// began is the begin of the read; zero for a payload and a peek, which keep the time of the
	// entry.
	began instant

	// looked is the begin of the peek; zero for all other kinds.
	looked instant
}

// store makes a reading the state of the pod: in the cache, in the record and on Watch at once.
// No other function changes any of them. The entry is as of the begin of the read, unless a list
// begun later has shown the same.
func (c *core[S]) store(p *pod, r reading[S], now instant) {
	at := r.began
	if at == 0 {
		at = c.lists.asOf(p)
	}
	diff := p.diff
	if r.err == nil && diff != nil && diff.at > at && sameItems(diff.items, r.items) { // an error is as old as its read
		at = diff.at
	}
	if r.looked == 0 {
		c.peeks.brought(p.uid, now)
	}
	since := c.lists.lastRead(p)
	if diff == nil && c.lists.applied != 0 {
		diff = &difference{
			items:  p.shownItems(),
			at:     c.lists.applied,
			agreed: c.lists.applied,
		}
	}
	action := len(c.out.actions)
	events := c.out.count[countEvents]
	c.write(p, &r, at)
	c.tell(p, &r, since, now)
	c.out.actions[action].silent = c.out.count[countEvents] == events
	if diff != nil {
		p.diff = diff
		c.lists.compare(p, diff.items, diff.at, c.matches(p, diff.items))
	}
}

// keep stores the statuses of a read whose phases are those of the entry, known from later.
func (c *core[S]) keep(p *pod, status *S) {
	c.out.do(action[S]{
		kind:     actStore,
		uid:      p.uid,
		at:       c.lists.asOf(p),
		content:  p.read,
		status:   status,
		replaces: true,
		silent:   true,
		excused:  p.excused,
		before:   p.readBefore,
	})
}

// cached returns the status of a pod in the cache.
func (c *core[S]) cached(uid cache.UID) *S {
	status, _ := c.cache.Get(uid)
	return status
}

// onChanged takes the news that a status differs from the one before beside its phases: Watch gets
// a PodSync. Without a reason of the agent's own, the runtime has changed the content without a
// word.
func (c *core[S]) onChanged(in contentChange, now instant) {
	p := c.pods[in.uid]
	if p == nil {
		return
	}
	c.out.sync(p, now)
	if in.excused {
		return
	}
	c.out.count[countContentChanges]++
	c.trust.note(discovery{
		of:      p,
		content: true,
		since:   in.since,
		stream:  c.stream.upSince(),
	}, now)
}

// write puts a reading into the cache, as of the given time, and notes the kind of the entry.
func (c *core[S]) write(p *pod, r *reading[S], at instant) {
	switch {
	case r.status == nil && r.err == nil:
		c.out.do(action[S]{kind: actDelete, uid: p.uid, at: at})
		c.deleted = true
		c.becomeGone(p, at)
	case r.err != nil:
		c.out.do(action[S]{
			kind:     actStore,
			uid:      p.uid,
			at:       at,
			content:  p.read,
			status:   r.status,
			looked:   r.looked,
			err:      r.err,
			replaces: p.entry != noEntry,
		})
		c.becomeFailed(p, at, len(r.unread.ids), !r.beside || p.part)
	default:
		c.out.do(action[S]{
			kind:     actStore,
			uid:      p.uid,
			at:       at,
			content:  p.read,
			looked:   r.looked,
			status:   r.status,
			replaces: p.entry != noEntry,
			excused:  p.excused,
			before:   p.readBefore,
		})
		c.becomeRead(p, at)
	}
}

// tell moves the items of a pod as a reading shows them, and tells Watch and trust the
// difference. Since is the begin of the last look without it.
func (c *core[S]) tell(p *pod, r *reading[S], since, now instant) {
	for i := 0; i < len(r.items) && len(c.evidence.early) > 0; i++ {
		if c.find(p, i, r.items[i].ID) == nil {
			c.takeEarly(p, r.items[i].ID, now)
		}
	}
	told := 0
	sync := false
	moves := c.show(p, r.items)
	for i := range moves {
		m := &moves[i]
		c.judgeMove(m, &r.unread, since, now)
		if m.died {
			c.out.event(m.of, ContainerDied, now)
			told++
		}
		if m.event == ContainerDied && m.of.kind == Container {
			p.settles(&c.cfg, now)
		}
		if m.event != "" {
			c.out.event(m.of, m.event, now)
			told++
		}
		sync = sync || m.untold()
	}
	if p.answered(r.began) {
		sync = sync || told == 0
	}
	written := r.status != nil || r.err == nil
	sync = p.reveal(written, &r.unread) || sync
	if sync {
		c.out.sync(p, now)
	}
	if r.err != nil && (sync || told > 0) {
		p.conceal(written, &r.unread)
	}
}

// judgeMove counts a phase that was taken back, and has a change judged that nobody announced.
// Unread are the IDs of which the reading has no more than the phase in a list.
func (c *core[S]) judgeMove(m *move, unread *idSet, since, now instant) {
	x := m.of
	d := discovery{
		of:     x,
		phase:  x.phase,
		since:  since,
		stream: c.stream.upSince(),
	}
	switch {
	case m.back && m.before == phaseNone:
		c.out.count[countRegressions]++
		c.returned(x.id)
		c.trust.refute(x.title() + " was gone, and is back")
	case m.back:
		if e := x.pod.expected.get(x.id, CauseClaim); e != nil && e.stored && e.phase > x.phase && !unread.has(x.id) {
			return // the read overrules a payload: core.resolve counts
		}
		c.out.count[countRegressions]++
		c.trust.refute(fmt.Sprintf("%s was shown as %v, and is %v", x.title(), m.before, x.phase))
	case m.turned && (m.before == x.phase || m.before == phaseNone):
		d.unknown = true
		c.trust.note(d, now)
	case x.phase == PhaseRemoved:
		d.ran = m.before == PhaseRunning
		open := m.before != PhaseUnknown && c.trust.note(d, now)
		within := c.cfg.Grace // another look may still show the ID
		if open || x.claimed < PhaseRemoved {
			within = returnsWithin
		}
		c.remember(x, open, now.add(within))
	case m.before == PhaseUnknown: // nobody knows when the ID came so far
	default:
		c.trust.note(d, now)
	}
}

// offer stores the payload of a claim if the payload dominates: the cache holds a status from a
// read, and the payload shows exactly the IDs of the status, none in an earlier phase, and
// everything expected of the pod. The payload makes nothing fresh: the time of the entry stays. A
// later read decides; see core.contradicts for a read that shows less.
func (c *core[S]) offer(p *pod, pc *podClaims[S], now instant) {
	if pc.status == nil || p.entry != statusEntry || !p.unmet() {
		return
	}
	c.records.marks++
	met := 0
	for i, it := range pc.payload {
		x := c.find(p, i, it.ID)
		if x == nil || x.mark == c.marks || x.shown == PhaseUnknown || it.Phase < x.phase || it.Phase > PhaseExited {
			return
		}
		for e := range p.expected.of(it.ID) {
			if e.phase > it.Phase {
				return
			}
			met++
		}
		x.mark = c.marks
	}
	if len(pc.payload) != len(p.items) || met < p.expected.len() {
		return
	}
	status, err := pc.status(c.cached(p.uid))
	if err != nil || status == nil {
		return
	}
	c.out.count[countDominated]++
	p.owesRead(&c.cfg, now)
	for i := range p.expected.all {
		p.expected.all[i].stored = true
	}
	c.store(p, reading[S]{status: status, items: pc.payload}, now)
}

// contradicts returns when the first and the last of the claims contradicted by a read were made;
// zero if the read shows no less than the status. A payload has brought the difference. First
// leaves out the effects of the agent's own calls, and states that the runtime does not know: a
// read begun later is right.
func (c *core[S]) contradicts(p *pod, shows []Item) (first, last instant) {
	for i, it := range shows {
		x := c.find(p, i, it.ID)
		if x == nil || it.Phase >= x.phase {
			continue
		}
		for e := range p.expected.of(it.ID) {
			if known := it.Phase != PhaseUnknown; known || e.stored {
				last = max(last, e.at)
				if known && e.cause == CauseClaim && (first == 0 || e.at < first) {
					first = e.at
				}
			}
		}
	}
	return first, last
}
