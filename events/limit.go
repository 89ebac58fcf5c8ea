// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// limiter is a token bucket per pair of objects and reason; the bucket that was used longest ago is
// forgotten first. Guarded by the broadcaster's lock.
type limiter struct {
	burst   int // < 0: off
	every   rate.Limit
	buckets *lru.Cache // bucketKey → *rate.Limiter
}

type bucketKey struct {
	pair   pairKey
	reason string
}

func newLimiter(burst int, refill time.Duration, size int) *limiter {
	return &limiter{burst: burst, every: rate.Every(refill), buckets: lru.New(size)}
}

// allow takes a token.
func (l *limiter) allow(k bucketKey, now time.Time) bool {
	if l.burst < 0 {
		return true
	}
	b, ok := l.buckets.Get(k)
	if !ok {
		b = rate.NewLimiter(l.every, l.burst)
		l.buckets.Add(k, b)
	}
	return b.(*rate.Limiter).AllowN(now, 1)
}
