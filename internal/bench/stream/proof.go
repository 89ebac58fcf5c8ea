// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Shown is a container or sandbox in a read of the runtime.
type Shown struct {
	ID      string
	Sandbox bool
	Phase   pleg.Phase
}

// Look is a read of everything in the runtime, true at a moment between Begun and Ended.
type Look struct {
	Begun, Ended time.Time
	// Pods are all items in the runtime, pod by pod.
	Pods [][]Shown
	// Partial: the read leaves items out, so a missing item proves nothing.
	Partial bool
}

const (
	// grace is how long an event may take, or a quarter more than the slowest event so far, up to
	// mostGrace. A change without its event for longer counts as lost, until the event comes.
	grace     = 2 * time.Second
	mostGrace = time.Minute
	// visible is how long a list may lack an announced change.
	visible = time.Second
	// subscribed is how long after its opening a stream carries all events for certain.
	subscribed = 250 * time.Millisecond
	// keepGone is how long the event of a removed item may still come.
	keepGone = time.Minute
)

// proof is the evidence about an item on the present connection of the stream.
type proof struct {
	// base is the phase from before the connection, or from the first list on it: changes up to base
	// are not the connection's. Placed reports whether base is known.
	base   pleg.Phase
	placed bool
	// born: the item began on this connection, by its own stamp or by two lists.
	born bool
	// happened has a bit for each phase with a begin proved by other evidence than its own event, at
	// the time in at. Absent has the bits that rest on an absence: a later read can refute them.
	happened, absent uint8
	at               [removed + 1]time.Time
	// ran: other evidence than its event STOPPED shows that the item has run, so its removal proves its
	// end.
	ran bool
	// present is when something last proved the item's presence.
	present time.Time
	// goneAt is when a read first lacked the item.
	goneAt time.Time
	// stopped: the sandboxes of the pod had stopped at goneAt. CRI-O removes the containers of a
	// stopped sandbox singly and without events, and then the sandbox.
	stopped bool
	// withPod: the item went with all sandboxes of its pod, in the same read or, in a stopped pod,
	// before them.
	withPod bool
}

// kind indexes the kinds of events: those of containers, then those of sandboxes, then the removal
// of a container along with its sandbox.
type kind int

const (
	withPod = kind(2 * int(removed+1))
	kinds   = int(withPod) + 1
)

func kindOf(sandbox bool, p pleg.Phase) kind {
	if sandbox {
		return kind(removed+1) + kind(p)
	}
	return kind(p)
}

// String is such as "container STARTED".
func (k kind) String() string {
	switch {
	case k == withPod:
		return "container DELETED, along with its sandbox"
	case k > kind(removed):
		return "sandbox " + eventName(pleg.Phase(k-kind(removed+1)))
	}
	return "container " + eventName(pleg.Phase(k))
}

// tally counts the proven changes of a kind, and the proven changes without an event.
type tally struct{ proven, lost int }

// connection is the state of the present connection of the stream.
type connection struct {
	open bool
	// from is when all events are certain to come; changes before prove nothing.
	from time.Time
	// placed reports whether a first list on this connection has given items their base.
	placed bool
	// burst: the messages since the opening have come without a pause, as a backlog does. Last is
	// the time of the last message.
	burst    bool
	openedAt time.Time
	last     time.Time
	replayed int
	// mute is how long the stream had carried nothing when a read last found a change without its
	// event.
	mute time.Duration
}

const (
	// pause ends a backlog, firstPause if nothing came before; mostBurst bounds it.
	pause      = 200 * time.Millisecond
	firstPause = time.Second
	mostBurst  = 3 * time.Second
	// backlogRoom is the length of the channel in which containerd and CRI-O keep unread events.
	backlogRoom = 1000
)

// message enters the time of a message, and reports whether it may belong to a backlog.
func (c *connection) message(at time.Time) (burst bool) {
	longest := pause
	if c.last.Equal(c.openedAt) {
		longest = firstPause
	}
	if at.Sub(c.last) > longest || at.Sub(c.openedAt) > mostBurst {
		c.burst = false
	}
	c.last = at
	return c.burst
}

// clock estimates how far the runtime's clock is behind: by the least age of events after the
// backlog.
type clock struct {
	least time.Duration
	n     int
}

func (c *clock) observe(age time.Duration) {
	if c.n == 0 || age < c.least {
		c.least = age
	}
	c.n++
}

// offset is the correction of a stamp, 0 unless some events agree on a second or more.
func (c *clock) offset() time.Duration {
	const some = 3
	if c.n < some || c.least.Abs() < late {
		return 0
	}
	return c.least
}

