// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"time"
)

// book is the knowledge of the core: the records of the pods, the reports not confirmed by a read,
// the trust of the stream, and the effects of a turn. The rooms beside the book decide which pods
// are read, and when; the result of a read comes into the book as a reading. Only the book writes
// the cache, the record and Watch, all three at once: see write and tell.
type book[S any] struct {
	cfg limits `prove:"-"`

	records
	evidence evidence
	trust    trust
	out      effects[S] `prove:"-"`

	// uncertain is until when IDs of unknown pods may have been made: by a call that found no room,
	// told by a claim of no pod, or while the generator stood still, of which it hears only now. A list
	// begun later shows them.
	uncertain instant `prove:"timers"`

	// floor is the time before which the cache may refuse writes of a pod without a record, and
	// deleted whether the cache holds tombstones.
	floor   instant `prove:"marks"`
	deleted bool
}

func newBook[S any](cfg limits, clk clock) book[S] {
	return book[S]{
		cfg:      cfg,
		records:  newRecords(),
		evidence: newEvidence(&cfg),
		trust:    newTrust(&cfg),
		out:      effects[S]{clock: clk},
	}
}

// forget drops the record of a pod of which nothing is left to remember.
func (k *book[S]) forget(p *pod) {
	k.mayHave(p.unlisted)
	k.floor = max(k.floor, p.asOf)
	delete(k.pods, p.uid)
}

// mayHave notes that until a moment IDs of unknown pods may have been made.
func (k *book[S]) mayHave(until instant) {
	k.uncertain = max(k.uncertain, until)
}

// expect takes a report of a pod's ID, has the pod read, and reports whether the report is news.
// X is the ID's item in the pod, nil if there is none.
func (k *book[S]) expect(p *pod, x *item, e expectation, now instant) (news bool) {
	switch k.evidence.expect(p, x, e, k.index[e.id] != nil) {
	case takenStale:
		return false
	case takenNoRoom: // too many IDs not shown by a read
		k.discard(1, now)
		return true
	}
	p.heard(now)
	if p.calling() || p.held(now) {
		p.holdFor(&k.cfg, p.ownBurst(&k.records, &k.cfg, now), now)
	}
	return true
}

// expectEarly takes the report of an ID of no known pod, and reports whether the report is news. A
// list is to show the pod of an ID that may live.
func (k *book[S]) expectEarly(e expectation, now instant) (news bool) {
	news = k.keepEarly(e, now)
	if news && e.phase < PhaseRemoved { // without room as well: the ID may have been made
		k.mayHave(now)
		k.trust.sched.ask(now)
	}
	return news
}

// keepEarly keeps the report of an ID for the read or the list that shows the ID, and reports
// whether the report is news.
func (k *book[S]) keepEarly(e expectation, now instant) (news bool) {
	switch k.evidence.expectEarly(e) {
	case takenStale:
		return false
	case takenNoRoom:
		k.discard(1, now)
	}
	return true
}

// takeEarly makes the early reports of an ID expectations of the pod named by a read or a list,
// and reports whether there were any.
func (k *book[S]) takeEarly(p *pod, id string, now instant) (news bool) {
	for _, cause := range [...]Cause{CauseClaim, CauseAck} {
		if e, ok := k.evidence.takeEarly(id, cause); ok {
			hold := p.hold
			k.expect(p, k.find(p, 0, id), e, now)
			if hold > now { // the report is of before, and delays no further
				p.holdAtMost(hold)
			}
			news = true
		}
	}
	return news
}

// takeListed takes the early reports of the IDs in a list, and reports whether there were any.
// Ghosts are left to a read with their status: the list was news when it first showed them.
func (k *book[S]) takeListed(p *pod, items []Item, now instant) (news bool) {
	if len(k.evidence.early) == 0 {
		return false
	}
	for i := range items {
		if !p.ghosts.has(items[i].ID) {
			news = k.takeEarly(p, items[i].ID, now) || news
		}
	}
	return news
}

// discard counts claims without room. A list replaces them, but no sooner than a base period
// after the last list: any number of claims may be discarded.
func (k *book[S]) discard(n int, now instant) {
	k.out.add(countDropped, n)
	k.trust.lastDiscard = now
	k.trust.sched.ask(now)
}

// resolve settles the expectations of a pod by a look that has been applied.
func (k *book[S]) resolve(s settlement) {
	k.refuted(k.evidence.resolve(&k.records, s))
}

