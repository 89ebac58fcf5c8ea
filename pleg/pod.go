// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"

	"github.com/evented-pleg/evented-pleg/cache"
)

// pod is the record of a pod. The begin and the end of looks in it are never in the future, as the
// check of records holds.
type pod struct {
	// uid is the key of the pod in records.pods. Records.ensure writes uid, once.
	uid cache.UID

	// name and namespace are for reads, events and people; empty until a report has them. Only rename
	// writes them, of the latest report that has either.
	name, namespace string `prove:"-"`

	// items are the IDs of the last stored status, each once, in the order in which they were
	// first shown. Only records.show writes them. A pod without an entry has none.
	items []*item

	// ready is the number of sandboxes among the items whose phase is PhaseRunning. Only
	// records.tally writes ready, as it moves an item; records.running counts the pods that have any.
	ready int32

	// entry is the kind of the pod's entry in the cache. Only the become methods write it.
	entry entryState

	// foreign reports whether the status in the cache is of an earlier generator: its IDs are not
	// known. Only becomeForeign sets foreign; becomeRead and becomeGone end it. So errors of reads may
	// stand beside a foreign status, and a pod with an entry of its own, or with none, is not foreign.
	foreign bool

	// whole is the sighting of the pod as a whole: seen is the end of the last look that has shown
	// all of its items, or anything of a foreign pod, and doubted of one that has shown nothing of a
	// foreign pod. Core.visit writes seen for a list that agrees, and the methods of sighting the
	// rest, for a foreign pod alone. As a pod becomes foreign, and as a foreign pod is read, whole
	// begins anew; of any other pod doubted is of no meaning.
	whole sighting

	// asOf is the begin of the last look behind the cache entry, unless the global time is later:
	// see lists.asOf. The become methods write asOf with the entry, confirm for a look that agrees,
	// and core.storePeek for an entry that the cache remembers. It never goes back.
	asOf instant `prove:"marks,payloads:ordered,judged:begins"`

	// good is the begin of the last look before the reads of the pod failed; of no meaning while they
	// do not. Only becomeFailed writes good, with the first failure of a row: it is at most asOf.
	good instant `prove:"marks,judged:begins"`

	// unread is the number of items whose status the last read could not get. Only
	// records.countUnread writes unread, as the entry changes: zero unless the pod has failed, and
	// the sum over all pods is records.unreadItems.
	unread int32

	// unshown reports whether no item could be read, and the entry shows none. The next status is told
	// of, too. Only book.tell writes unshown: conceal sets it beside an error without a status, and
	// reveal ends it with the next reading that has one, or that has found the pod gone.
	unshown bool

	// accused reports whether the failure of the last reads was reported: a row of failures is
	// reported once. Only book.noteEnd sets accused. A read that succeeds ends it, and so does an entry
	// without an error.
	accused bool

	// onRota reports whether the pod is on the rota, once. Only the rota writes onRota. A forgotten
	// pod stays there until its turn, or until rota.forgotten removes all of them.
	onRota bool `prove:"-"`

	// expected are the phases reported of the pod and confirmed by no read yet. Only evidence adds and
	// drops any.
	expected expectations

	// ghosts are the IDs that lists show, and of which the last read has shown no status; nil if there
	// are none. Only book.unhaunted writes ghosts, at the end of each read. A read that has got neither
	// a status nor a list leaves them.
	ghosts *ghosts

	// diff is the difference of the last list from the cache; nil while they agree. Only lists
	// writes diff: after each list, and, for the list before, after each reading that is stored.
	diff *difference

	// visited is the begin of the last list that was applied to the pod: a list that names it, or
	// by its silence shows it gone, or as before. Only core.visitAll writes visited,
	// so a pod that a list names twice is compared once.
	visited instant `prove:"marks"`

	// demand is why and when the pod is read.
	demand

	// read is the begin of the last read of all statuses behind the entry, or of a later read that
	// has failed, whole or in part. Core.applyRead, core.overtaken and book.fail write read, which
	// never goes back.
	read instant `prove:"-"`

	// place is where the pod stands among the reads.
	place

	// own is what the agent does to the pod.
	own
}

// entryState is the state of a pod's entry in the cache.
type entryState uint8

const (
	noEntry      entryState = iota
	foreignEntry            // written by an earlier generator
	statusEntry
	failedEntry // the last read failed; a status may stand beside the error
	partEntry   // likewise, and the read has yielded phases all the same, or the status of some items
)

// differs reports whether the last list showed the pod otherwise than the cache does.
func (p *pod) differs() bool { return p.diff != nil }

// listedSince returns the items of the pod in the last list if they differ from the cache and no
// look has succeeded since.
func (p *pod) listedSince() []Item {
	looked := p.asOf
	if p.failed() {
		looked = p.good
	}
	if !p.differs() || p.diff.at <= looked {
		return nil
	}
	return p.diff.shows.items
}

// lane returns the lane of the pod's next read.
func (p *pod) lane() int {
	if p.failed() {
		return laneAgain
	}
	return laneFirst
}

// announced implements subject: no event announces a change of content.
func (p *pod) announced() Phase { return PhaseUnknown }

// busy implements subject.
func (p *pod) busy() bool { return false }

// mistaken implements subject.
func (p *pod) mistaken() bool { return false }

// unmet reports whether an expectation calls for a read.
func (p *pod) unmet() bool { return p.expected.unmet() }

