// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// peeks are the looks at pods while lists, or reads of pods, do not answer. A hung container can
// hang every list of a runtime, of everything and of a single pod, although the runtime still
// answers for the status of any other ID. And a read whose items all hang waits for them until its
// time limit. So known IDs, and IDs named by events, own calls and lists since the read began, are
// read one at a time.
//
// A peek is like the payload of an event: its phases are true, and a peek cannot show an ID that
// nobody has named. So a peek moves phases forward, and makes nothing fresh: the entry keeps its
// time and its error, and waiters wait. Lists and reads of pods go on beside the peeks, and decide
// once they answer.
type peeks struct {
	// of are the pods that are looked at, or were since lists last answered. Nil: there are no
	// peeks.
	of map[cache.UID]*peeking

	// later has the pods whose peek is due at a time.
	later agenda[*peeking]

	// lane has the pods whose peek is due, and the workers.
	lane lane[*peeking]

	// down reports whether lists did not answer at the last tick, and silent whether that was so of the
	// reads of pods.
	down, silent bool

	// global is the cache's global time when all peeks were last looked through for those that are
	// over.
	global instant

	// polled is when all pods were last given a peek, or lists ceased to answer while a stream
	// reports changes.
	polled instant

	// lasted is how long the longest of the recent lists of everything lasted.
	lasted recent
}

func newPeeks(workers int) peeks {
	k := peeks{of: make(map[cache.UID]*peeking)}
	k.lane.workers = workers
	return k
}

// peeking is a pod that is looked at while lists do not answer.
type peeking struct {
	uid cache.UID

	// told is when the latest report came that a peek has been made for, or is due for; zero if none
	// is.
	told instant

	// at is when the next peek is due; never if none is.
	at instant

	// queued reports whether the pod is in the lane, and began is the begin of the peek under way;
	// zero if there is none.
	queued bool
	began  instant

	// held reports whether the next peek waits for the read under way, which decides: see
	// peeks.holds.
	held bool

	// gave is since when the peeks of the pod give way to reads; zero if the last one did not.
	gave instant

	// retold is what was told during the peek under way, and was no news.
	retold retold

	// asked are the IDs of the peek under way, and listed those that the last list had shown at its
	// begin. If its status cannot be read, an item stands as asked for, and a list has told how.
	asked, listed idSet

	// looked is the end of the last peek that was applied; zero if none was. An ordinary read or
	// list begun earlier may have looked earlier, and show less.
	looked instant

	// from is the begin of that peek.
	from instant

	// read are the IDs of that look: those with a status, and those asked for and found gone.
	read idSet

	// shown is the end of the last peek that has shown a status, whatever became of it.
	shown instant

	// past is the begin of the last list that shows nothing more than peeks have asked for since: what
	// they have not shown is gone.
	past instant

	// stored is when a read or a payload last brought a status of the pod; zero if none did. A peek
	// begun earlier may have looked earlier.
	stored instant

	// left are IDs named by events whose status could not be read: they are left out until there is
	// other news of the pod. Beside an ID no list has shown, the others could not be stored.
	left map[string]bool

	// retry delays the peeks of a pod after one that has failed, or does not show the reported phases.
	// A peek that is the first to miss an ID is followed soon all the same.
	retry ladder

	// failed reports whether the last peek that is made again has failed.
	failed bool
}

const (
	// peekAfter is the least age of a list that does not answer. A slow list is not hung: see
	// peeks.patience.
	peekAfter = 2 * time.Second

	// peekFactor is the age of a list or read that does not answer, as a multiple of the longest
	// recent one.
	peekFactor = 4

	// peekPoll is the time between two peeks of a pod of which nothing is told. What hangs lists may
	// hang the events too: containerd 1.7 sends none of any container while one shim hangs
	// (containerd/containerd#9770).
	peekPoll = 10 * time.Second
)

// expects reports whether an event or an own call has told of an ID.
func (p *pod) expects(id string) bool {
	return p.expected.get(id, CauseClaim) != nil || p.expected.get(id, CauseAck) != nil
}

