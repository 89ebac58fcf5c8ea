// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"sync"

	"github.com/evented-pleg/evented-pleg/cache"
)

// told is one ID that the stream told of, in the latest phase that it told.
type told struct {
	item  Item
	stamp int64 // of the claim that told that phase, Unix nanoseconds
}

// letter is what the stream told of one pod since the loop last looked.
type letter[S any] struct {
	pod     cache.UID // empty when the claims did not say
	told    []told
	index   map[string]int // of told by ID, once there are many
	claims  int
	payload []Item
	status  func() (*S, error)
	release func() // of the payload and the status, nil if there is nothing to release
}

// drop releases the payload.
func (l *letter[S]) drop() {
	if l.release != nil {
		l.release()
	}
	l.payload, l.status, l.release = nil, nil, nil
}

// mailbox takes claims from the stream's receive loop and hands them to the generator's loop,
// merged by pod. Putting never blocks, because a client that stops reading stops the runtime; what
// it holds is bounded by the IDs told of, at any rate of claims. The mutex owns everything.
type mailbox[S any] struct {
	wake chan struct{} // capacity 1: letters that are already announced need not be announced again
	max  int

	mu       sync.Mutex
	byPod    map[cache.UID]*letter[S]
	order    []*letter[S] // oldest first, so that a history replays the same way
	free     []*letter[S] // emptied letters, to be used again
	ids      int
	claims   int // received since the last take
	replayed int
	dropped  int
}

func newMailbox[S any](max int) *mailbox[S] {
	return &mailbox[S]{wake: make(chan struct{}, 1), max: max, byPod: make(map[cache.UID]*letter[S])}
}

// manyTold is the number of IDs in one letter from which on they are indexed.
const manyTold = 16

// put merges a claim. Replayed says that its stamp is not of the time since the stream was opened.
// It never blocks.
func (m *mailbox[S]) put(c Claim[S], replayed bool) {
	m.mu.Lock()
	m.merge(c, replayed)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox[S]) merge(c Claim[S], replayed bool) {
	m.claims++
	kept := false
	defer func() {
		if !kept && c.Release != nil {
			c.Release()
		}
	}()
	if replayed {
		m.replayed++
	}
	l := m.byPod[c.Pod]
	if l == nil {
		if m.ids >= m.max {
			m.dropped++
			return
		}
		if n := len(m.free); n > 0 {
			l, m.free = m.free[n-1], m.free[:n-1]
		} else {
			l = new(letter[S])
		}
		l.pod = c.Pod
		m.byPod[c.Pod] = l
		m.order = append(m.order, l)
	}
	if !m.tell(l, c) {
		m.dropped++
		return
	}
	l.claims++
	if c.Status != nil || len(c.Payload) > 0 {
		l.drop()
		l.payload, l.status, l.release, kept = c.Payload, c.Status, c.Release, true
	}
}

// tell records the claim's own ID in the letter. It reports whether there was room.
func (m *mailbox[S]) tell(l *letter[S], c Claim[S]) bool {
	stamp := int64(0)
	if !c.CreatedAt.IsZero() {
		stamp = c.CreatedAt.UnixNano()
	}
	at := -1
	if l.index != nil {
		if i, ok := l.index[c.Item.ID]; ok {
			at = i
		}
	} else {
		for i := range l.told {
			if l.told[i].item.ID == c.Item.ID {
				at = i
				break
			}
		}
	}
	if at >= 0 {
		if c.Item.Phase > l.told[at].item.Phase {
			l.told[at] = told{c.Item, stamp}
		}
		return true
	}
	if m.ids >= m.max {
		return false
	}
	m.ids++
	l.told = append(l.told, told{c.Item, stamp})
	if l.index != nil {
		l.index[c.Item.ID] = len(l.told) - 1
	} else if len(l.told) > manyTold {
		l.index = make(map[string]int, 2*manyTold)
		for i := range l.told {
			l.index[l.told[i].item.ID] = i
		}
	}
	return true
}

// batch is what the loop takes from the mailbox at once.
type batch[S any] struct {
	letters                   []*letter[S]
	claims, replayed, dropped int
}

// take empties the mailbox into b, whose letters must have been given back with recycle.
func (m *mailbox[S]) take(b *batch[S]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.letters, m.order = m.order, b.letters[:0]
	b.claims, b.replayed, b.dropped = m.claims, m.replayed, m.dropped
	m.claims, m.replayed, m.dropped, m.ids = 0, 0, 0, 0
	clear(m.byPod)
}

// maxFree bounds the letters kept for use again.
const maxFree = 256

// recycle gives the batch's letters back.
func (m *mailbox[S]) recycle(b *batch[S]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, l := range b.letters {
		l.drop()
		if len(m.free) < maxFree && cap(l.told) <= manyTold {
			clear(l.told)
			*l = letter[S]{told: l.told[:0]}
			m.free = append(m.free, l)
		}
		b.letters[i] = nil
	}
}
