// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
	"sync"

	"github.com/evented-pleg/evented-pleg/cache"
)

// latestClaim is the furthest phase reported by the stream for an ID since the loop last looked.
type latestClaim struct {
	item  Item
	stamp int64 // of the claim of that phase, Unix nanoseconds; 0 if none
}

// podClaims are the stream's reports of a pod since the loop last looked.
type podClaims[S any] struct {
	// pod is the pod named by the claims; empty when they named none.
	pod cache.UID

	// latest are the claimed IDs, each once, in the order in which they came up.
	latest []latestClaim

	// index finds an ID in latest; nil up to manyIDs.
	index map[string]int

	// updates reports whether one of the claims was of a type of a later CRI (PhaseUnknown): the
	// pod's statuses are to be read.
	updates bool

	// claims is the number of claims merged into this.
	claims int

	// payload and status are those of the last claim that had any; see Claim.
	payload []Item
	status  func(prev *S) (*S, error)

	// release gives back the payload and the status; nil if nothing is to be given back.
	release func()
}

// drop releases the payload.
func (pc *podClaims[S]) drop() {
	if pc.release != nil {
		pc.release()
	}
	pc.payload = nil
	pc.status = nil
	pc.release = nil
}

// mailbox takes claims from the stream's receive loop and hands them to the generator's loop,
// merged by pod. Putting never blocks, because a client that stops reading stops the runtime. The
// number of claimed IDs bounds the contents, at any rate of claims.
type mailbox[S any] struct {
	wake chan struct{} // capacity 1: one announcement stands for all waiting claims
	max  int

	mu sync.Mutex // owns the fields below

	// byPod finds the podClaims of a pod; those without a pod stand under the empty UID.
	byPod map[cache.UID]*podClaims[S]

	// order has the same podClaims, oldest first: a history replays the same way.
	order []*podClaims[S]

	// free are emptied podClaims to be used again, at most maxFree.
	free []*podClaims[S]

	// ids is the number of IDs in all podClaims, at most max.
	ids int

	// claims, replayed and dropped count since the last take. Those dropped found no room.
	claims, replayed, dropped int
}

func newMailbox[S any](max int) *mailbox[S] {
	return &mailbox[S]{wake: make(chan struct{}, 1), max: max, byPod: make(map[cache.UID]*podClaims[S])}
}

// manyIDs is the number of IDs of a pod from which on the claims are indexed.
const manyIDs = 16

// put merges a claim. Replayed marks a stamp from before the stream was opened, or from the
// future. put never blocks.
func (m *mailbox[S]) put(c Claim[S], replayed bool) {
	m.mu.Lock()
	kept := m.merge(c, replayed)
	if !kept && c.Release != nil {
		c.Release()
	}
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// merge reports whether the payload was kept.
func (m *mailbox[S]) merge(c Claim[S], replayed bool) (kept bool) {
	m.claims++
	if replayed {
		m.replayed++
	}
	pc := m.byPod[c.Pod]
	if pc == nil {
		if m.ids >= m.max {
			m.dropped++
			return false
		}
		pc = m.empty()
		pc.pod = c.Pod
		m.byPod[c.Pod] = pc
		m.order = append(m.order, pc)
	}
	if !m.record(pc, c) {
		m.dropped++
		return false
	}
	pc.claims++
	pc.updates = pc.updates || c.Item.Phase == PhaseUnknown
	if c.Status == nil && len(c.Payload) == 0 {
		return false
	}
	pc.drop()
	pc.payload = c.Payload
	pc.status = c.Status
	pc.release = c.Release
	return true
}

// empty returns empty podClaims, used before if there are any.
func (m *mailbox[S]) empty() *podClaims[S] {
	n := len(m.free)
	if n == 0 {
		return new(podClaims[S])
	}
	pc := m.free[n-1]
	m.free = m.free[:n-1]
	return pc
}

// record merges the claim's own ID into the pod's IDs, and reports whether there was room.
func (m *mailbox[S]) record(pc *podClaims[S], c Claim[S]) bool {
	claim := latestClaim{item: c.Item}
	if !c.CreatedAt.IsZero() {
		claim.stamp = c.CreatedAt.UnixNano()
	}
	at := -1
	if pc.index == nil {
		at = slices.IndexFunc(pc.latest, func(l latestClaim) bool { return l.item.ID == c.Item.ID })
	} else if i, ok := pc.index[c.Item.ID]; ok {
		at = i
	}
	if at >= 0 {
		if c.Item.Phase > pc.latest[at].item.Phase {
			pc.latest[at] = claim
		}
		return true
	}
	if m.ids >= m.max {
		return false
	}
	m.ids++
	pc.latest = append(pc.latest, claim)
	if pc.index != nil {
		pc.index[c.Item.ID] = len(pc.latest) - 1
	} else if len(pc.latest) > manyIDs {
		pc.index = make(map[string]int, 2*manyIDs)
		for i := range pc.latest {
			pc.index[pc.latest[i].item.ID] = i
		}
	}
	return true
}

// batch is everything taken from the mailbox at once.
type batch[S any] struct {
	pods                      []*podClaims[S]
	claims, replayed, dropped int
}

// take empties the mailbox into b, whose podClaims must have been given back with recycle.
func (m *mailbox[S]) take(b *batch[S]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.pods, m.order = m.order, b.pods[:0] // the two take turns
	b.claims = m.claims
	b.replayed = m.replayed
	b.dropped = m.dropped
	m.claims = 0
	m.replayed = 0
	m.dropped = 0
	m.ids = 0
	clear(m.byPod)
}

// maxFree bounds the podClaims kept for use again.
const maxFree = 256

// recycle gives the batch's podClaims back.
func (m *mailbox[S]) recycle(b *batch[S]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, pc := range b.pods {
		pc.drop()
		if len(m.free) < maxFree && cap(pc.latest) <= manyIDs {
			clear(pc.latest)
			*pc = podClaims[S]{latest: pc.latest[:0]}
			m.free = append(m.free, pc)
		}
		b.pods[i] = nil
	}
}
