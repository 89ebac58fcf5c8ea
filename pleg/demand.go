// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "time"

// demand is why a pod is read, when, and what puts a read off. Only this file writes its fields,
// but for forced (core.inspect), crossed (core.applyRead and core.overtaken), and late, which
// core.review puts off in a crowd. No other room decides when a pod is read.
//
// Instants of a demand are those that a read must begin after, if nothing else is said. Zero is
// none.
type demand struct {
	// want is of waiters for the phases, content of waiters for all statuses.
	want    instant `prove:"demands"`
	content instant `prove:"-"`

	// force is of RequestReinspect. Forced is when the last read for such a request began.
	force  instant `prove:"demands"`
	forced instant `prove:"dated"`

	// due is of the core itself. Such a read waits for hold.
	due instant `prove:"demands"`

	// changed is of a call of the agent's own that may have changed fields of statuses: one that tells
	// of no phase, or has failed. Such a read waits for hold, and no list answers for it.
	changed instant `prove:"demands"`

	// hold is until when the agent's own calls put off the reads without a waiter, and burst when
	// the first report came of the burst of calls behind hold: see holdFor.
	hold  instant `prove:"timers"`
	burst instant

	// notBefore is the end of a delay of the reads that expectations, failures and a teardown call
	// for. Retry is the ladder of such delays.
	notBefore instant `prove:"timers"`
	retry     ladder

	// news reports whether news of the pod has come while it is being read.
	news bool

	// late is when a read of all statuses is due that nobody waits for.
	late instant `prove:"timers"`

	// settling is when a container last ended, or a payload was stored, until the late look at
	// that.
	settling instant `prove:"-"`

	// owes reports whether a payload, or a peek, was stored since the last read of all statuses, or
	// the pod has its turn in the slow round: a read of all statuses must follow.
	owes bool

	// crossed reports whether the content of the last read was left out: see reads.cross.
	crossed bool

	// outrun reports whether the last read is made again because an event that came during it has
	// brought a later phase. If somebody waits for all statuses, the next read decides: see core.offer.
	outrun bool `prove:"-"`
}

// wanted are the times after which reads of a pod must begin; zero for none.
type wanted struct {
	phases  instant // a look at the phases
	content instant // a read of all statuses
	force   instant // a read of all statuses, which Watch is told of
}

// ask adds what is wanted. Before floor the cache may have pruned the pod's tombstone.
func (d *demand) ask(w wanted, floor instant) {
	if w.phases != 0 {
		d.want = max(d.want, w.phases, floor)
	}
	if w.content != 0 {
		d.content = max(d.content, w.content, floor)
	}
	d.force = max(d.force, w.force)
}

// waited reports whether anybody waits for a read of the pod.
func (d *demand) waited() bool { return d.want != 0 || d.content != 0 }

// lookAfter wants a read that begins after a moment.
func (d *demand) lookAfter(at instant) {
	d.due = max(d.due, at)
}

// lookAnew wants a read of all statuses that begins after a moment.
func (d *demand) lookAnew(at instant) {
	d.changed = max(d.changed, at)
}

// leaveOut throws a read away whose content may be older than a payload, and wants another.
func (d *demand) leaveOut(now instant) {
	d.crossed = true
	d.lookAfter(now)
}

// outrunBy notes that a read begun at the given time is made again. Last is when the last event
// came that contradicts the read; zero if none does.
func (d *demand) outrunBy(last, began instant) { d.outrun = last >= began }

// decided notes that a read was not made again.
func (d *demand) decided() { d.outrun = false }

// lookFrom wants a read that begins at a moment, or after.
func (d *demand) lookFrom(at instant) {
	d.due = max(d.due, at-1)
}

// met ends the demands met by the cache, whose entry is as of a moment, and whose statuses were all
// read at another moment.
func (d *demand) met(asOf, readAt instant) {
	if asOf > d.want {
		d.want = 0
	}
	if readAt > d.content {
		d.content = 0
	}
	if readAt > d.changed {
		d.changed = 0
	}
	if asOf > d.due {
		d.due = 0
	}
}

// answer ends the demands of waiters that a read begun at the given time answers.
func (d *demand) answer(began instant) {
	if began > d.want {
		d.want = 0
	}
	if began > d.content {
		d.content = 0
	}
}

