// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"container/heap"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// core decides which ends to report, and which statuses to read again. The core calls nothing but
// exit, and holds no clock: an input comes with its time, and the effects are data. The inputs are
// see (a status, from the cache or from a read), due (the time has come) and stood (the loop did
// not run for a while).
type core struct {
	settle time.Duration
	giveUp time.Duration
	// exit returns the exit code of a removed container, and the reason. It does not block.
	exit func(id string) (code int32, reason string, ok bool)

	// since is when the reporter first started, in an earlier process perhaps. It has no monotonic
	// reading: it is compared with the clock, which may be set back.
	since time.Time
	// fresh: no process has run before.
	fresh bool
	// syncedAt is when the cache was first known to hold the whole runtime; zero before.
	syncedAt time.Time
	// earlier are the IDs of the ends reported by earlier processes, by their time, until the runtime
	// shows them, or until forgetAt, which the first sync sets.
	earlier  map[string]time.Time
	forgetAt time.Time
	// left are the ends that the process before saw and did not report, by ID, until the runtime shows
	// the container, or until leftAt, which the first sync sets.
	left   map[string]End
	leftAt time.Time
	// dropped are the IDs of told containers after their removal from the runtime: their events may be
	// waiting in Watch.
	dropped memory

	pods  map[cache.UID]*pod
	looks lookQueue // the pods with a read wanted, the earliest first
	// containers is the number of records, settling the number of ends waiting for their read.
	containers, settling int
}

// settings are the parts of Config for the core.
type settings struct {
	settle, giveUp time.Duration
	exit           func(id string) (code int32, reason string, ok bool)
}

// retryAfter is the pause before a failed read is made again.
const retryAfter = time.Second

// newCore returns a core with the reports of earlier processes, and with the ends that they left
// unreported. The core owns the map of the record from now on.
func newCore(s settings, before *record) *core {
	c := &core{
		settle:  s.settle,
		giveUp:  s.giveUp,
		exit:    s.exit,
		since:   before.Since.Round(0),
		fresh:   before.fresh,
		earlier: before.Reported,
		left:    make(map[string]End),
		pods:    make(map[cache.UID]*pod),
	}
	if c.earlier == nil {
		c.earlier = make(map[string]time.Time)
	}
	for _, e := range before.Settling {
		e.End.Labels = e.Labels
		c.left[e.ID] = e.End
	}
	return c
}

// effects are the consequences of an input, for the loop to carry out.
type effects struct {
	// ends are to be reported, in this order.
	ends []End
	// restarted has, for each container started again, its pod.
	restarted []Ref
}

// see takes a status of a pod.
func (c *core) see(now time.Time, s sighting) effects {
	p := c.pods[s.pod.UID]
	if !s.readAfter.IsZero() && (p == nil || s.outrun(p.madeAt)) {
		return effects{} // the answer to a read for a pod that has gone meanwhile
	}
	if p == nil {
		p = newPod(now, s.pod.Ref)
		c.pods[s.pod.UID] = p
	}
	p.name(&s.pod)
	if !s.readAfter.IsZero() {
		p.look.underway = false
		p.look.due = time.Time{} // schedule wants it anew, if still needed
	}
	var out effects
	shown := make(map[string]bool, len(s.pod.Containers))
	for i := range s.pod.Containers {
		x := &s.pod.Containers[i]
		shown[x.ID] = true
		c.show(now, p, x, &s, &out)
	}
	if s.event.Type == pleg.ContainerDied && s.event.Kind == pleg.Container {
		c.announced(now, p, &s)
	}
	for _, id := range slices.Sorted(maps.Keys(p.containers)) {
		if !shown[id] {
			c.absent(now, p, id, &s, &out)
		}
	}
	c.sandboxes(now, p, &s, &out)
	if !s.readAfter.IsZero() {
		c.overdue(now, p, &out)
	}
	c.schedule(now, p, s.readAfter)
	return out
}