// patience returns the age from which on a list, or the reads of pods, begun at the given time, are
// taken not to answer.
func (k *peeks) patience(reads *limiter, began instant) time.Duration {
	return max(peekAfter, peekFactor*max(k.lasted.asOf(began), reads.longest(began)))
}

// listed notes how long a list that succeeded has lasted, until now. A list that was taken not to
// answer may have been slow, or may have hung: such a list doubles the patience at the most.
func (k *peeks) listed(took, patience time.Duration, now instant) {
	k.lasted.add(min(took, 2*patience/peekFactor), now)
}

// ensure returns the record of a pod.
func (k *peeks) ensure(uid cache.UID) *peeking {
	x := k.of[uid]
	if x == nil {
		x = &peeking{uid: uid, at: never}
		k.of[uid] = x
	}
	return x
}

// looked returns the end of the last peek that was applied to a pod; zero if none was.
func (k *peeks) looked(uid cache.UID) instant {
	if x := k.of[uid]; x != nil {
		return x.looked
	}
	return 0
}

// past returns the begin of the last list that shows nothing more than peeks have asked for since;
// zero if there is none.
func (k *peeks) past(uid cache.UID) instant {
	if x := k.of[uid]; x != nil {
		return x.past
	}
	return 0
}

// outdates reports whether a read shows an ID otherwise than the last peek that was applied has
// read it. What the peek could not read stands as before, and says nothing against the read.
func (k *peeks) outdates(known *records, p *pod, shows []Item) bool {
	x := k.of[p.uid]
	if x == nil {
		return false
	}
	for _, id := range without(x.read.items, shows) {
		if known.find(p, 0, id) != nil {
			return true
		}
	}
	for i, it := range shows {
		y := known.find(p, i, it.ID)
		if x.read.has(it.ID) && (y == nil || y.shown != it.Phase) {
			return true
		}
	}
	return false
}

// hides reports whether a read is left out because it may have looked earlier than the last peek
// that was applied: of such reads in a row the second decides. A read that shows the same phases is
// covered if the peek began later and could read the same items: then what the cache shows of them
// is newer.
func (k *peeks) hides(known *records, p *pod, r *look, f *flight, shows []Item) (hides, covered bool) {
	x := k.of[p.uid]
	if x == nil || r.began > x.looked {
		return false, false
	}
	if known.matches(p, shows) {
		other := func(it Item) bool { return x.read.has(it.ID) == r.unread.has(it.ID) }
		reads := r.err == nil || len(r.readable()) > 0
		covered = reads && f.started <= x.from && !slices.ContainsFunc(shows, other)
		if covered || f.started > x.looked {
			return false, covered
		}
	}
	return !p.crossed || k.outdates(known, p, shows), false
}

// looksAt returns the items the peek under way has looked at, with what it shows.
func (x *peeking) looksAt(r *look) []Item {
	items := slices.DeleteFunc(slices.Clone(x.asked.items),
		func(it Item) bool { return r.unread.has(it.ID) })
	for _, it := range r.readable() {
		if !x.asked.has(it.ID) {
			items = append(items, it)
		}
	}
	return items
}

// brought notes that a read or a payload has brought a status of a pod.
func (k *peeks) brought(uid cache.UID, now instant) {
	if x := k.of[uid]; x != nil {
		x.stored = now
	}
}

// oldest returns the begin of the oldest peek under way; never if there is none.
func (k *peeks) oldest() instant {
	if len(k.lane.begins) == 0 {
		return never
	}
	return k.lane.begins[0]
}

// wants has a pod looked at at a time, or earlier if that is due already.
func (k *peeks) wants(x *peeking, at instant) {
	if at >= x.at {
		return
	}
	x.at = at
	if x.waits() {
		k.later.enter(at, x)
	}
}

// waits reports whether the next peek, if any is due, waits for its time: none is in the lane or
// under way.
func (x *peeking) waits() bool { return !x.queued && x.began == 0 }