// refuted counts claims that a look has refuted, which cost trust.
func (k *book[S]) refuted(claims []refutation) {
	for _, r := range claims {
		k.out.add(countOverruled, 1)
		k.trust.refute(fmt.Sprintf("%s was announced as %v, and is %v more than %v later",
			r.of.title(), r.phase, r.of.phase, k.cfg.Grace))
	}
}

// reading is a report that becomes the state of a pod. There are four kinds: a read of the
// statuses, a read without the pod, a dominating payload, and a peek.
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

	// before is the begin of the last read of all statuses before this one, and agreed of the last
	// look in agreement with the record when this one began.
	before instant
	agreed instant

	// excused reports whether a change of content has a reason of the agent's own, or was
	// announced. No change is looked for beside an error: part of the content is missing there.
	excused bool
}

// gone reports whether the reading shows nothing of the pod.
func (r *reading[S]) gone() bool {
	return r.status == nil && r.err == nil
}

// overrules reports whether the reading, which shows an item, refutes a claim of the item. A claim
// of another ID may have the reading believed before, and the next may meet this one. Of an unread
// ID the reading has no more than the phase in a list.
func (r *reading[S]) overrules(x *item, e *expectation, grace time.Duration) bool {
	return e.phase > x.phase &&
		!r.unread.has(x.id) &&
		r.began > e.decides(grace)
}

// lastLook is the last look at a pod in agreement with its record.
type lastLook struct {
	// since is the begin of the look.
	since instant

	// knew is the begin of the last look that knew the states of all items: lists, which are looks
	// while the reads of a pod fail, may not.
	knew instant

	// stream is when the present stream was connected; zero while it is down.
	stream instant
}

// enter makes a reading the state of the pod: in the cache, in the record and on Watch at once. No
// other function changes any of them. The entry is as of the given time; last is the last look
// without the reading.
func (k *book[S]) enter(p *pod, r *reading[S], at instant, last lastLook, now instant) {
	action := len(k.out.actions)
	events := k.out.count[countEvents]
	k.write(p, r, at)
	k.tell(p, r, last, now)
	k.out.actions[action].silent = k.out.count[countEvents] == events
}

// write puts a reading into the cache, as of the given time, and the kind of the entry into the
// record.
func (k *book[S]) write(p *pod, r *reading[S], at instant) {
	a := action[S]{
		kind:     actStore,
		uid:      p.uid,
		at:       at,
		content:  p.read,
		looked:   r.looked,
		beside:   r.beside,
		status:   r.status,
		err:      r.err,
		replaces: p.entry != noEntry,
	}
	switch {
	case r.gone():
		k.out.do(action[S]{kind: actDelete, uid: p.uid, at: at})
		k.becomeGone(p, at)
		k.deleted = true
	case r.err != nil:
		k.out.do(a)
		k.becomeFailed(p, at, len(r.unread.ids), !r.beside || p.partial())
	default:
		a.excused = r.excused
		a.before = r.before
		k.out.do(a)
		k.becomeRead(p, at)
	}
}

