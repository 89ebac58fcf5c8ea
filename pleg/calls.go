// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"slices"

	"github.com/evented-pleg/evented-pleg/cache"
)

// calls is the room of the agent's own calls: which are under way, and what they may have made. The
// room knows whether the statuses of known IDs are a complete read of a pod.
type calls struct {
	// under are the calls under way whose pod is known, by serial number. Begin adds a call, and end
	// drops it. The counts of the pods add up to their number, as check holds.
	under map[uint64]*pod

	// untracked reports whether a call is under way that found no room. Only core.onAcks writes
	// untracked, of what the box of the calls says. Meanwhile no pod is read by its known IDs.
	untracked bool
}

func newCalls() calls { return calls{under: make(map[uint64]*pod)} }

// own is the agent's work on a pod. Only calls.begin and calls.end write own.
type own struct {
	// calls is the number of calls under way, creating of those among them that make an ID. Calls is
	// the number of entries of calls.under with the pod, and the sum of creating and the length of
	// about.
	calls    int32
	creating int32

	// about are the IDs that the other calls name, once for each call, in the order of their begins.
	about []string

	// called is when a call last ended, by the agent's report; zero before the first. It is not in the
	// future, and stays when the entry changes.
	called instant `prove:"-"`

	// unlisted is until when IDs may have been made that no read has shown: a call that makes an ID
	// has failed, or did not name the ID. The time may be in the future, and never goes back; a list
	// begun later shows the IDs. A pod that is forgotten leaves the time to book.uncertain.
	unlisted instant `prove:"timers"`
}

// calling reports whether a call is under way.
func (o *own) calling() bool { return o.calls > 0 }

// burst is the agent's own calls in a pod, as far as reads wait for their end.
type burst struct {
	// goesOn reports whether the burst is not over: a call is under way, or the agent has made a
	// sandbox a moment ago, and not yet a container in it. The work before the first container takes
	// a loaded node longer than the pauses between other calls. Reads may be slow, and show the
	// sandbox long after: then nothing waits for its container any more.
	goesOn bool

	// ends reports whether all that calls for a read is what the agent itself has ended. Its worker
	// asks when it needs to know, and the event of a removal, which often comes after the call,
	// spares the read.
	ends bool

	// others is when the first report came that none of the calls explains; never if none has.
	others instant
}

// burstMost bounds the reports of a pod that are looked at singly, with each further report: no
// burst of calls has so many.
const burstMost = 64

// ownBurst returns the agent's own calls in the pod.
func (p *pod) ownBurst(r *records, cfg *limits, now instant) burst {
	if p.expected.len() > burstMost {
		e := &p.expected.all[0]
		return burst{goesOn: p.calling(), others: cmp.Or(e.first, e.at)}
	}
	b := burst{others: never}
	sandbox := false
	container := false
	begins := false
	var ended instant
	unheard := cfg.unheard(now)
	for i := range p.expected.all {
		e := &p.expected.all[i]
		switch {
		case e.cause == CauseAck:
			begins = begins || e.phase < PhaseExited || e.failed
			if !p.removed(e.id, unheard) { // else no read is needed
				ended = max(ended, e.at)
			}
			container = container || e.kind == Container
			sandbox = sandbox ||
				e.kind == Sandbox && e.phase == PhaseRunning &&
					now < e.at.add(cfg.CallBurst)
		case e.stored, p.origin(r.find(p, 0, e.id), e.id, e.phase, cfg) < changedByOthers:
		default:
			b.others = min(b.others, e.first)
		}
	}
	b.goesOn = p.calling() || sandbox && !container
	alone := b.others == never && p.due <= ended && p.changed == 0 // nothing else calls for a read
	b.ends = ended != 0 && !begins && alone
	return b
}

// holdAnew bounds the delay for the agent's own calls if the status, which has just been stored,
// shows that others have brought about what was taken for the result of a call under way.
func (p *pod) holdAnew(r *records, cfg *limits, now instant) {
	if !p.held(now) {
		return
	}
	if b := p.ownBurst(r, cfg, now); b.others != never {
		p.holdAtMost(b.others.add(cfg.CallWait))
	}
}