// show takes a container in a status.
func (c *core) show(now time.Time, p *pod, shown *Container, s *sighting, out *effects) {
	x := p.containers[shown.ID]
	if x == nil && s.outrun(p.droppedAt) {
		return // dropped, or an event tells of it
	}
	if x == nil {
		x = c.meet(now, p, shown, out)
	}
	if s.outrun(x.shownAt) && shown.StartedAt.Before(x.shown.StartedAt) {
		c.outdated(x, shown)
		return // from before the container was started again
	}
	x.unshown = false
	x.shownAt = now
	x.shown.Attempt = shown.Attempt
	if x.startedAgain(shown) {
		c.begin(now, p, x, out)
	}
	before := shown.Phase < pleg.PhaseExited && s.outrun(x.since)
	if x.stage == stageTold {
		x.learn(shown)
		return
	}
	if shown.Phase == pleg.PhaseUnknown || x.stage == stageSettling && before {
		return
	}
	overruled := x.shown.Phase == pleg.PhaseExited && !s.unreadable // the cache shows a later read
	x.shown = *shown
	switch shown.Phase {
	case pleg.PhaseRunning:
		x.ran = true
		if s.read() || overruled {
			c.become(x, stageAlive, now) // the end was a false claim
		}
	case pleg.PhaseExited:
		if x.stage == stageAlive && !x.ran && c.old(now, shown) {
			c.become(x, stageTold, now)
			return
		}
		c.ended(x, now)
		if s.read() && !s.readAfter.Before(x.since.Add(c.settle)) {
			c.tell(now, p, x, true, out)
		}
	}
}

// meet makes the record of a container on its first appearance in a status. An earlier process may
// have told its end, or have left the end to be told: of the shown life, or of a life before.
func (c *core) meet(now time.Time, p *pod, shown *Container, out *effects) *container {
	x := &container{shown: Container{ID: shown.ID, Name: shown.Name}}
	left, wasLeft := c.left[shown.ID]
	c.add(p, x)
	ended, told := c.told(shown.ID)
	switch {
	case told:
		x.endedAt = ended
		c.become(x, stageTold, now)
		delete(c.earlier, shown.ID) // the record has it from now on
	case shown.Attempt > 0 && !c.syncedAt.IsZero():
		out.restarted = append(out.restarted, p.ref)
	}
	if !wasLeft {
		return x
	}
	before := container{shown: Container{StartedAt: left.StartedAt}, endedAt: left.FinishedAt}
	if before.startedAgain(shown) {
		out.ends = append(out.ends, asLeft(left, now))
		x.shown.StartedAt = left.StartedAt
		x.endedAt = left.FinishedAt
		c.become(x, stageTold, now)
	}
	return x
}

// told reports whether the end of a container without a record is told, by this process or by an
// earlier one, and returns when it ended; zero if unknown.
func (c *core) told(id string) (endedAt time.Time, ok bool) {
	endedAt, ok = c.earlier[id]
	return endedAt, ok || c.dropped.has(id)
}

// startedAgain reports whether a status shows a later life of the container than the record: docker
// starts a container again under its ID. A status from before the end, and a runtime that has lost
// the end, show the known start, or a start before the end. An end may be before its own
// start: the clock was set back.
func (x *container) startedAgain(shown *Container) bool {
	if shown.Phase != pleg.PhaseRunning && shown.Phase != pleg.PhaseExited {
		return false
	}
	sameEnd := !x.endedAt.IsZero() && shown.FinishedAt.Equal(x.endedAt)
	last := x.shown.StartedAt
	if last.IsZero() {
		last = x.endedAt
	}
	return !sameEnd && !last.IsZero() && shown.StartedAt.After(last)
}

// begin begins another life of a container. The end of the life before is told now, if it has not
// been: as last seen, because the runtime does not show it any more.
func (c *core) begin(now time.Time, p *pod, x *container, out *effects) {
	if x.stage == stageSettling || x.stage == stageAlive && x.ran {
		c.ended(x, now)
		x.again = true
		c.tell(now, p, x, false, out)
	}
	c.become(x, stageAlive, now)
	x.ran = true
	x.again = false
	x.unread = false
	x.stale = c.remembered(x.shown.ID)
}

