// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// phaseNone in a field that says what something shows: it does not show the ID.
const phaseNone = Phase(0xff)

// item is what is known of one ID. It belongs to the core.
type item struct {
	id   string
	name string // what a read called the container
	pod  *pod
	at   int // where it is in pod.items

	phase   Phase // the later of all reports, unless a read overruled a claim
	told    Phase // what Watch was told; phaseNone before the first time
	cached  Phase // what the pod's status in the cache shows; phaseNone if it does not show the ID
	listed  Phase // what the last applied list of everything showed; phaseNone if it did not show the ID
	claimed Phase // the latest phase that the stream told, for the count of missed events
	kind    Kind
	ours    bool  // a sandbox that a call of the agent's own has stopped
	blank   bool  // the pod's status in the cache does not know its state (CRI CONTAINER_UNKNOWN)
	back    bool  // the phase is earlier than the one before: a read overruled that
	byClaim bool  // the phase comes from a claim that no read has confirmed
	cause   Cause // of the phase, for its event
	mask    uint8 // events told, one bit each; no event is told twice of one ID

	mark  uint64  // the merge that showed it last
	first instant // when a read first showed the ID
	since instant // when the report was applied that set the phase
	sure  instant // when a read confirmed a claimed phase, else since: an older read may have looked before
	stamp int64   // the runtime's stamp of that claim, Unix nanoseconds; 0 if none
}

const (
	maskStarted uint8 = 1 << iota
	maskDied
	maskRemoved
)

// suspect is an ID that the stream told of and no read has shown yet.
type suspect struct {
	phase Phase
	at    instant // when the stream told of that phase
	stamp int64
}

// pod is what is known of one pod. It belongs to the core. A pod without items exists only while
// somebody wants to know of it, or the cache has a status of it.
type pod struct {
	uid             cache.UID
	name, namespace string
	items           []*item
	suspects        map[string]suspect

	read      instant // start of the latest applied read that named this pod
	disagrees bool    // the last applied read shows less than is known
	asOf      instant // start of the latest read that the cache's status stands for, global time aside
	hasStatus bool    // the cache has a status of it from a read
	foreign   bool    // the cache has a status of it from before this generator
	failed    bool    // its last inspection failed; the error is in the cache

	want   instant // a read must begin after this: somebody waits for it
	force  instant // statuses must be read by a read begun after this, changed or not
	forced instant // when the last such read was started
	answer bool    // such a read was stored: Watch is told at least a PodSync
	// lost: an ID that Watch or the cache has told of turned out to be another pod's. Once force is
	// answered, Watch is told a PodSync, whatever else it is told.
	lost     bool
	disputed bool    // that the runtime shows an ID of it of another pod, too, was reported
	alien    bool    // the pod's status in the cache shows an ID that is believed to be another pod's
	moved    instant // when a claim last changed something of it, known or suspected

	own      own
	affected bool // it is among the core's pods to be reviewed
	inflight bool
	slow     bool // its last read took so long that it counts as hung
	queued   queueKind
	laterAt  instant // its earliest entry in the heap of pods to look at later; 0 if none
	notYet   instant // no read before this: backoff, or time for the runtime to agree with itself

	// Delays, and when the last of each is over: a read that begins sooner, because somebody wanted
	// it, does not make it grow.
	reread  time.Duration // of rereading; 0 if the pod is not unsure
	goingAt time.Duration // of looking whether it has gone; 0 if it is not going
	again   instant       // end of either
	backoff time.Duration // after failures; 0 if the last inspection did not fail
	retry   instant       // its end

	// contested is what the last list showed of it that is believed to be another pod's: a later list
	// may say so by saying nothing.
	contested map[string]Item

	listing      []Item // what the last list showed of it, until an inspection has used it; nil if used
	listingBegan instant
	seenIn       uint64 // the list that showed it last, to detect pods shown twice and pods gone
	ready        int    // running sandboxes
}

// servedBy says that a read begun at the given time is late enough for all that is wanted of the
// pod, and for all that claims have told of it.
func (p *pod) servedBy(began instant) bool {
	return began > p.want && began > p.force && began >= p.moved
}

// add gives the pod an item.
func (p *pod) add(x *item) {
	x.at = len(p.items)
	p.items = append(p.items, x)
}

// remove takes an item from the pod: the last one takes its place, so that a pod that loses many
// IDs one by one is not walked through for each.
func (p *pod) remove(x *item) {
	end := len(p.items) - 1
	last := p.items[end]
	p.items[x.at], last.at = last, x.at
	p.items[end] = nil
	p.items = p.items[:end]
}

// contest notes that the last list showed an ID of the pod that is believed to be another's.
func (p *pod) contest(it Item) {
	if p.contested == nil {
		p.contested = make(map[string]Item)
	}
	p.contested[it.ID] = it
}

// listingServes says that what the last list showed of the pod is all that an inspection needs, and
// no older than what is stored.
func (p *pod) listingServes() bool {
	return p.listing != nil && p.servedBy(p.listingBegan) && p.listingBegan >= p.asOf
}

// byUID orders pods.
func byUID(a, b *pod) int { return strings.Compare(string(a.uid), string(b.uid)) }

// inOrder returns the pods of a set in the order of their UIDs, so that a history replays the same
// way.
func inOrder(pods map[cache.UID]*pod) []*pod {
	return slices.SortedFunc(maps.Values(pods), byUID)
}

// live returns the number of items that the runtime is believed to have.
func (p *pod) live() int {
	n := 0
	for _, x := range p.items {
		if x.phase != PhaseRemoved {
			n++
		}
	}
	return n
}

// find returns the item of that ID, nil if the pod has none.
func (p *pod) find(id string) *item {
	for _, x := range p.items {
		if x.id == id {
			return x
		}
	}
	return nil
}

// settled says that the cache shows the pod as it is known: every live ID in its phase, and no
// other.
func (p *pod) settled() bool {
	if p.foreign {
		return false
	}
	if !p.hasStatus {
		return p.live() == 0
	}
	for _, x := range p.items {
		if x.phase == PhaseRemoved {
			if x.cached != phaseNone {
				return false
			}
		} else if x.cached != x.phase {
			return false
		}
	}
	return true
}

// suspected says that a suspect of the pod may exist.
func (p *pod) suspected() bool {
	for _, s := range p.suspects {
		if s.phase != PhaseRemoved {
			return true
		}
	}
	return false
}

// unsure says that the pod must be read to know how it is.
func (p *pod) unsure() bool {
	return !p.settled() || p.disagrees || p.failed || p.alien || p.suspected() || p.blank()
}

// blank says that of the pod's status and the last list one knows the state of an ID and the other
// does not: the statuses must be read, whatever a listing of the pod shows.
func (p *pod) blank() bool {
	for _, x := range p.items {
		switch {
		case x.phase == PhaseRemoved:
		case x.blank && x.listed != phaseNone && x.listed != PhaseUnknown, !x.blank && x.cached == PhaseUnknown:
			return true
		}
	}
	return false
}

// going says that the pod has a sandbox that is not ready: its end may never be told. Whoever has
// stopped it himself removes it himself, and tells that, too.
func (p *pod) going() bool {
	for _, x := range p.items {
		if x.kind == Sandbox && x.phase == PhaseExited && (!x.ours || p.own.failed) {
			return true
		}
	}
	return false
}