// mayHave notes that until a moment IDs may have been made without being shown by a read.
func (o *own) mayHave(until instant) {
	o.unlisted = max(o.unlisted, until)
}

// excusable reports whether a read of the pod may show changed content for a reason of the agent's
// own: a call, a reinspection, the look after an end.
func (p *pod) excusable() bool {
	return p.force != 0 || p.calling() ||
		p.called >= p.read && p.called != 0 ||
		p.settling != 0
}

// begin notes the begin of a call about a pod.
func (k *calls) begin(p *pod, call *ownCall) {
	k.under[call.serial] = p
	p.calls++
	if call.ID == "" {
		p.creating++
	} else {
		p.about = append(p.about, call.ID)
	}
}

// end notes the end of a call about a pod. A call that has failed, or does not name the ID made,
// may have taken effect, or may yet, within the given time.
func (k *calls) end(p *pod, a *ack, late instant) {
	if k.under[a.call.serial] != nil {
		delete(k.under, a.call.serial)
		p.calls--
		if a.call.ID == "" {
			p.creating--
		} else {
			i := slices.Index(p.about, a.call.ID)
			p.about = slices.Delete(p.about, i, i+1)
		}
	}
	p.called = a.at
	if a.call.ID == "" && (a.failed || len(a.items) == 0) {
		p.mayHave(late)
	}
}

// knownIDsMax is the number of IDs of a pod up to which reading each status costs the runtime no
// more than a list.
const knownIDsMax = 8

// leftover is what the agent's own calls have left of a pod.
type leftover struct {
	// known are the items that are left; nil if they are not certain.
	known []Item

	// removed are the IDs in the status that have certainly gone.
	removed []string

	// only reports whether nothing else is reported of the pod.
	only bool
}

// heardSince is from when on the generator knows of everything that was made.
type heardSince struct {
	// all is the moment from which on everything was heard: the stream works, and the agent's calls
	// have told what they do.
	all instant

	// listed is the begin of the last list that was applied.
	listed instant
}

// known returns what is left of a pod. Its items are known if their statuses are a complete read of
// the pod: a list has shown the pod, or that there was none, since everything was heard, and every
// ID made since was made, and reported, by the agent. IDs that have certainly gone are left out:
// see pod.removed. If no other is left of a pod in the cache, the items are empty, and nothing of
// the pod is to be read.
func (k *calls) known(r *records, p *pod, cfg *limits, since heardSince, now instant) (left leftover) {
	switch {
	case p.creating > 0, k.untracked:
		return left
	case p.entry != statusEntry && p.entry != noEntry, !p.explains(r, cfg):
		return left
	case since.listed <= max(since.all, p.unlisted):
		return left
	}
	unheard := cfg.unheard(now)
	left.only = true
	shown := p.shownItems()
	items := shown[:0] // not nil: nothing may be left
	for _, it := range shown {
		if p.removed(it.ID, unheard) {
			left.removed = append(left.removed, it.ID)
			continue
		}
		items = append(items, it)
	}
	for i := range p.expected.all {
		e := &p.expected.all[i]
		left.only = left.only && p.removed(e.id, unheard)
		_, gone := r.gone[e.id]
		switch {
		case r.find(p, 0, e.id) != nil:
		case gone && e.phase < PhaseRemoved:
			return leftover{} // others have removed it meanwhile: a list tells
		case e.cause != CauseAck && p.expected.get(e.id, CauseAck) == nil:
			return leftover{} // made by others, or of another pod
		case e.cause != CauseAck || e.phase == PhaseRemoved:
		case e.failed, e.phase == PhaseExited:
			// Nobody knows its phase, or whether there is such an ID: runtimes stop what they do not have,
			// without an error. A list knows, even if the status cannot be read.
			return leftover{}
		case e.kind == Container && e.name == "":
			return leftover{} // a list has the name, even if the status cannot be read
		default:
			items = append(items, e.item())
		}
	}
	if len(items) > knownIDsMax || len(items) == 0 && p.entry == noEntry {
		return leftover{}
	}
	left.known = items
	return left
}

// origin is who has brought an ID of a pod to the phase a list shows, or an event reports.
type origin uint8

const (
	asBefore        origin = iota // the status shows the same
	ofCall                        // a call of the agent's own that has returned
	ofCallUnderWay                // perhaps
	changedByOthers               // the status shows the ID, or a call has reported it
	madeByOthers
)