// outdated takes the status of an earlier life of a container. If that life has ended, the exit
// remembered by the runtime's client may be of it, and is not told of the present life.
func (c *core) outdated(x *container, shown *Container) {
	of := c.remembered(shown.ID)
	if shown.Phase == pleg.PhaseExited && of.code == shown.ExitCode {
		x.stale = of
	}
}

// remembered returns what the runtime's client remembers of the end of a container.
func (c *core) remembered(id string) (of exit) {
	if c.exit != nil {
		of.code, of.reason, of.known = c.exit(id)
	}
	return of
}

// learn completes the record of a told container by what a status shows: only a later start shows
// another life.
func (x *container) learn(shown *Container) {
	if x.shown.StartedAt.IsZero() {
		x.shown.StartedAt = shown.StartedAt
	}
	if x.endedAt.IsZero() {
		x.endedAt = shown.FinishedAt
	}
}

// old reports whether an ended container, never seen alive, ended before the reporter first
// started. A clock set back to before that start makes the stamps of all new ends earlier: until
// the start has passed once more, nothing is old.
//
// The clock may also have been wrong when the container ended, at the boot of a node without one of
// its own: what was created or started later than the reporter has ended later.
//
// An end without a stamp is old in the first process alone: the later ones know by the ledger which
// have ended before. So is an end with a stamp from the future, among what the first process meets
// at its start: the clock is not set yet, as on a node that has just booted.
func (c *core) old(now time.Time, shown *Container) bool {
	if shown.FinishedAt.IsZero() && !c.fresh {
		return false
	}
	latest := later(shown.FinishedAt, later(shown.CreatedAt, shown.StartedAt))
	if c.fresh && c.syncedAt.IsZero() && latest.After(now) {
		return true
	}
	return latest.Before(c.since) && !now.Before(c.since)
}

// add makes a record. Ends left by the process before are reported as the runtime shows them.
func (c *core) add(p *pod, x *container) {
	p.containers[x.shown.ID] = x
	c.containers++
	_, x.ran = c.left[x.shown.ID]
	delete(c.left, x.shown.ID)
}

// become moves a container to a stage.
func (c *core) become(x *container, next stage, now time.Time) {
	if x.stage == next {
		return
	}
	if x.stage == stageSettling {
		c.settling--
	}
	if next == stageSettling {
		c.settling++
		x.seenAt = now
		x.since = now
	}
	x.stage = next
}

// ended begins the settling of an end at its first sight.
func (c *core) ended(x *container, now time.Time) {
	if x.stage == stageAlive {
		c.become(x, stageSettling, now)
	}
}

// announced takes a ContainerDied event. The status may be older than the event, or newer: the
// container may be removed already.
func (c *core) announced(now time.Time, p *pod, s *sighting) {
	id := s.event.ID
	x := p.containers[id]
	_, told := c.told(id)
	if x == nil {
		if told || c.syncedAt.IsZero() || s.event.Seen.Before(c.syncedAt) {
			return // told, or from before the first look
		}
		x = &container{
			shown:   Container{ID: id, Name: s.event.ContainerName},
			shownAt: now,
			unshown: true,
		}
		c.add(p, x)
		p.name(&Pod{Ref: Ref{Name: s.event.PodName, Namespace: s.event.Namespace}})
	}
	if x.stage == stageAlive {
		x.ran = true
		c.ended(x, now)
	}
}

