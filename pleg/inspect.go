// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"

	"github.com/evented-pleg/evented-pleg/cache"
)

// look is what a read of a pod, or a peek, has shown, its status apart.
type look struct {
	uid     cache.UID
	began   instant
	listing *Pod  // the result of ListPod in this read; nil if there was none, or it failed
	shows   Pod   // what the status shows, and the items in unread
	unread  idSet // the IDs whose status could not be read, in shows at the phase asked for
	err     error
}

// inspected is the result of a read of a pod, or of a peek.
type inspected[S any] struct {
	look
	status *S // nil if the pod was as in the cache, gone, or the read failed
	peek   bool
}

// inspect starts the read of a pod. The read takes a list that is new enough, or the IDs made by
// the agent, in place of a list of the pod. What the agent has removed need not be read.
func (c *core[S]) inspect(p *pod, lane int, now instant) {
	r := &podRead{ref: p.ref(nil)}
	full := p.needsContent(now) || c.evidence.disputed(&c.records, p, now)
	builds := p.entry == statusEntry && !full && !p.unknown()
	began := now
	var left leftover
	if c.cfg.TellsCalls && c.stream.up() {
		since := heardSince{
			all:    max(c.stream.connected, c.uncertain, c.trust.lastDiscard),
			listed: c.lists.appliedBegan,
		}
		left = c.calls.known(&c.records, p, &c.cfg, since, now)
	}
	if r := remainder(p, &left, c.cache, c.without, now); r != nil {
		c.store(p, *r, now)
		if r.gone() {
			c.resolve(settlement{pod: p, began: now})
		} else {
			p.expected.needNoRead()
			p.unsettles(&c.cfg, p.ended())
		}
		c.review(p, now)
		return
	}
	listed, at := c.lists.standsIn(p, full, c.floor)
	switch {
	case len(listed) > 0:
		r.listed = true
		r.ref.Items = listed
		r.builds = builds
		began = at
	case len(left.known) > 0:
		r.listed = true
		r.ref.Items = left.known
	case builds:
		r.builds = true
		r.have = p.shownItems()
	}
	if p.force != 0 {
		p.forced = now
	}
	c.reads.begin(p, &flight{
		began:   began,
		started: now,
		lane:    lane,
		full:    !r.builds,
		excused: p.excusable(),
		before:  p.read,
		agreed:  c.lists.lastRead(p),
		listed:  listed,
	})
	c.out.add(countInspections, 1)
	c.out.do(action[S]{
		kind: actInspect,
		uid:  p.uid,
		at:   began,
		read: r,
	})
}

// onInspected applies a read of a pod.
func (c *core[S]) onInspected(r *inspected[S], now instant) {
	p := c.ensure(r.uid)
	f := c.reads.end(p, r.err == nil, now)
	c.peeks.release(p.uid, now)
	news := p.takeNews()
	shows := r.shows.Items
	if r.listing != nil {
		p.rename(r.listing.Name, r.listing.Namespace)
		if r.status == nil {
			shows = r.listing.Items
		}
		c.sighted(p, r.listing.Items, p.ghosts) // the statuses may not show what the listing has shown
		f.listed = r.listing.Items
	}
	shows = c.unhaunted(p, r, f.listed, shows)
	first, last := c.contradicts(p, shows)
	if !p.outrun || p.content == 0 { // else the read decides: see core.offer
		last = max(last, f.retold.outruns(shows))
	}
	matches := func() bool { return c.matches(p, shows) } // asked of few reads: a pass over the items
	saysAsCached := r.err == nil && r.status == nil && len(shows) > 0
	overtaken := r.began < c.lists.asOf(p) || r.began <= last || saysAsCached && !matches()
	olderContent := f.crossed && first == 0 && r.status != nil && !matches() // it may be: see reads.cross
	premature := first != 0 && r.began <= first.add(c.cfg.Grace)
	peeked, covered := c.peeks.hides(&c.records, p, &r.look, f, shows)
	if covered && r.status != nil {
		r.status, _ = c.cache.Get(p.uid) // each part is newer
	}
	nothing := r.err != nil && (len(shows) == 0 || overtaken && matches()) // that is new
	c.noteEnd(p, &r.look, nothing && r.status == nil, c.lists.asOf(p))
	switch {
	case nothing:
		p.delayFailed(&c.cfg, span{r.began, now}, f.took)
		if news && p.expected.unmetSince(r.began) { // not for what was only told again
			p.triesAgain(&c.cfg, now)
		}
		c.fail(p, &r.look, c.lists.asOf(p), now)
	case peeked:
		p.leaveOut(now) // the peek may have looked later, and is no whole look
	case f.crossed && r.err != nil: // the items read may be older than the payload
		p.leaveOut(now)
	case overtaken: // by a list, a payload, or an event
		c.overtaken(p, r, f, shows, last, now)
	case olderContent:
		p.leaveOut(now)
	case premature: // a claim is believed for a grace
		p.believe(&c.cfg, span{r.began, now}, first.add(c.cfg.Grace).next())
	case c.doubt(p, shows, nil, span{r.began, now}): // one more look
		p.lookFrom(now)
	default:
		c.applyRead(p, r, f, shows, now)
	}
	if (r.err == nil || r.status != nil) && f.outdated(func(id string) bool { return c.find(p, 0, id) != nil }) {
		p.lookAnew(now)
	}
	if f.lapped && r.err == nil && p.differs() { // either may have looked last
		p.lookFrom(now)
	}
	if f.full { // else some items may be as a list has shown them
		c.refuted(c.evidence.overrule(&c.records, p, r.readable(), r.began))
	}
	c.evidence.disprove(&c.records, p, r.readable(), r.began)
	c.retell(p, f.retold, now)
	if r.listing != nil {
		c.evidence.disprove(&c.records, p, r.listing.Items, r.began) // also of IDs that are new
		c.see(p, r.listing.Items, p.ghosts, now)
	}
	c.see(p, r.readable(), nil, now)
	c.review(p, now)
}