// prove enters the begin of an item's phase on this connection, known by other evidence than its
// own event.
func (l *life) prove(p pleg.Phase, at time.Time) {
	bit := uint8(1) << p
	if l.proof.happened&bit != 0 {
		return
	}
	l.proof.happened |= bit
	l.proof.at[p] = at
}

// provedByEvent enters the proofs of an event for its own item, its own phase aside.
func (j *Judge) provedByEvent(e *Event, l *life, announces pleg.Phase) {
	if !j.counts(e.Received) {
		return
	}
	l.proof.present = e.Received
	switch announces {
	case running:
		l.proof.ran = true
	case removed:
		l.provedEnd(e.Received)
	}
}

// counts reports whether a change at a time is the present connection's.
func (j *Judge) counts(at time.Time) bool { return j.conn.open && at.After(j.conn.from) }

// provedEnd enters the end of an item that has run, and is removed.
func (l *life) provedEnd(at time.Time) {
	if l.wasReady() {
		l.prove(exited, at)
	}
}

// provedByPayload enters the proofs of an event's payload: by stamps, and for sandboxes by their
// state. Own is the event's phase of the item, unknown for other items.
func (j *Judge) provedByPayload(e *Event, l *life, i Item, own pleg.Phase) {
	if !j.counts(e.Received) || !l.proof.goneAt.IsZero() {
		return
	}
	l.proof.present = e.Received
	within := func(stamp int64) bool {
		return stamp > 0 && time.Unix(0, stamp).Add(j.clock.offset()).After(j.conn.from)
	}
	if within(i.stamps[created]) {
		l.proof.born = true
		if own != created {
			l.prove(created, e.Received)
		}
	}
	if own != running {
		started := within(i.stamps[running])
		ready := i.Sandbox && i.phase == running && l.proof.born
		if started || ready {
			l.proof.ran = l.proof.ran || own != exited
			l.prove(running, e.Received)
		}
	}
	if own != exited {
		ended := !i.Sandbox && i.phase == exited && within(i.stamps[exited])
		unready := i.Sandbox && i.phase == exited && l.wasReady()
		if ended || unready {
			l.prove(exited, e.Received)
		}
	}
}

// wasReady reports whether other evidence than its event STOPPED shows that an item has run on this
// connection, or that a sandbox was ready.
func (l *life) wasReady() bool {
	return l.proof.ran || l.proof.placed && l.proof.base == running
}

// Look enters a read of everything in the runtime.
func (j *Judge) Look(look Look) {
	if !j.counts(look.Begun) || !j.conn.placed && look.Partial {
		return
	}
	listed := make(map[*life]bool)
	found := false
	for _, pod := range look.Pods {
		sandboxes := sandboxesOf(pod)
		for _, s := range pod {
			l := j.lifeOf(s.ID)
			l.sandbox = s.Sandbox
			l.sandboxes = sandboxes
			listed[l] = true
			before := l.proof.happened
			if j.conn.placed {
				l.shown(s, look)
			} else {
				l.place(s, look)
			}
			found = found || l.proof.happened&^before&^l.seen != 0
		}
	}
	if j.conn.placed && !look.Partial {
		j.absences(look, listed)
	}
	j.conn.placed = true
	if silent := look.Ended.Sub(j.conn.last); found && silent > grace {
		j.conn.mute = silent
	}
	j.sweep(look.Ended)
}

