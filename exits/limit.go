// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import "time"

// Rate bounds the Events about single containers: Burst at once, and PerSecond in the long run.
type Rate struct {
	PerSecond float64
	Burst     int
}

// bucket holds the tokens of a rate.
type bucket struct {
	tokens float64
	at     time.Time // when tokens was true
}

// fill adds the tokens since the last call.
func (b *bucket) fill(now time.Time, r Rate) {
	b.tokens = min(float64(r.Burst), b.tokens+now.Sub(b.at).Seconds()*r.PerSecond)
	b.at = now
}

// limiter admits Events about single containers, by namespace and as a whole. A namespace above its
// rate takes nothing from others: a tenth of the node's burst is for namespaces in quiet. A
// namespace that asks for more than its rate is not in quiet, also while nothing of it is admitted.
type limiter struct {
	namespace, node Rate
	whole           bucket
	namespaces      map[string]*bucket // full buckets are left out, but for a few
}

func newLimiter(now time.Time, namespace, node Rate) *limiter {
	return &limiter{
		namespace:  namespace,
		node:       node,
		whole:      bucket{tokens: float64(node.Burst), at: now},
		namespaces: make(map[string]*bucket),
	}
}

// quietFrom is the part of its burst that a namespace in quiet has left, at least.
const quietFrom = 0.9

// keptBuckets is the number of buckets from which on full ones are dropped.
const keptBuckets = 256

// admit reports whether an Event may be made, and takes a token of each rate then. The namespace
// pays its token also if the node has none.
func (l *limiter) admit(now time.Time, namespace string) bool {
	b := l.namespaces[namespace]
	if b == nil {
		if len(l.namespaces) >= keptBuckets {
			l.prune(now)
		}
		b = &bucket{tokens: float64(l.namespace.Burst), at: now}
		l.namespaces[namespace] = b
	}
	b.fill(now, l.namespace)
	l.whole.fill(now, l.node)
	if b.tokens < 1 {
		return false
	}
	reserved := l.node.Burst / 10
	if b.tokens >= quietFrom*float64(l.namespace.Burst) {
		reserved = 0
	}
	b.tokens--
	if l.whole.tokens < float64(1+reserved) {
		return false
	}
	l.whole.tokens--
	return true
}

// mostBuckets bounds the buckets: at a slow rate, or none, those of namespaces that come and go
// are never full.
const mostBuckets = 4096

// prune drops full buckets, and makes room for another: the fullest has the least to remember. Of
// several the first by name goes.
func (l *limiter) prune(now time.Time) {
	fullest := ""
	for namespace, b := range l.namespaces {
		b.fill(now, l.namespace)
		if b.tokens >= float64(l.namespace.Burst) {
			delete(l.namespaces, namespace)
			continue
		}
		known := l.namespaces[fullest]
		first := known != nil && b.tokens == known.tokens && namespace < fullest
		if known == nil || b.tokens > known.tokens || first {
			fullest = namespace
		}
	}
	if len(l.namespaces) >= mostBuckets {
		delete(l.namespaces, fullest)
	}
}
