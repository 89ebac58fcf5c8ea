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
	// Partial: something had to be left out, so that a missing item proves nothing.
	Partial bool
}

const (
	// grace is how long an event may take, or a quarter more than the slowest one so far, up to
	// mostGrace. A change without its event for longer counts as lost, until the event comes.
	grace     = 2 * time.Second
	mostGrace = time.Minute
	// visible is how long a list may lack what an event has announced.
	visible = time.Second
	// subscribed is how long after its opening a stream carries all events for certain.
	subscribed = 250 * time.Millisecond
	// keepGone is how long the event of a removed item may still come.
	keepGone = time.Minute
)

// proof is what is known of an item on the present connection of the stream.
type proof struct {
	// base is the phase from before the connection, or from the first list on it: changes up to base
	// are not the connection's. Placed reports whether base is known.
	base   phase
	placed bool
	// born: the item began on this connection, by its own stamp or by two lists.
	born bool
	// happened has a bit for each phase whose begin something other than its own event proves, at the
	// time in at. Absent has those bits that rest on an absence, which a later read can refute.
	happened, absent uint8
	at               [removed + 1]time.Time
	// ran: something other than its event STOPPED shows that the item has run, so that its removal
	// proves its end.
	ran bool
	// present is when something last proved the item's presence.
	present time.Time
	// goneAt is when a read first lacked the item.
	goneAt time.Time
	// stopped: the sandboxes of the pod had stopped then. CRI-O removes the containers of a stopped
	// sandbox one by one and without events, and then the sandbox.
	stopped bool
	// withPod: the item went with all sandboxes of its pod, in one read or, of a pod that had
	// stopped, before them.
	withPod bool
}

// kind indexes the kinds of events: those of containers, then those of sandboxes, then the removal
// of a container along with its sandbox.
type kind int

const (
	withPod = kind(2 * int(removed+1))
	kinds   = int(withPod) + 1
)

func kindOf(sandbox bool, p phase) kind {
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
		return "sandbox " + eventName(phase(k-kind(removed+1)))
	}
	return "container " + eventName(phase(k))
}

// tally counts the changes of a kind that are proven, and those of them without an event.
type tally struct{ proven, lost int }

// connection is what is known of the present connection of the stream.
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
	// backlogRoom is the length of the channel in which containerd and CRI-O keep events that
	// nobody reads.
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

// clock estimates how far the runtime's clock is behind: by the least age of events that came after
// the backlog.
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

// offset is what to add to a stamp, 0 unless some events agree that it is a second or more.
func (c *clock) offset() time.Duration {
	const some = 3
	if c.n < some || c.least.Abs() < late {
		return 0
	}
	return c.least
}

// prove enters that a phase of an item has begun on this connection, known by something other than
// its own event.
func (l *life) prove(p phase, at time.Time) {
	bit := uint8(1) << p
	if l.proof.happened&bit != 0 {
		return
	}
	l.proof.happened |= bit
	l.proof.at[p] = at
}

// provedByEvent enters what an event proves of its own item, its own phase aside.
func (j *Judge) provedByEvent(e *Event, l *life, announces phase) {
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

// provedEnd enters the end of an item that has run and is gone.
func (l *life) provedEnd(at time.Time) {
	if l.wasReady() {
		l.prove(exited, at)
	}
}

// provedByPayload enters what the payload of an event proves: by stamps, and of sandboxes by their
// state. Own is the phase that the event announces of the item, unknown for other items.
func (j *Judge) provedByPayload(e *Event, l *life, i Item, own phase) {
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

// wasReady reports whether something other than its event STOPPED shows that an item has run on
// this connection, or that a sandbox was ready.
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

// shown enters what a read shows of an item after the first read of this connection.
func (l *life) shown(s Shown, look Look) {
	l.proof.present = look.Ended
	l.proof.born = l.proof.born || !l.proof.placed
	l.refute()
	if s.Phase == unknown {
		return
	}
	before := func(p phase) bool { return l.proof.born || l.proof.placed && l.proof.base < p }
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

// refute takes back what rested on the absence of an item that is there.
func (l *life) refute() {
	l.proof.happened &^= l.proof.absent
	l.proof.absent = 0
	l.proof.goneAt = time.Time{}
}

// absences enters the end of items that a read does not show, and that were there well before.
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

// sandboxesGone reports whether a read lacks all sandboxes that an item's pod had.
func (j *Judge) sandboxesGone(l *life, listed map[*life]bool) bool {
	for _, id := range l.sandboxes {
		if s, ok := j.lives[id]; ok && listed[s] {
			return false
		}
	}
	return true
}

// sandboxesStopped reports whether all sandboxes that an item's pod had have stopped, by events or
// reads.
func (j *Judge) sandboxesStopped(l *life) bool {
	for _, id := range l.sandboxes {
		s, ok := j.lives[id]
		if !ok || s.proof.base < exited && (s.seen|s.proof.happened)&(1<<exited) == 0 {
			return false
		}
	}
	return len(l.sandboxes) > 0
}

// sweep counts and forgets the items that are gone for long.
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

// settle adds what is proven of an item, and overdue, to counts.
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

// beginConnection counts what the last connection has shown, and begins another.
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

// endConnection counts what is overdue. What is not may have been lost with the connection.
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

// losses returns, for each kind of event, the share of lost events among the changes that something
// other than their own event has proven by a time, and the kinds that the runtime never sends: a
// runtime may leave out the creation and the removal of sandboxes, and with the latter that of the
// containers that a sandbox takes along.
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