// sandboxesOf returns the IDs of the sandboxes of a pod.
func sandboxesOf(pod []Shown) (ids []string) {
	for _, s := range pod {
		if s.Sandbox {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// place gives an item its base.
func (l *life) place(s Shown, look Look) {
	if l.proof.born {
		l.shown(s, look)
		return
	}
	l.proof.present = look.Ended
	l.proof.base = s.Phase
	l.proof.placed = true
}

// shown enters the phase of an item in a read after the first read of this connection.
func (l *life) shown(s Shown, look Look) {
	l.proof.present = look.Ended
	l.proof.born = l.proof.born || !l.proof.placed
	l.refute()
	if s.Phase == unknown {
		return
	}
	before := func(p pleg.Phase) bool { return l.proof.born || l.proof.placed && l.proof.base < p }
	if l.proof.born {
		l.prove(created, look.Ended)
	}
	if s.Phase == running && before(running) {
		l.proof.ran = true
		l.prove(running, look.Ended)
	}
	if s.Phase == exited && before(exited) && (!l.sandbox || l.wasReady()) {
		l.prove(exited, look.Ended)
	}
}

// refute takes back the proofs by the absence of a present item.
func (l *life) refute() {
	l.proof.happened &^= l.proof.absent
	l.proof.absent = 0
	l.proof.goneAt = time.Time{}
}

// absences enters the end of items that were present well before a read and are missing in the
// read.
func (j *Judge) absences(look Look, listed map[*life]bool) {
	for _, l := range j.lives {
		gone := !l.proof.goneAt.IsZero()
		there := !l.proof.present.IsZero() && l.proof.present.Before(look.Begun.Add(-visible))
		if listed[l] || !there {
			continue
		}
		if gone {
			l.proof.withPod = l.proof.withPod || l.proof.stopped && j.sandboxesGone(l, listed)
			continue
		}
		l.proof.goneAt = look.Ended
		l.proof.stopped = !l.sandbox && j.sandboxesStopped(l)
		l.proof.withPod = !l.sandbox && j.sandboxesGone(l, listed)
		before := l.proof.happened
		l.provedEnd(look.Ended)
		l.prove(removed, look.Ended)
		l.proof.absent |= l.proof.happened &^ before
	}
}

// sandboxesGone reports whether a read lacks all sandboxes of an item's pod.
func (j *Judge) sandboxesGone(l *life, listed map[*life]bool) bool {
	for _, id := range l.sandboxes {
		if s, ok := j.lives[id]; ok && listed[s] {
			return false
		}
	}
	return true
}

// sandboxesStopped reports whether all sandboxes of an item's pod have stopped, by events or reads.
func (j *Judge) sandboxesStopped(l *life) bool {
	for _, id := range l.sandboxes {
		s, ok := j.lives[id]
		if !ok || s.proof.base < exited && (s.seen|s.proof.happened)&(1<<exited) == 0 {
			return false
		}
	}
	return len(l.sandboxes) > 0
}

// sweep counts and forgets the items gone for long.
func (j *Judge) sweep(now time.Time) {
	if now.Sub(j.swept) < keepGone/4 {
		return
	}
	j.swept = now
	for id, l := range j.lives {
		if at := l.proof.goneAt; !at.IsZero() && now.Sub(at) >= keepGone {
			j.settle(l, now, &j.counted)
			delete(j.lives, id)
		}
	}
}

// settle adds the proven and overdue changes of an item to counts.
func (j *Judge) settle(l *life, now time.Time, counts *[kinds]tally) {
	due := min(max(grace, j.slowest*5/4), mostGrace)
	for p := created; p <= removed; p++ {
		bit := uint8(1) << p
		if l.proof.happened&bit == 0 || now.Sub(l.proof.at[p]) < due {
			continue
		}
		k := kindOf(l.sandbox, p)
		if p == removed && l.proof.withPod {
			k = withPod
		}
		counts[k].proven++
		if l.seen&bit == 0 {
			counts[k].lost++
		}
	}
}

// beginConnection counts the changes of the last connection, and begins another.
func (j *Judge) beginConnection(at time.Time) {
	j.endConnection(at)
	j.conn = connection{
		open:     true,
		openedAt: at,
		last:     at,
		from:     at.Add(subscribed),
		burst:    true,
	}
}

// endConnection counts the overdue changes. All other changes may have been lost with the
// connection.
func (j *Judge) endConnection(at time.Time) {
	if j.conn.replayed == backlogRoom {
		j.r.FullBacklogs++
	}
	j.conn.replayed = 0
	j.r.MuteSeconds += j.conn.mute.Seconds()
	j.conn.mute = 0
	if !j.conn.open {
		return
	}
	j.conn.open = false
	for id, l := range j.lives {
		j.settle(l, at, &j.counted)
		gone := !l.proof.goneAt.IsZero()
		l.proof = proof{}
		if gone {
			delete(j.lives, id)
		}
	}
}

// losses returns, for each kind of event, the share of lost events among the changes proven by a
// time by other evidence than their own event, and the kinds that the runtime never sends: a
// runtime may leave out the creation and the removal of sandboxes, and with a sandbox's removal
// also the removal of its containers.
func (j *Judge) losses(now time.Time) (loss map[string]bench.Share, never []string) {
	counts := j.counted
	for _, l := range j.lives {
		j.settle(l, now, &counts)
	}
	deleted := kindOf(false, removed)
	if j.received[kindOf(true, removed)] > 0 {
		counts[deleted].proven += counts[withPod].proven
		counts[deleted].lost += counts[withPod].lost
		counts[withPod] = tally{}
	}
	optional := []kind{kindOf(true, created), kindOf(true, removed), withPod}
	loss = make(map[string]bench.Share)
	never = []string{}
	for k := range kind(kinds) {
		c := counts[k]
		isOptional := slices.Contains(optional, k) && (k == withPod || j.received[k] == 0)
		switch {
		case c.proven == 0:
		case isOptional && c.lost > 0:
			never = append(never, k.String())
		case k != withPod:
			loss[k.String()] = bench.NewShare(c.lost, c.proven)
		}
	}
	return loss, never
}