// unhaunted notes which items lists show, and statuses do not, and returns what a read shows
// without them. Listed is by the list of the read; nil if there was none.
func (k *book[S]) unhaunted(p *pod, r *inspected[S], listed, shows []Item) []Item {
	switch {
	case listed != nil && r.status != nil:
		p.ghosts = ghostsListed(without(listed, shows))
	case listed == nil && r.status != nil: // by ID
		p.ghosts = p.ghosts.readByID(k.lacking(p, shows, r.began))
	case listed != nil && r.err == nil:
		p.ghosts = nil // the listing shows what the statuses have shown
	case r.status == nil && p.ghosts.any(): // a list alone does not bring back what statuses have not shown
		shows = slices.DeleteFunc(slices.Clone(shows), func(it Item) bool {
			return p.ghosts.has(it.ID) &&
				k.find(p, 0, it.ID) == nil &&
				!p.expects(it.ID)
		})
	}
	return shows
}

// readable returns the items whose status was read.
func (r *look) readable() []Item {
	if len(r.unread.ids) == 0 {
		return r.shows.Items
	}
	return slices.DeleteFunc(slices.Clone(r.shows.Items), func(it Item) bool {
		return r.unread.has(it.ID)
	})
}

// applyRead makes a read the state of the pod, or the part of the pod that could be read, beside
// the error of the rest. Unread IDs stand as a list has shown them.
func (c *core[S]) applyRead(p *pod, r *inspected[S], f *flight, shows []Item, now instant) {
	read := reading[S]{
		status:  r.status,
		items:   shows,
		unread:  r.unread,
		err:     r.err,
		began:   r.began,
		before:  f.before,
		agreed:  f.agreed,
		excused: f.excused,
	}
	p.crossed = f.crossed && r.status != nil
	p.decided()
	if p.failed() && r.err == nil || p.entry == failedEntry { // it yields more than the reads before
		p.turnsBackOff(&c.cfg)
	}
	switch {
	case r.err != nil:
		p.read = max(p.read, r.began)
		c.store(p, read, now)
	case len(shows) == 0: // gone
		c.store(p, reading[S]{began: r.began, agreed: f.agreed}, now)
	case r.status != nil && !p.crossed:
		if f.full {
			p.read = max(p.read, r.began)
			p.settled(&c.cfg, f.started)
		}
		c.store(p, read, now)
		p.unsettles(&c.cfg, p.ended())
	default: // as in the cache, or perhaps with older content
		if p.crossed && f.full && c.cfg.EndSettle >= 0 { // the payload has a look of its own
			p.settled(&c.cfg, f.started)
		}
		c.out.observe(p.uid, r.began)
		p.confirm(r.began)
	}
	c.conclude(p, r, f, now)
}

// overtaken applies a read of a pod whose phases are known from later. If the read shows the same
// phases, its statuses are still news; else the pod is read again.
//
// Last is when the last event came that contradicts the read; zero if none does.
func (c *core[S]) overtaken(p *pod, r *inspected[S], f *flight, shows []Item, last, now instant) {
	if !c.matches(p, shows) {
		p.outrunBy(last, r.began)
		p.lookFrom(now)
		return
	}
	p.decided()
	c.sighted(p, shows, nil)
	if r.status != nil && f.full &&
		r.began > p.read && p.entry == statusEntry {
		p.crossed = f.crossed
		if !p.crossed {
			p.read = r.began
			p.settled(&c.cfg, f.started)
			c.peeks.brought(p.uid, now)
			kept := reading[S]{
				status:  r.status,
				before:  f.before,
				excused: f.excused,
			}
			c.out.keep(p, kept, c.lists.asOf(p))
		}
	}
	if r.status == nil {
		p.delay(&c.cfg, span{r.began, now})
		return
	}
	c.conclude(p, r, f, now)
}

// conclude ends a read that is, or agrees with, the state of the pod: what it has met or refuted of
// the pod's reports is dropped, and the next read has a delay.
func (c *core[S]) conclude(p *pod, r *inspected[S], f *flight, now instant) {
	c.resolve(settlement{pod: p, began: r.began, unread: &r.unread})
	if r.err == nil {
		p.delay(&c.cfg, span{r.began, now})
		return
	}
	left := &r.unread
	if r.listing == nil {
		left = nil // nothing has looked at these
	}
	if p.expected.unmetBeside(left, r.began) { // what can be read is read as soon as of any other pod
		p.backOff(&c.cfg, span{r.began, now})
		return
	}
	p.delayFailed(&c.cfg, span{r.began, now}, f.took)
}