// absent takes a known container missing in a status. Only a proof of the removal ends the record.
func (c *core) absent(now time.Time, p *pod, id string, s *sighting, out *effects) {
	x := p.containers[id]
	if !s.gone(id, x.shownAt) {
		unproved := s.readAfter.IsZero() || !s.unreadable && s.outrun(x.shownAt)
		doubtful := unproved && !slices.Contains(s.pod.Unread, id)
		if x.stage == stageAlive && x.ran && doubtful {
			p.want(now)
		}
		return
	}
	if x.stage == stageSettling || x.stage == stageAlive && x.ran {
		c.ended(x, now)
		c.tell(now, p, x, false, out)
	}
	if x.stage == stageTold {
		c.dropped.add(id)
	}
	c.become(x, stageTold, now)
	c.containers--
	p.drop(now, id)
}

// stood takes a time in which the loop did not run: the process was stopped, or had no CPU. Nobody
// could ask then, and the runtime may have stood still, too. So neither the settle time of an end
// nor the time for its read has passed meanwhile, nor the time for the runtime to show what was
// reported or left earlier.
func (c *core) stood(long time.Duration) {
	c.forgetAt = c.forgetAt.Add(long) // of no meaning before the first sync
	c.leftAt = c.leftAt.Add(long)     // likewise
	for _, p := range c.pods {
		for _, x := range p.containers {
			if x.stage == stageSettling {
				x.since = x.since.Add(long)
			}
		}
	}
}

// overdue reports, after a read, the ends without a read of their status for too long: the runtime
// does not answer for the container, or for its pod.
func (c *core) overdue(now time.Time, p *pod, out *effects) {
	for _, id := range slices.Sorted(maps.Keys(p.containers)) {
		x := p.containers[id]
		if x.stage == stageSettling && now.Sub(x.since)-c.settle >= c.giveUp {
			x.unread = true
			c.tell(now, p, x, false, out)
		}
	}
}

// tell reports the end of a container.
func (c *core) tell(now time.Time, p *pod, x *container, settled bool, out *effects) {
	c.become(x, stageTold, now)
	e := c.endOf(p, x, settled)
	x.endedAt = e.endedBy()
	e.Note = c.note(now, p, &e)
	out.ends = append(out.ends, e)
}

// synced takes the first time at which the cache holds the whole runtime. Ends that were reported
// earlier, or left, may be in a pod that cannot be read yet.
func (c *core) synced(now time.Time) {
	c.syncedAt = now
	c.forgetAt = now.Add(earlierFor)
	c.leftAt = now.Add(c.giveUp)
}

// passed takes a time after the first sync. It forgets the earlier ends that the runtime has not
// shown for long, and reports those left by the process before as last seen: their containers were
// removed meanwhile.
func (c *core) passed(now time.Time) (out effects) {
	if now.After(c.forgetAt) {
		clear(c.earlier)
	}
	if now.Before(c.leftAt) {
		return out
	}
	for _, id := range slices.Sorted(maps.Keys(c.left)) {
		e := asLeft(c.left[id], now)
		out.ends = append(out.ends, e)
		c.earlier[id] = e.endedBy()
	}
	clear(c.left)
	return out
}

// asLeft returns the end that the process before left, to be told as last seen.
func asLeft(e End, now time.Time) End {
	e.SeenAt = now
	e.Note = noteOf(&e, now)
	return e
}

// endedBy returns when a container ended; without a stamp, when that was seen.
func (e *End) endedBy() time.Time {
	if e.FinishedAt.IsZero() {
		return e.SeenAt.Round(0) // to be compared with stamps
	}
	return e.FinishedAt
}