// tell moves the items of a pod as a reading shows them, and tells Watch and trust the
// difference. Last is the last look without it.
func (k *book[S]) tell(p *pod, r *reading[S], last lastLook, now instant) {
	for i := 0; i < len(r.items) && len(k.evidence.early) > 0; i++ {
		if k.find(p, i, r.items[i].ID) == nil {
			k.takeEarly(p, r.items[i].ID, now)
		}
	}
	told := 0
	sync := false
	moves := k.show(p, r.items)
	for i := range moves {
		m := &moves[i]
		k.judgeMove(m, r, last, now)
		if m.died {
			k.out.event(m.of, ContainerDied, now)
			told++
		}
		if m.event == ContainerDied && m.of.kind == Container {
			p.settles(&k.cfg, now)
		}
		if m.event != "" {
			k.out.event(m.of, m.event, now)
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
		k.out.sync(p, now)
	}
	if r.err != nil { // who looks now does not see it: after an event of before, or a PodSync that is owed
		p.conceal(written, &r.unread)
	}
}

// judgeMove counts a phase that a reading has taken back, and has an unannounced change judged.
func (k *book[S]) judgeMove(m *move, r *reading[S], last lastLook, now instant) {
	x := m.of
	d := discovery{
		of:     x,
		phase:  x.phase,
		since:  last.since,
		stream: last.stream,
	}
	if m.turned && m.before != x.phase { // it may have come so far before its state was lost to lists
		d.since = min(d.since, last.knew)
	}
	switch {
	case m.back && m.before == phaseNone:
		k.out.add(countRegressions, 1)
		k.returned(x.id)
		k.trust.refute(x.title() + " was gone, and is back")
	case m.back:
		if e := x.pod.expected.get(x.id, CauseClaim); e != nil && e.stored &&
			r.overrules(x, e, k.cfg.Grace) {
			return // resolve counts, in this turn
		}
		k.out.add(countRegressions, 1)
		k.trust.refute(fmt.Sprintf("%s was shown as %v, and is %v", x.title(), m.before, x.phase))
	case m.turned && (m.before == x.phase || m.before == phaseNone):
		d.unknown = true
		k.trust.note(d, now)
	case x.phase == PhaseRemoved:
		d.ran = m.before == PhaseRunning
		open := k.trust.note(d, now)
		within := k.cfg.Grace // another look may still show the ID
		if open || x.claimed < PhaseRemoved {
			within = returnsWithin
		}
		k.remember(x, open, now.add(within))
	case m.before == PhaseUnknown: // nobody knows when the ID came so far
	default:
		k.trust.note(d, now)
	}
}

// noteEnd notes how a read has ended, whatever becomes of its result: a failure is counted, and the
// first about the pod is reported; of failures in part, the second in a row. On a busy node a
// status may come later than the others of its pod for once, and the next read, a second later, has
// the status. The entry is as of the given time.
func (k *book[S]) noteEnd(p *pod, r *look, whole bool, asOf instant) {
	if r.err == nil {
		p.acquit()
		return
	}
	k.out.add(countInspectErrors, 1)
	first := !p.failed() && !p.failing()
	if first {
		p.turnsBackOff(&k.cfg)
	}
	again := whole || !first
	if p.accused || !again ||
		r.old(p, asOf) && !(p.failing() && p.entry != noEntry) {
		return
	}
	p.accuse()
	k.out.report(Report{
		Reason:  ReasonInspectFailed,
		Action:  "Inspect",
		Warning: true,
		Note:    "the pod's status cannot be read: " + r.err.Error(),
		Pod:     &PodRef{UID: p.uid, Name: p.name, Namespace: p.namespace},
	})
}

// fail stores a read's failure beside the last status, unless something newer is known. The entry
// is as of the given time. A look that nobody waits for, and that has failed again, is put off.
func (k *book[S]) fail(p *pod, r *look, asOf, now instant) {
	if r.old(p, asOf) {
		if p.failing() {
			p.putOffLate(now.add(k.cfg.RetryMax))
		}
		return
	}
	at := max(r.began, asOf)
	k.out.do(action[S]{
		kind:    actFail,
		uid:     p.uid,
		at:      at,
		content: r.began,
		err:     r.err,
	})
	k.becomeFailed(p, at, max(len(p.items), len(r.unread.ids)), false)
	p.read = max(p.read, r.began)
}

// old reports whether a list has shown the pod since the look began, and nothing asks for more than
// lists show.
func (r *look) old(p *pod, asOf instant) bool {
	return r.began < asOf && p.content == 0 && p.changed == 0
}

// changed takes the news that a status differs from the status before beside its phases: Watch gets
// a PodSync. Without a reason of the agent's own, the runtime has changed the content without an
// event. Stream is when the present stream was connected; zero while the stream is down.
func (k *book[S]) changed(in contentChange, stream, now instant) {
	p := k.pods[in.uid]
	if p == nil {
		return
	}
	k.out.sync(p, now)
	if in.excused {
		return
	}
	k.out.add(countContentChanges, 1)
	k.trust.note(discovery{
		of:      p,
		content: true,
		since:   in.since,
		stream:  stream,
	}, now)
}

// settle judges the changes found by reads, and reports whether the stream is mute and is to be
// ended. Stream is when the present stream was connected; zero while the stream is down.
func (k *book[S]) settle(stream, now instant) (mute bool) {
	v := k.trust.settle(stream, now)
	for _, e := range v.settled {
		if e.phase == PhaseRemoved {
			k.judged(e.of.(*item))
		}
	}
	k.out.missed(&v)
	for _, r := range v.reports {
		k.out.paced(r, now)
	}
	return v.mute
}

// prune bounds the memory of gone pods and IDs. Reads are the begins of the reads that may still
// show them.
func (k *book[S]) prune(reads pruning, now instant) {
	if k.deleted {
		k.deleted = reads.oldest < now
		k.floor = max(k.floor, reads.oldest)
		k.out.do(action[S]{kind: actPrune, at: reads.oldest})
	}
	k.records.prune(now)
	k.evidence.prune(reads)
	k.out.do(action[S]{kind: actDropOldest, n: int32(k.cfg.OwedMax)})
}