// partial reports whether the last read has yielded something, and not everything.
func (p *pod) partial() bool { return p.entry == partEntry }

// failed reports whether the last read failed, or could not get some items.
func (p *pod) failed() bool { return p.entry == failedEntry || p.entry == partEntry }

// empty reports whether nothing is left to remember of the pod, apart from reads that the pod may
// need.
func (p *pod) empty() bool {
	return len(p.items) == 0 && p.expected.len() == 0 && p.entry == noEntry &&
		!p.reading && !p.queued && p.calls == 0 && !p.differs()
}

// becomeForeign: the cache holds an entry that an earlier generator wrote, as of the given time.
func (r *records) becomeForeign(p *pod, at instant) {
	r.countUnread(p, 0, false)
	p.entry = foreignEntry
	p.foreign = true
	p.whole = sighting{}
	p.asOf = max(p.asOf, at)
}

// becomeRead: the cache holds a status as of the given time, whose items have just been shown.
func (r *records) becomeRead(p *pod, at instant) {
	r.countUnread(p, 0, false)
	p.entry = statusEntry
	if p.foreign { // until now, anything shown of the pod counted as the whole
		p.whole = sighting{}
	}
	p.foreign = false
	p.asOf = at
}

// accuse notes that the failure of the last reads was reported.
func (p *pod) accuse() { p.accused = true }

// acquit notes that a read has succeeded: the next that fails is reported again.
func (p *pod) acquit() { p.accused = false }

// becomeFailed: the cache holds the error of a read begun at the given time, perhaps beside a
// status in which the given number of items is missing.
//
// Part reports whether the read has yielded anything.
func (r *records) becomeFailed(p *pod, at instant, unread int, part bool) {
	if !p.failed() {
		p.good = p.asOf
	}
	r.countUnread(p, unread, true)
	p.entry = failedEntry
	if part {
		p.entry = partEntry
	}
	p.asOf = at
}

// becomeGone: a look begun at the given time has shown nothing of the pod, and the cache holds no
// entry.
func (r *records) becomeGone(p *pod, at instant) {
	r.countUnread(p, 0, false)
	p.entry = noEntry
	p.foreign = false
	p.asOf = at
	p.nothingLate()
}

// countUnread counts the pod and the items missed by the last read, in place of those of the read
// before.
func (r *records) countUnread(p *pod, items int, failed bool) {
	if p.failed() {
		r.unreadPods--
	}
	if failed {
		r.unreadPods++
	}
	p.accused = p.accused && failed
	r.unreadItems += items - int(p.unread)
	p.unread = int32(items)
}

// confirm notes that a look begun at the given time has shown the same as the entry.
func (p *pod) confirm(at instant) { p.asOf = at }

// reveal reports whether the entry shows again what it did not show for a time. Written reports
// whether a reading has brought a status, in which the unread items are missing.
func (p *pod) reveal(written bool, unread *idSet) (news bool) {
	if !written {
		return false
	}
	news = p.unshown
	p.unshown = false
	for _, x := range p.items {
		if x.unshown && !unread.has(x.id) {
			x.unshown = false
			news = true
		}
	}
	return news
}

// conceals reports whether the entry does not show all that is known of the pod.
func (p *pod) conceals() bool {
	return p.unshown || slices.ContainsFunc(p.items, func(x *item) bool { return x.unshown })
}

// conceal notes what the entry does not show.
func (p *pod) conceal(written bool, unread *idSet) {
	if !written {
		p.unshown = true
		return
	}
	for _, x := range p.items {
		x.unshown = x.unshown || unread.has(x.id)
	}
}

// unknown reports whether the status shows an ID in PhaseUnknown.
func (p *pod) unknown() bool {
	return slices.ContainsFunc(p.items, func(x *item) bool { return x.shown == PhaseUnknown })
}

// ended reports whether the status shows a container that has ended.
func (p *pod) ended() bool {
	return slices.ContainsFunc(p.items, func(x *item) bool {
		return x.kind == Container && x.phase == PhaseExited
	})
}

// teardown reports whether the pod has a sandbox that is not ready and may be removed without an
// event. A sandbox stopped by the agent itself is removed by a call of the agent, too.
func (p *pod) teardown() bool {
	return slices.ContainsFunc(p.items, func(x *item) bool {
		return x.kind == Sandbox && x.phase == PhaseExited && x.cause != CauseAck
	})
}

// shownItems returns the items of the status in the cache.
func (p *pod) shownItems() []Item {
	items := make([]Item, len(p.items))
	for i, x := range p.items {
		items[i] = Item{
			ID:    x.id,
			Kind:  x.kind,
			Phase: x.shown,
			Name:  x.name,
		}
	}
	return items
}

// ref names the pod and the items a read is to ask for; nil leaves them to the read.
func (p *pod) ref(items []Item) Pod {
	return Pod{
		UID:       p.uid,
		Name:      p.name,
		Namespace: p.namespace,
		Items:     items,
	}
}

// rename takes the pod's name from a report with the name.
func (p *pod) rename(name, namespace string) {
	if name != "" || namespace != "" {
		p.name = name
		p.namespace = namespace
	}
}

// title names the pod for people.
func (p *pod) title() string {
	if p.name == "" {
		return string(p.uid)
	}
	return p.namespace + "/" + p.name + " (" + string(p.uid) + ")"
}