// enqueue puts the peeks that are due into the lane, in the order in which they came to be due.
func (k *peeks) enqueue(now instant) {
	var due []*peeking
	for k.later.next() <= now {
		e := k.later.take()
		if x := e.of; e.at == x.at && x.waits() {
			x.queued = true
			due = append(due, x)
		}
	}
	slices.SortFunc(due, func(a, b *peeking) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.uid, b.uid))
	})
	for _, x := range due {
		k.lane.push(waiter[*peeking]{pod: x, since: x.at})
	}
}

// stood notes that the generator has stood still until now.
func (k *peeks) stood(now instant) { k.lane.stood(now) }

// failAt returns when what has been awaited since the given time, a list or a read, is taken not to
// answer; never if nothing is awaited.
func (k *peeks) failAt(since instant, reads *limiter) instant {
	if since == never {
		return never
	}
	return since.add(k.patience(reads, since))
}

// deadline returns when there is something to do next. After is the time of the last look.
func (k *peeks) deadline(l *lists, r *reads, after instant) instant {
	if k.of == nil {
		return never
	}
	at := min(k.later.next(), k.lane.next(after))
	if !k.down {
		reads := r.first()
		return min(at, k.failAt(l.awaited(), reads), k.failAt(reads.silent(), reads))
	}
	return min(at, k.polled.add(peekPoll))
}

// blind reports whether lists of everything, or the last list of the pod, did not answer.
func (k *peeks) blind(p *pod) bool {
	return k.down || p.entry == failedEntry
}

// precede returns when a read of a pod may begin that is due at the given time: after the last peek
// that was applied, or the read might show less and would be discarded.
func (k *peeks) precede(uid cache.UID, due instant) instant {
	if due == never {
		return never
	}
	return max(due, k.looked(uid).next())
}

// holds returns until when a peek of a pod gives way to the read under way; zero if it need not.
// After a read that was left out the next decides. If a peek was applied meanwhile, the read could
// show older content of an item than the peek, and be the only look at another. A hanging read
// holds no peek, and reads in a row do not hold a peek for longer.
func (k *peeks) holds(x *peeking, p *pod, r *reads) instant {
	f := r.inflight[p]
	if !p.crossed || f == nil || f.started <= x.looked {
		return 0
	}
	until := f.started.add(peekAfter)
	if x.gave != 0 {
		until = min(until, x.gave.add(peekAfter))
	}
	return until
}

// hold has the next peek of a pod wait for the read under way, until the given time at the latest.
func (k *peeks) hold(x *peeking, until, now instant) {
	x.held = true
	if x.gave == 0 {
		x.gave = now
	}
	k.wants(x, until)
}

// release has the peek of a pod that waited for a read made now, as the read has ended.
func (k *peeks) release(uid cache.UID, now instant) {
	if x := k.of[uid]; x != nil && x.held {
		x.held = false
		k.wants(x, now)
	}
}

// asksFor returns the items of a pod in the last list as far as peeks ask for them. What lists show
// is left to the ordinary read, unless that has failed, or hangs since before: on a slow runtime,
// two reads of each pod would make all of them slower.
func (k *peeks) asksFor(p *pod, r *reads) []Item {
	listed := p.listedSince()
	if len(listed) == 0 || p.diff.at <= k.past(p.uid) {
		return nil
	}
	if p.entry == failedEntry || k.silent && r.startedBefore(p, p.diff.first) {
		return listed
	}
	return nil
}

// consider has a pod looked at if an event, a call of the agent's own or the last list has told
// something of the pod that no read could show since. New reports are looked at once.
func (k *peeks) consider(p *pod, r *reads, now instant) {
	if k.of == nil || p.foreign || !k.blind(p) {
		return
	}
	last := p.lastReport()
	if len(k.asksFor(p, r)) > 0 {
		last = max(last, p.diff.first)
	}
	if last == 0 {
		return
	}
	x := k.ensure(p.uid)
	if last > x.told {
		x.told = last
		x.left = nil
		x.retry = ladder{}
		k.wants(x, now)
	}
}

