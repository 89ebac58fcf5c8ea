// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import "time"

// limiter is a token bucket per object and reason. It is bounded: a bucket that is full again is forgotten, and when none is, the one that
// was used longest ago. Guarded by the broadcaster's lock.
type limiter struct {
	burst   int // < 0: off
	refill  time.Duration
	max     int
	buckets map[bucketKey]*bucket
	list    bucketList // most recently used first
}

type bucketKey struct {
	object objectKey
	reason string
}

type bucket struct {
	key        bucketKey
	tokens     float64
	at         time.Time
	next, prev *bucket
}

// bucketList is a ring around a sentinel.
type bucketList struct{ root bucket }

func newLimiter(burst int, refill time.Duration, size int) *limiter {
	l := &limiter{burst: burst, refill: refill, max: size, buckets: map[bucketKey]*bucket{}}
	l.list.root.next, l.list.root.prev = &l.list.root, &l.list.root
	return l
}

func (l *bucketList) remove(b *bucket) {
	b.prev.next, b.next.prev = b.next, b.prev
}

func (l *bucketList) front(b *bucket) {
	b.prev, b.next = &l.root, l.root.next
	b.prev.next, b.next.prev = b, b
}

// allow takes a token.
func (l *limiter) allow(k bucketKey, now time.Time) bool {
	if l.burst < 0 {
		return true
	}
	b := l.buckets[k]
	if b == nil {
		l.shrink(now)
		b = &bucket{key: k, tokens: float64(l.burst), at: now}
		l.buckets[k] = b
	} else {
		l.list.remove(b)
		b.fill(l, now)
	}
	l.list.front(b)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

func (b *bucket) fill(l *limiter, now time.Time) {
	b.tokens = min(b.tokens+float64(max(now.Sub(b.at), 0))/float64(l.refill), float64(l.burst))
	b.at = now
}

// shrink makes room for one more. Buckets at the end of the list that have filled up again say nothing that a new one does not.
func (l *limiter) shrink(now time.Time) {
	for n := 0; len(l.buckets) > 0 && n < 2; n++ {
		b := l.list.root.prev
		b.fill(l, now)
		if len(l.buckets) < l.max && b.tokens < float64(l.burst) {
			return
		}
		l.list.remove(b)
		delete(l.buckets, b.key)
	}
}