// unreported returns the ends that are seen and not reported, for the next process to report if
// their containers are gone by then.
func (c *core) unreported() []settlingEnd {
	var all []settlingEnd
	keep := func(e End) { all = append(all, settlingEnd{End: e, Labels: e.Labels}) }
	for _, e := range c.left {
		keep(e)
	}
	for _, p := range c.pods {
		for _, x := range p.containers {
			if x.stage == stageSettling {
				keep(c.endOf(p, x, false))
			}
		}
	}
	slices.SortFunc(all, func(a, b settlingEnd) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// endOf returns the end of a container, without its note. Without a settling read, exit may know
// more than the last status: events have statuses, too.
func (c *core) endOf(p *pod, x *container, settled bool) End {
	last := *x
	if !settled {
		of := c.remembered(last.shown.ID)
		if of.known && last.mayEnd(of) {
			last.shown.Phase = pleg.PhaseExited
			last.shown.ExitCode = of.code
			last.shown.Reason = of.reason
		}
	}
	e := p.end(&last, settled)
	e.Kind = classify(&e)
	return e
}

// mayEnd reports whether the exit remembered of a container's ID is the end of the life in the
// record, and not of an earlier or a later life.
func (x *container) mayEnd(of exit) bool {
	if of == x.stale {
		return false
	}
	return !x.again || x.shown.Phase == pleg.PhaseExited && of.code == x.shown.ExitCode
}

// loopPause is the pause between two ends of a container from which on they are no loop. The series
// recorder has the same pause.
const loopPause = 6 * time.Minute

// note returns the note of an end. A loop of equal ends keeps the note of its first end, because
// some recorders take ends with different notes for different.
func (c *core) note(now time.Time, p *pod, e *End) string {
	last, ok := p.loops[e.Container]
	note := last.note
	if !ok || last.kind != e.Kind || last.code != e.ExitCode || now.Sub(last.at) >= loopPause {
		note = noteOf(e, now)
	}
	p.loops[e.Container] = loop{
		kind: e.Kind,
		code: e.ExitCode,
		note: note,
		at:   now,
	}
	return note
}

// sandboxes takes the sandboxes of a status. A sandbox is suspected if it was ready, is not any
// more, and has running containers. A later read decides.
func (c *core) sandboxes(now time.Time, p *pod, s *sighting, out *effects) {
	if s.unreadable {
		return
	}
	shown := make(map[string]bool, len(s.pod.Sandboxes))
	for _, b := range s.pod.Sandboxes {
		shown[b.ID] = true
		x := p.sandboxes[b.ID]
		if x == nil {
			x = &sandbox{}
			p.sandboxes[b.ID] = x
		}
		x.shownAt = now
		switch {
		case b.Ready && !s.outrun(x.suspectedAt):
			*x = sandbox{ready: true, shownAt: now}
		case b.Ready: // before the suspicion
		case x.told || !x.ready:
		case x.suspectedAt.IsZero():
			x.suspect(now, b.ID, &s.pod)
		case s.read() && !s.readAfter.Before(x.suspectedAt):
			c.judge(now, p, b.ID, &s.pod, out)
		}
	}
	maps.DeleteFunc(p.sandboxes, func(id string, x *sandbox) bool {
		return !shown[id] && s.lacks(id, x.shownAt)
	})
}

// suspect notes the running containers of a dead sandbox. Without any, the end of the sandbox is
// ordinary.
func (x *sandbox) suspect(now time.Time, id string, shown *Pod) {
	x.suspectedAt = now
	x.suspects = nil
	for i := range shown.Containers {
		if runs(&shown.Containers[i], id) {
			x.suspects = append(x.suspects, shown.Containers[i].ID)
		}
	}
	x.told = len(x.suspects) == 0
}

// judge decides on a suspected sandbox by a later read: the sandbox died if a suspect runs on, or
// is lost by now. Suspects with an ordinary end had ended before, and the runtime showed their end
// late.
func (c *core) judge(now time.Time, p *pod, id string, shown *Pod, out *effects) {
	x := p.sandboxes[id]
	x.told = true
	var running []string
	died := false
	for i := range shown.Containers {
		y := &shown.Containers[i]
		if !slices.Contains(x.suspects, y.ID) {
			continue
		}
		running = append(running, printable(y.Name, maxName))
		died = died || y.Phase != pleg.PhaseExited || x.tookAlong(y)
	}
	if !died {
		return
	}
	e := End{
		Kind:    SandboxDied,
		Pod:     p.ref,
		Labels:  p.labels,
		ID:      id,
		Running: sortedNames(running),
		Settled: true,
		SeenAt:  x.suspectedAt,
	}
	e.Note = noteOf(&e, now)
	out.ends = append(out.ends, e)
}

// tookAlong reports whether a suspect of a dead sandbox has ended with the sandbox: the runtime has
// lost the container, or gives the code of a loss for an end after the sandbox's. A container may
// have this code of its own, too: then its end was earlier, and the first status was half old.
func (x *sandbox) tookAlong(y *Container) bool {
	lost := y.Reason == "Unknown" || !y.FinishedAt.Before(x.suspectedAt)
	return y.ExitCode == codeUnknown && lost
}

// schedule plans the next read of a pod, and forgets an empty pod. Began is when the read behind
// the status began, zero without a read. If a read has not settled an end, schedule plans another
// read after a pause. If the settle time of an end passed during the read, the next read is due at
// once.
func (c *core) schedule(now time.Time, p *pod, began time.Time) {
	afterRead := !began.IsZero()
	soon := now
	if afterRead {
		soon = now.Add(retryAfter)
	}
	for _, x := range p.containers {
		if x.stage != stageSettling {
			continue
		}
		at := x.since.Add(c.settle)
		duringRead := at.After(began) && !at.After(now)
		switch {
		case duringRead:
			at = now
		case !at.After(now):
			at = soon
		}
		p.want(at)
	}
	if p.suspected() {
		p.want(soon)
	}
	if len(p.containers)+len(p.sandboxes) == 0 {
		p.look.due = time.Time{}
		delete(c.pods, p.ref.UID)
	}
	c.queue(p)
}

// queue puts a pod at its place among the wanted reads.
func (c *core) queue(p *pod) {
	wanted := !p.look.due.IsZero() && !p.look.underway
	queued := p.look.place >= 0
	switch {
	case wanted && queued:
		heap.Fix(&c.looks, p.look.place)
	case wanted:
		heap.Push(&c.looks, p)
	case queued:
		heap.Remove(&c.looks, p.look.place)
	}
}

// due returns the pod with a due read, and starts the read: the status must be read after now.
// Without a due read, due returns false.
func (c *core) due(now time.Time) (cache.UID, bool) {
	if len(c.looks) == 0 || c.looks[0].look.due.After(now) {
		return "", false
	}
	p := heap.Pop(&c.looks).(*pod)
	p.look.due = time.Time{}
	p.look.underway = true
	return p.ref.UID, true
}

// next returns the time of the next read, zero for none.
func (c *core) next() time.Time {
	if len(c.looks) == 0 {
		return time.Time{}
	}
	return c.looks[0].look.due
}

// reported returns the IDs of the told containers still in the runtime, by the time of their end,
// and the IDs of the ledger without an appearance so far.
func (c *core) reported() map[string]time.Time {
	all := maps.Clone(c.earlier)
	for _, p := range c.pods {
		for id, x := range p.containers {
			if x.stage == stageTold {
				all[id] = x.endedAt
			}
		}
	}
	return all
}

// lookQueue is a heap of pods by the time of their wanted read.
type lookQueue []*pod

func (q lookQueue) Len() int           { return len(q) }
func (q lookQueue) Less(i, j int) bool { return q[i].look.due.Before(q[j].look.due) }
func (q lookQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].look.place = i
	q[j].look.place = j
}

// Push is heap.Interface's.
func (q *lookQueue) Push(x any) {
	p := x.(*pod)
	p.look.place = len(*q)
	*q = append(*q, p)
}

// Pop is heap.Interface's.
func (q *lookQueue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	p.look.place = -1
	return p
}

// memory remembers the latest IDs, at least rememberedIDs of them, in two generations.
type memory struct {
	current, previous map[string]bool
}

const rememberedIDs = 4096

func (m *memory) has(id string) bool { return m.current[id] || m.previous[id] }

func (m *memory) add(id string) {
	if m.current == nil || len(m.current) >= rememberedIDs {
		m.previous = m.current
		m.current = make(map[string]bool)
	}
	m.current[id] = true
}