// poll gives each pod a peek, if the peeks are due, spread over the time to the next peeks. An open
// stream is no promise that anything is told.
func (k *peeks) poll(all map[cache.UID]*pod, now instant) {
	if now < k.polled.add(peekPoll) {
		return
	}
	k.polled = now
	pods := make([]*pod, 0, len(all))
	for _, p := range all {
		if len(p.items) > 0 && !p.foreign {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, byUID)
	for i, p := range pods {
		turn := time.Duration(i) * peekPoll / time.Duration(len(pods))
		k.wants(k.ensure(p.uid), now.add(turn).next())
	}
}

// next removes the next pod whose peek may begin from the lane; nil if there is none.
func (k *peeks) next(now instant) *peeking {
	k.enqueue(now)
	if !k.lane.may(now) {
		return nil
	}
	x := k.lane.take(now)
	x.queued = false
	x.held = false
	x.at = never
	return x
}

// begin notes that a peek begins, which asks for the given items, some of which lists have shown.
func (k *peeks) begin(x *peeking, asked, listed []Item, now instant) {
	x.asked = setOfItems(asked)
	x.listed = setOfItems(listed)
	x.began = now
	k.lane.begin(now)
}

// end notes that a peek has ended.
func (k *peeks) end(x *peeking, well bool, now instant) {
	k.lane.end(x.began, well, now)
	x.began = 0
	if x.at != never { // came to be due meanwhile
		k.later.enter(x.at, x)
	}
}

// again has a pod looked at once more, after a delay that grows.
func (k *peeks) again(x *peeking, failed bool, peek span, cfg *limits) {
	if failed != x.failed {
		x.retry.turns(cfg.RetryBase)
	}
	x.failed = failed
	k.wants(x, x.retry.climb(peek, cfg.RereadBase, peekPoll))
}

// over reports whether a pod needs no peeks any more: the pod is forgotten, or lists answer again,
// and a look has confirmed the peeks.
func (k *peeks) over(x *peeking, p *pod, l *lists, r *reads) bool {
	switch {
	case !x.waits():
		return false
	case p == nil:
		return true
	case p.reading && r.since(p) <= x.shown:
		return false // the read may have looked earlier
	}
	return !k.down && !p.failed() && l.asOf(p) >= x.looked
}

// leave forgets the peeks of a pod if they are over. P is the pod's record; nil if there is none.
func (k *peeks) leave(x *peeking, p *pod, l *lists, r *reads) {
	if k.over(x, p, l, r) {
		x.at = never
		delete(k.of, x.uid)
	}
}

// passes notes that a peek agrees with the record of a pod. A list that ended before the peek began
// shows nothing more, if the peek has asked for all that the list shows.
func (x *peeking) passes(p *pod, began instant, l *lists) {
	if !p.differs() || began <= l.appliedAt {
		return
	}
	for _, it := range p.diff.shows.items {
		if it.valid() && !x.asked.has(it.ID) {
			return
		}
	}
	x.past = p.diff.at
}

// peekVerdict is what becomes of a peek.
type peekVerdict uint8

const (
	peekDropped peekVerdict = iota // it shows nothing new, or may not be believed
	peekAgain                      // another is due
	peekStands                     // it becomes the state of the pod
)

// judge decides the use of a peek with a status of a pod. A peek that shows less than is known came
// too early, or too late: no peek takes anything back. Reading is the begin of the read of the pod
// under way; zero if there is none.
func (x *peeking) judge(known *records, p *pod, r *look, at span, reading instant) peekVerdict {
	if r.began <= x.stored {
		return peekAgain // what a read or a payload has brought since may be newer
	}
	before := len(x.left)
	for _, id := range r.unread.ids {
		if known.find(p, 0, id) == nil && !x.listed.has(id) {
			if x.left == nil {
				x.left = make(map[string]bool)
			}
			x.left[id] = true
		}
	}
	if len(x.left) > before {
		return peekAgain
	}
	for _, y := range p.items {
		if !x.asked.has(y.id) {
			return peekAgain // shown since
		}
	}
	shows := r.shows.Items
	for i, it := range shows {
		y := known.find(p, i, it.ID)
		switch {
		case !it.valid():
		case y == nil && x.asked.has(it.ID) && !p.expects(it.ID) && !x.listed.has(it.ID):
			return peekAgain // gone since; what the runtime shows unasked is news
		case y != nil && it.Phase < y.phase && it.Phase != PhaseUnknown:
			return peekDropped
		}
	}
	switch {
	case known.doubt(p, shows, nil, at):
		return peekAgain
	case p.doubted() && reading != 0 && at.ended < reading.add(peekAfter):
		return peekAgain // the read, which does not hang yet, may show what two looks have missed
	case r.err == nil && known.matches(p, shows) && !p.conceals():
		return peekDropped
	case p.entry == noEntry && len(shows) == 0:
		return peekDropped
	}
	return peekStands
}

// tickPeeks follows whether lists answer, and starts the peeks that are due.
func (c *core[S]) tickPeeks(now instant) {
	k := &c.peeks
	if k.of == nil {
		return
	}
	was := k.down
	reads := c.reads.first()
	k.silent = now >= k.failAt(reads.silent(), reads) // lists of pods hang as those of everything do
	k.down = c.lists.err != nil || k.silent || now >= k.failAt(c.lists.awaited(), reads)
	if k.down && !was {
		for _, p := range inOrder(c.reads.dirty) {
			k.consider(p, &c.reads, now)
		}
		if c.stream.up() {
			k.polled = now // slow lists are no reason to look at every pod
		}
	}
	if k.down {
		k.poll(c.pods, now)
	}
	for x := k.next(now); x != nil; x = k.next(now) {
		p := c.pods[x.uid]
		if p == nil || !k.blind(p) {
			x.told = 0 // lists answer: if they cease to before they have shown it, it is looked at anew
			x.gave = 0
			k.leave(x, p, &c.lists, &c.reads)
			continue
		}
		until := k.holds(x, p, &c.reads)
		if until > now {
			k.hold(x, until, now)
			continue
		}
		listed := k.asksFor(p, &c.reads)
		asked := c.named(p, listed, x.left)
		if len(asked) == 0 || p.foreign {
			x.gave = 0
			continue
		}
		k.begin(x, asked, listed, now)
		c.out.peek(p, asked, now)
	}
	if was && !k.down || k.global < c.lists.global {
		k.global = c.lists.global
		for uid, x := range k.of {
			k.leave(x, c.pods[uid], &c.lists, &c.reads)
		}
	}
}

// onPeeked applies a peek.
func (c *core[S]) onPeeked(r *inspected[S], now instant) {
	x := c.peeks.of[r.uid]
	c.peeks.end(x, r.err == nil, now)
	p := c.pods[r.uid]
	if p == nil {
		c.peeks.leave(x, nil, &c.lists, &c.reads)
		return
	}
	p.rename(r.shows.Name, r.shows.Namespace)
	c.sighted(p, r.readable(), nil)
	verdict := peekDropped
	doubted := p.doubted()
	if r.status != nil {
		x.shown = now
		confirmed := !p.failed() && r.began < c.lists.asOf(p) // by a look that began later
		until := c.peeks.holds(x, p, &c.reads)
		switch {
		case p.foreign || confirmed:
		case until > now:
			c.peeks.hold(x, until, now)
		default:
			verdict = x.judge(&c.records, p, &r.look, span{r.began, now}, c.reads.since(p))
		}
	}
	if verdict == peekStands {
		c.storePeek(p, x, r, now)
		items, began := c.lists.last(p)
		c.evidence.disprove(&c.records, p, items, began) // of IDs that the record has from the list
	}
	if r.status != nil && c.matches(p, r.shows.Items) {
		x.passes(p, r.began, &c.lists)
	}
	c.refuted(c.evidence.overrule(&c.records, p, r.readable(), r.began))
	c.retell(p, x.retold, now)
	x.retold = nil
	x.asked = idSet{}
	x.listed = idSet{}
	if !x.held {
		x.gave = 0
	}
	if verdict == peekAgain || p.unmet() {
		c.peeks.again(x, r.status == nil, span{r.began, now}, &c.cfg)
	}
	switch {
	case !p.doubted():
	case !doubted:
		c.peeks.wants(x, now.add(c.cfg.RereadBase)) // one more look decides, however rare they have become
	case p.reading:
		if hung := c.reads.since(p).add(peekAfter); now < hung { // the read under way, from then on
			c.peeks.wants(x, hung)
		}
	}
	c.see(p, r.readable(), nil, now)
	c.review(p, now)
}

// storePeek makes a peek the state of the pod. The entry keeps its time, and an error of its own.
func (c *core[S]) storePeek(p *pod, x *peeking, r *inspected[S], now instant) {
	if at := c.out.clock.instant(c.cache.AsOf(p.uid)); p.entry == noEntry && at >= firstInstant {
		p.asOf = max(p.asOf, at) // an earlier record of the pod may be forgotten
	}
	err := r.err
	beside := err == nil && p.failed()
	if beside {
		_, err = c.cache.Get(p.uid)
	}
	x.looked = now
	x.from = r.began
	x.read = setOfItems(x.looksAt(&r.look))
	under := c.reads.inflight[p]
	c.store(p, reading[S]{
		status:  r.status,
		items:   r.shows.Items,
		unread:  r.unread,
		err:     err,
		beside:  beside,
		looked:  r.began,
		before:  p.read,
		excused: p.excusable() || under != nil && under.excused,
	}, now)
	p.owesRead(&c.cfg, now)
	for i := range p.expected.all {
		e := &p.expected.all[i]
		y := c.find(p, 0, e.id)
		if y == nil {
			e.stored = e.stored || e.phase == PhaseRemoved
			continue
		}
		if y.shown != PhaseUnknown && y.shown >= e.phase && !r.unread.has(e.id) {
			e.stored = true
		}
	}
}

// withoutLists says, for a report, what is known of the runtime while lists do not answer. Up
// reports whether a stream reports changes.
func withoutLists(up bool) string {
	known := fmt.Sprintf("until one is, known containers are read one by one, each every %v, and new ones are not seen",
		peekPoll)
	if up {
		return known + " unless events name them"
	}
	return known
}

// lastReport returns when the latest report came that calls for a read of the pod; zero if none
// does.
func (p *pod) lastReport() (at instant) {
	for i := range p.expected.all {
		if e := &p.expected.all[i]; !e.stored {
			at = max(at, e.last())
		}
	}
	return at
}

// check reports each violated invariant of the room: each peek that waits or is under way is in the
// lane, and nothing else is; each that is due later is made; and no pod is remembered for nothing.
func (k *peeks) check(check checker, over func(*peeking) bool, now instant) {
	queued := 0
	under := 0
	later := make(map[*peeking]bool)
	for _, e := range k.later {
		later[e.of] = later[e.of] || e.at == e.of.at
	}
	for uid, x := range k.of {
		check(!over(x), "pod %q needs no peeks, and is not forgotten: %+v", uid, *x)
		check(!x.waits() || later[x] == (x.at != never),
			"a peek of pod %q is due, and nobody will make it: %+v", uid, *x)
		check(uid == x.uid, "the peeks of pod %q are filed under %q", x.uid, uid)
		check(!x.held || x.gave != 0 && (x.queued || x.at != never),
			"a peek of pod %q waits for a read, and nobody will make it: %+v", uid, *x)
		check(!x.queued || x.began == 0, "a peek of pod %q waits beside another", uid)
		check(max(x.began, x.looked, x.shown, x.stored, x.told, x.gave) <= now,
			"the peeks of pod %q have an instant in the future: %+v", uid, *x)
		if x.queued {
			queued++
		}
		if x.began != 0 {
			under++
		}
	}
	for _, w := range k.lane.waiting {
		check(k.of[w.pod.uid] == w.pod && w.pod.queued,
			"pod %q waits for a peek against its record", w.pod.uid)
	}
	check(queued == len(k.lane.waiting),
		"%d peeks wait, %d of them in the lane", queued, len(k.lane.waiting))
	check(under == len(k.lane.begins),
		"%d peeks under way, %d of them limited", under, len(k.lane.begins))
}
