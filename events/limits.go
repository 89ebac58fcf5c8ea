// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"maps"
	"strings"
	"time"
)

// maxNotes is the number of series with different notes under a reason and object, and the number
// of combined series with different beginnings.
const maxNotes = 10

// limits decide whether an event may begin a series, and in which series it is counted otherwise.
// The rule is to count into something rather than to drop. Guarded by the broadcaster's lock.
type limits struct {
	perObject int
	tokens    limiter
	// series counts those in memory for each pair of objects, and for each key but the note, by
	// hash.
	series map[uint64]int
	// combined counts the combined series in memory for each pair of objects.
	combined map[uint64]int
}

func newLimits(o *Options) limits {
	return limits{
		perObject: o.MaxPerObject,
		tokens: limiter{
			burst: o.Burst,
			size:  4 * o.MaxSeries,
			full:  map[uint64]time.Time{},
		},
		series:   map[uint64]int{},
		combined: map[uint64]int{},
	}
}

// count books a series' entry into memory (+1) or removal (-1).
func (l *limits) count(s *series, n int) {
	if s.key.combined() {
		add(l.combined, s.pair, n)
	}
	add(l.series, s.pair, n)
	if s.key.note != "" {
		add(l.series, s.notes, n)
	}
}

// add adds to a count by hash; there is none of nothing.
func add(counts map[uint64]int, hash uint64, n int) {
	sum := counts[hash] + n
	if sum == 0 {
		delete(counts, hash)
	} else {
		counts[hash] = sum
	}
}

// combines reports whether there is a combined series about the objects of an event.
func (l *limits) combines(k *seriesKey) bool {
	return len(l.combined) > 0 && l.combined[k.pair()] > 0
}

// full reports whether a pair of objects has all the series that it may have.
func (l *limits) full(pair uint64) bool { return l.perObject > 0 && l.series[pair] >= l.perObject }

// bucketKey identifies a token bucket for new series: a pair of objects and a reason.
type bucketKey struct {
	pair   uint64
	reason string
}

// bucket returns the hash of the bucket of a key, and of all combined keys for the same event.
func (k *seriesKey) bucket(pair uint64) uint64 { return hash(bucketKey{pair, k.reason}) }

// choose returns the key under which an event that continues nothing begins a series: its own while
// there are tokens and, where notes count, room for another note; or that of a combined series. A
// combined series without a token is one of a bounded number for the object and reason.
func (l *limits) choose(k seriesKey, bucket uint64, note string, now time.Time) (chosen seriesKey, token bool) {
	if !l.tokens.has(bucket, now) {
		return l.room(k.combinations(note, false)), false
	}
	if k.note == "" || l.series[k.notes()] < maxNotes {
		return k, true
	}
	return l.room(k.combinations(note, true)), true
}

// room returns the first of combined keys with room for another beginning of notes, or the last.
func (l *limits) room(keys []seriesKey) seriesKey {
	for _, k := range keys {
		if l.series[k.notes()] < maxNotes {
			return k
		}
	}
	return keys[len(keys)-1]
}

// combined reports whether the series of a key counts different events.
func (k *seriesKey) combined() bool { return strings.HasPrefix(k.note, combinedMark) }

// refill is the time after which a bucket has another token.
const refill = 5 * time.Minute

// limiter is a token bucket per hash: burst tokens, and another token every refill. A bucket is
// stored as the time of being full again.
type limiter struct {
	burst int // < 0: no limit
	size  int
	full  map[uint64]time.Time
}

func (l *limiter) has(key uint64, now time.Time) bool {
	return l.burst < 0 || l.enough(l.full[key], now)
}

// enough reports whether a bucket that is full at the given time has a token.
func (l *limiter) enough(full, now time.Time) bool {
	return full.Sub(now)+refill <= time.Duration(l.burst)*refill
}

// allow takes a token, if available.
func (l *limiter) allow(key uint64, now time.Time) bool {
	if l.burst < 0 {
		return true
	}
	at := l.full[key]
	if !l.enough(at, now) {
		return false
	}
	if at.Before(now) {
		at = now
	}
	if len(l.full) >= l.size { // full buckets are removed, then all if too few were full
		maps.DeleteFunc(l.full, func(_ uint64, at time.Time) bool { return !at.After(now) })
		if len(l.full) >= l.size/2 {
			clear(l.full)
		}
	}
	l.full[key] = at.Add(refill)
	return true
}