// origin returns who has brought an ID to a phase. X is its item in the pod, nil if there is
// none. Runtimes announce, and show, the effect of a call before they answer the call. So, if
// nobody but the agent makes any calls, a call under way may have brought an ID so far, but for
// an end, which comes by itself: a call about the ID, or a call that makes an ID, if nobody has
// named this ID before, or for a sandbox, which lists show before it is ready.
func (p *pod) origin(x *item, id string, phase Phase, cfg *limits) origin {
	own := p.expected.get(id, CauseAck)
	known := x != nil || own != nil
	making := p.creating > 0 &&
		(!known || x != nil && x.kind == Sandbox)
	begins := PhaseUnknown < phase && phase < PhaseExited
	switch {
	case x != nil && x.shown == phase:
		return asBefore
	case own != nil && PhaseUnknown < phase && phase <= own.phase:
		return ofCall
	case cfg.TellsCalls && begins && (making || slices.Contains(p.about, id)):
		return ofCallUnderWay
	case known:
		return changedByOthers
	}
	return madeByOthers
}

// explains reports whether all IDs the last list has shown of the pod are in its status, or
// were made by the agent, or are being made. What others have made, a read by the known IDs would
// not show.
func (p *pod) explains(r *records, cfg *limits) bool {
	if !p.differs() {
		return true
	}
	for i, it := range p.diff.shows.items {
		if it.valid() && p.origin(r.find(p, i, it.ID), it.ID, it.Phase, cfg) == madeByOthers {
			return false
		}
	}
	return true
}

// brings reports whether the agent's own calls have brought about all that the last list shows
// otherwise than the cache does.
func (p *pod) brings(r *records, cfg *limits) bool {
	for i, it := range p.diff.shows.items {
		if p.origin(r.find(p, i, it.ID), it.ID, it.Phase, cfg) >= changedByOthers {
			return false
		}
	}
	return !slices.ContainsFunc(p.items, func(x *item) bool { // has gone without a call
		own := p.expected.get(x.id, CauseAck)
		removed := own != nil && own.phase == PhaseRemoved
		return !removed && !p.diff.shows.has(x.id)
	})
}

// unheard returns the time of the last removals by the agent whose event would have come by now. An
// event is waited for, as it would name a pod of which nothing is remembered; but CRI-O sends none
// of a sandbox's removal.
func (cfg *limits) unheard(now instant) instant { return now.add(-cfg.CallWait) }

// removed reports whether an ID has certainly gone: a call of the agent's own has removed it, and
// the event has come, or the call was not after unheard. What is removed does not come back.
func (p *pod) removed(id string, unheard instant) bool {
	own := p.expected.get(id, CauseAck)
	if own == nil || own.phase != PhaseRemoved {
		return false
	}
	event := p.expected.get(id, CauseClaim)
	return event != nil && event.phase == PhaseRemoved || own.at <= unheard
}

// remainder returns a pod that only removals by the agent have changed: no read can tell more. If
// nothing is left, the pod is gone as of now: none comes back. Else the others are as of their last
// look, as beside the payload of an event, and a read follows if there are other demands. Nil means
// that the pod is to be read.
func remainder[S any](
	p *pod,
	left *leftover,
	statuses *cache.Cache[S],
	without func(status *S, id string) *S,
	now instant,
) *reading[S] {
	switch {
	case left.known == nil:
		return nil
	case len(left.known) == 0:
		return &reading[S]{began: now}
	case without == nil || !left.only || len(left.removed) == 0:
		return nil
	}
	status, _ := statuses.Get(p.uid)
	for _, id := range left.removed {
		if status != nil {
			status = without(status, id)
		}
	}
	if status == nil {
		return nil
	}
	return &reading[S]{
		status:  status,
		items:   left.known,
		excused: true,
	}
}

// removes reports whether a call has removed its object, and changed nothing else.
func (a *ack) removes() bool {
	return !a.failed && len(a.items) > 0 &&
		!slices.ContainsFunc(a.items, func(it Item) bool { return it.Phase != PhaseRemoved })
}

