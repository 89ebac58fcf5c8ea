// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

// candidate is a change that a read found and that the stream has not told. If no claim confirms it
// within the grace, it was missed, or, if nobody has listened all the while, it was not heard of.
type candidate struct {
	item     *item // nil: not a change, but a list whose changes are all in front of it
	phase    Phase
	found    instant // when the read was applied
	stream   instant // when the stream was connected that should have told; 0 if none was up all the while
	deadline instant // the grace after that
}

// deafness is what is remembered to tell a stream that loses events from one that hangs open and
// carries none.
type deafness struct {
	missed instant // since when events are missing and nothing is heard, on the present stream; 0 if not
	claims int     // received by then
	cut    bool    // the stream is being ended for it
}

// suspectDeaf is told that changes, the first of which a read found at the given time, were missed.
// If events had been missed before that, and the stream has told nothing since, the stream is
// ended, to be opened again like one that was lost: a runtime that has forgotten its subscriber
// shows nothing else.
func (c *core[S]) suspectDeaf(found, now instant) {
	d := &c.deafness
	switch {
	case d.cut:
	case d.missed == 0 || c.count.claims != d.claims:
		d.missed, d.claims = now, c.count.claims
	case found > d.missed:
		d.cut = true
		c.todo.do(action[S]{kind: actCut})
	}
}

// vouch raises the relist period for a list that has just been applied: now if it found nothing, or
// else once all that was found has been confirmed by claims, because a read may well see a change
// before the runtime gets round to telling of it.
func (c *core[S]) vouch(now instant) {
	if c.missing.len() == 0 {
		c.sched.trust(now)
		return
	}
	c.missing.push(candidate{found: now, deadline: now.add(c.cfg.Grace)})
}

// withdraw takes back what lists vouched for a stream that is lost or has lied. The changes that it
// has not confirmed are still settled.
func (c *core[S]) withdraw() {
	changes := fifo[candidate]{}
	for c.missing.len() > 0 {
		if e := c.missing.pop(); e.item != nil {
			changes.push(e)
		}
	}
	c.missing = changes
}

// maybeMissed notes a change that a read found, of a runtime that is known to have events. Since is
// when the read began that covered the pod before.
func (c *core[S]) maybeMissed(x *item, phase Phase, since, now instant) {
	if x.claimed >= phase {
		return
	}
	e := candidate{item: x, phase: phase, found: now, deadline: now.add(c.cfg.Grace)}
	if c.listened(since) {
		e.stream = c.conn.connected
	}
	c.missing.push(e)
}

// listened says that the stream has been up since before that time, and that no claim was
// discarded: what has changed since, the runtime had somebody to tell.
func (c *core[S]) listened(since instant) bool {
	return c.connected() && since > max(c.conn.connected, c.deaf)
}

// settleMissing counts the changes whose grace has passed. A missed change to Running or Exited
// costs the stream its trust; creations and removals are counted apart, because runtimes differ in
// what they send for them (KEP-3386: kube_pod_missed_events). So are changes while nobody listened,
// which are no fault of the runtime's.
func (c *core[S]) settleMissing(now instant) {
	missed, found := 0, never
	for {
		e, ok := c.missing.front()
		if !ok || e.deadline > now {
			break
		}
		c.missing.pop()
		if e.item == nil {
			if missed == 0 && c.connected() {
				c.sched.trust(now)
			}
			continue
		}
		if e.item.claimed >= e.phase {
			continue
		}
		heard := e.stream != 0 && c.connected() && e.stream == c.conn.connected && e.found > c.deaf
		switch {
		case !heard && (e.phase == PhaseRunning || e.phase == PhaseExited):
			c.count.unheard++
			c.unheardToll.add(e.item, e.phase)
		case !heard: // creations and removals
		case e.phase == PhaseRunning, e.phase == PhaseExited:
			missed++
			c.missedToll.add(e.item, e.phase)
			found = min(found, e.found)
		case e.phase == PhaseRemoved:
			c.count.missedRemovals++
		default:
			c.count.missedCreations++
		}
	}
	if missed == 0 {
		return
	}
	c.count.missed += missed
	c.sched.distrust(now)
	c.suspectDeaf(found, now)
}