// answered ends a request for statuses from before a read that began at the given time, and reports
// whether there was a request.
func (d *demand) answered(began instant) bool {
	if d.force == 0 || began <= d.force {
		return false
	}
	d.force = 0
	return true
}

// needsContent reports whether the next read, begun now, must be of all statuses.
func (d *demand) needsContent(now instant) bool {
	asked := d.content != 0 || d.changed != 0 ||
		d.force != 0 || d.due != 0
	return asked || d.late != 0 && d.late <= now
}

// nextRead returns when the next read of the pod is due; never if none is. A list under way that
// may answer comes first.
func (p *pod) nextRead(r *records, cfg *limits, l *lists) instant {
	at := l.comesFirst(p.nextListed(r, cfg), cfg.ListFirst)
	if p.late != 0 && p.entry == statusEntry {
		at = min(at, p.late)
	}
	if p.force != 0 && !p.failed() {
		next := p.force.next()
		if p.forced != 0 {
			next = max(next, p.forced.add(cfg.ForceAgain))
		}
		at = min(at, next)
	}
	return at
}

// nextListed returns when a read of the pod is due for which a list of everything may answer, or
// stand in for the list of the pod; never if none is. What a list has shown, and no call explains,
// waits for the agent's calls no longer than news of others does.
func (p *pod) nextListed(r *records, cfg *limits) instant {
	hold := p.hold
	if p.differs() && p.diff.at > p.asOf && !p.brings(r, cfg) { // else the list is older than what the cache shows
		hold = min(hold, p.diff.at.add(cfg.CallWait))
	}
	at := never
	switch {
	case p.failed(): // what is wrong with the pod is not the agent's call
		at = p.notBefore
	case p.unmet(), cfg.Streams && p.teardown():
		at = max(hold, p.notBefore)
	}
	if p.want != 0 {
		at = min(at, p.want.next())
	}
	if p.content != 0 {
		at = min(at, p.content.next())
	}
	if p.due != 0 {
		at = min(at, max(hold, p.due.next()))
	}
	if p.changed != 0 {
		at = min(at, max(hold, p.changed.next()))
	}
	return at
}

// heard has the pod read at once for what was reported. Failures delay each other, but news tries
// again.
func (p *pod) heard(now instant) {
	if p.entry != failedEntry {
		p.resetBackOff()
	}
	p.notBefore = now
	p.news = p.reading
}

// takeNews reports, at the end of a read, whether news has come during the read.
func (d *demand) takeNews() (came bool) {
	came = d.news
	d.news = false
	return came
}

// holdFor delays reads for the agent's own calls, which come in bursts, each announced by the
// runtime: until a moment after the end of the last, longer if they have only ended what there was
// (ADR 60), and for CallBurst at the most; for CallWait if there is news of others. A read in the
// middle would show what the next call changes, and would have a worker sync in vain (ADR 51).
func (d *demand) holdFor(cfg *limits, b burst, now instant) {
	if d.hold <= now {
		d.burst = now
	}
	d.hold = d.burst.add(cfg.CallBurst)
	if b.others != never {
		d.hold = min(d.hold, b.others.add(cfg.CallWait))
	}
	if b.goesOn {
		return
	}
	settle := cfg.CallSettle
	if b.ends {
		settle = cfg.CallWait
	}
	d.hold = min(d.hold, now.add(settle))
}

// held reports whether the agent's own calls put reads off.
func (d *demand) held(now instant) bool { return d.hold > now }

// holdAtMost bounds the delay for the agent's own calls.
func (d *demand) holdAtMost(until instant) {
	d.hold = min(d.hold, until)
}

// endBackOff ends the delay after a read that failed.
func (d *demand) endBackOff() { d.notBefore = 0 }

// resetBackOff ends the growth of the delays between reads.
func (d *demand) resetBackOff() { d.retry = ladder{} }

// turnsBackOff notes that reads have come to fail, or to succeed.
func (d *demand) turnsBackOff(cfg *limits) { d.retry.turns(cfg.RetryBase) }