// expectation returns the report of a call about an item, and whether there is a report.
func (a *ack) expectation(it Item) (e expectation, ok bool) {
	ok = it.ID != "" && PhaseUnknown < it.Phase && it.Phase <= PhaseRemoved
	return expectation{
		reportKey: reportKey{it.ID, CauseAck},
		kind:      it.Kind,
		name:      it.Name,
		phase:     it.Phase,
		at:        a.at,
	}, ok
}

// failure returns what the failure of a call reports of the call's ID, and whether it reports
// anything: a failed start ends a container, without an event. A failed removal of a sandbox may
// work later. X is the ID's item in the pod, or of before if the ID has just gone; nil if there is
// none.
func (a *ack) failure(p *pod, x *item) (e expectation, ok bool) {
	id := a.call.ID
	known := cmp.Or(p.expected.get(id, CauseAck), p.expected.get(id, CauseClaim))
	if x != nil && x.kind == Sandbox {
		x.disown()
		return e, false
	}
	return expectation{
		reportKey: reportKey{id, CauseAck},
		phase:     PhaseExited,
		failed:    true,
		at:        a.at,
	}, x != nil || known != nil && known.kind == Container
}

// check reports each violated invariant of the room: its calls are those of the pods.
func (k *calls) check(check checker, pods map[cache.UID]*pod) {
	calls := 0
	for uid, p := range pods {
		if p.creating < 0 || int(p.creating)+len(p.about) != int(p.calls) {
			check(false, "pod %q has other calls than it has: %+v", uid, &p.own)
		}
		calls += int(p.calls)
	}
	check(calls == len(k.under), "%d own calls in pods, %d known", calls, len(k.under))
}

// onAcks applies the agent's reports of its calls.
func (c *core[S]) onAcks(acks []ack, lost lostCalls, now instant) {
	c.calls.untracked = lost.open
	if lost.some { // a list finds the effects of the call; until then no pod is read by its known IDs
		c.out.add(countAcksLost, 1)
		c.mayHave(now)
		c.trust.sched.ask(now)
	}
	for i := range acks {
		a := &acks[i]
		p := c.calls.under[a.call.serial]
		if p == nil {
			p = c.podOf(&a.call, c.reads.dirty)
		}
		if a.returned {
			c.out.add(countAcks, 1)
			c.onReturned(p, a, now)
		} else if p != nil {
			c.calls.begin(p, &a.call)
			if p.held(now) { // one more of the burst
				p.holdFor(&c.cfg, p.ownBurst(&c.records, &c.cfg, now), now)
			}
		}
		if p != nil {
			c.review(p, now)
		}
	}
}

// onReturned applies the end of a call: its pod is read a moment later.
func (c *core[S]) onReturned(p *pod, a *ack, now instant) {
	if p == nil {
		if a.failed || len(a.items) == 0 {
			c.mayHave(a.at)
			c.trust.sched.ask(now)
			c.reads.returnedUnplaced(a.call.ID)
		}
		for _, it := range a.items {
			if e, ok := a.expectation(it); ok {
				c.expectEarly(e, now)
			}
		}
		return
	}
	c.calls.end(p, a, a.at.add(c.cfg.LateCall))
	if a.failed {
		x := c.find(p, 0, a.call.ID)
		was := x
		if g := c.gone[a.call.ID]; x == nil && g.open && g.of.pod == p { // looks may have missed it
			was = g.of
		}
		if e, ok := a.failure(p, was); ok {
			c.expect(p, x, e, now)
		}
	}
	switch {
	case a.failed || len(a.items) == 0: // it may have changed fields
		p.lookAnew(now)
	case !a.removes(): // else nothing can be news but the removal
		p.lookAfter(a.at)
	}
	for _, it := range a.items {
		if e, ok := a.expectation(it); ok {
			x := c.find(p, 0, e.id)
			if x == nil && e.phase == PhaseExited && c.evidence.toldRemoved(e.id) {
				continue // runtimes answer well, too, who ends what has gone
			}
			if !c.expect(p, x, e, now) && x != nil {
				noteForLooks(&c.reads, &c.peeks, x, e, c.cfg.Grace)
			}
		}
	}
	p.holdFor(&c.cfg, p.ownBurst(&c.records, &c.cfg, now), now)
}