// backOff delays the next read after a read that left a report open.
func (d *demand) backOff(cfg *limits, read span) {
	d.notBefore = d.retry.climb(read, cfg.RereadBase, cfg.RelistMax)
}

// believe has the pod read again, after a read that showed less than an event believed until the
// given time: by then at the latest. The read to come answers who waits, and is the look at what a
// call has changed and the look after an end, too; a new waiter has a read at once.
func (d *demand) believe(cfg *limits, read span, until instant) {
	d.backOff(cfg, read)
	d.notBefore = min(d.notBefore, until)
	d.lookFrom(d.notBefore)
	if d.changed != 0 {
		d.changed = 0
		d.readLater(d.notBefore)
	}
	if d.late != 0 {
		d.late = max(d.late, d.notBefore)
	}
	d.answer(read.began)
}

// delay sets when a pod is read again without a demand, after a look at the pod.
func (p *pod) delay(cfg *limits, look span) {
	switch {
	case p.unmet():
		p.backOff(cfg, look)
	case cfg.Streams && p.teardown():
		p.notBefore = p.retry.climb(look, cfg.TeardownAgain, cfg.RelistMax)
	default:
		if p.entry != failedEntry { // else a report has come during the read, which is made again
			p.resetBackOff()
		}
		p.endBackOff()
	}
}

// retryHung is the least time after which a read that fails has hung.
const retryHung = time.Second

// delayFailed delays the next read after a read that failed, whole or in part. A read that fails at
// once is tried again soon, as often as polling would; a read that hung, more and more rarely.
func (d *demand) delayFailed(cfg *limits, read span, took time.Duration) {
	most := cfg.RetryMax
	if took < retryHung {
		most = cfg.RetryBase
	}
	d.notBefore = d.retry.climb(read, cfg.RetryBase, most)
}

// putOffLate puts the look off that nobody waits for. Lists end the delays between reads.
func (d *demand) putOffLate(until instant) {
	if d.late != 0 {
		d.late = max(until, d.late)
	}
}

// triesAgain has a pod whose read has failed read as soon as any other, for the news that came
// during that read. The delays between failures stay as long as they are.
func (d *demand) triesAgain(cfg *limits, now instant) {
	d.notBefore = min(d.notBefore, now.add(cfg.RereadBase))
}

// readLater has all statuses of a pod read at a time, unless they are read earlier.
func (d *demand) readLater(at instant) {
	if d.late == 0 || at < d.late {
		d.late = at
	}
}

// turn has all statuses of a pod read now. Nothing but such a read ends the turn: a look after an
// end may be due already, and end when nothing is left of the end.
func (d *demand) turn(now instant) {
	d.readLater(now)
	d.owes = true
}

// settles has the statuses of a pod read again a moment after an end, or after a payload was
// stored: a runtime may learn the reason of an end late, or correct an exit code.
func (d *demand) settles(cfg *limits, now instant) {
	if cfg.EndSettle >= 0 {
		d.settling = now
		d.readLater(now.add(cfg.EndSettle))
	}
}

// owesRead notes that a payload, or a peek, was stored: a read of all statuses is to follow.
func (d *demand) owesRead(cfg *limits, now instant) {
	d.settles(cfg, now)
	d.owes = true
}

// nothingLate ends all reads that are owed of a pod, which has gone.
func (d *demand) nothingLate() {
	d.late = 0
	d.settling = 0
	d.owes = false
}

// unsettles ends the wait for the look after an end if the stored status shows no ended container
// any more: no reason is left that may come late. A payload is still to be followed by a read of
// all statuses.
func (d *demand) unsettles(cfg *limits, ended bool) {
	if d.settling == 0 || d.owes || ended {
		return
	}
	if d.late == d.settling.add(cfg.EndSettle) {
		d.late = 0
	}
	d.settling = 0
}

// settled notes that all statuses of a pod were read, and are kept, by a read begun at the given
// time.
func (d *demand) settled(cfg *limits, began instant) {
	if began > d.settling {
		d.owes = false
	}
	if d.late == 0 || d.late > began {
		return
	}
	d.late = 0
	if d.settling == 0 {
		return
	}
	at := d.settling.add(cfg.EndSettle)
	if at <= began {
		d.settling = 0
		return
	}
	d.late = at // another has ended since
}
