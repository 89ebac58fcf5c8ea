// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"fmt"
	"testing"
	"time"
)

// TestQuietNamespacesHaveTheirPlace: namespaces that end ten containers a second, for an hour, do
// not keep one with an end a minute from its own Events; together they get the node's rate.
func TestQuietNamespacesHaveTheirPlace(t *testing.T) {
	for _, loud := range []int{5, 12} {
		t.Run(fmt.Sprint(loud, " loud ones"), func(t *testing.T) {
			const seconds = 3600
			node := Rate{PerSecond: 5, Burst: 500}
			l := newLimiter(start, Rate{PerSecond: 1, Burst: 100}, node)
			admitted := 0
			for i := range 10 * seconds {
				now := start.Add(time.Duration(i) * 100 * time.Millisecond)
				for n := range loud {
					if l.admit(now, fmt.Sprint("loud-", n)) {
						admitted++
					}
				}
				// At other parts of a second each time: the loud ones have their tokens at the same one.
				if i%601 == 17 && !l.admit(now, "quiet") {
					t.Fatalf("a namespace with an end a minute is refused after %v", now.Sub(start))
				}
			}
			whole := float64(node.Burst) + seconds*node.PerSecond
			if float64(admitted) > whole || float64(admitted) < 0.97*whole {
				t.Errorf("%d Events of the loud namespaces, want about %v", admitted, whole)
			}
		})
	}
}

// TestSmallRates: a rate of few Events has no part for namespaces in quiet.
func TestSmallRates(t *testing.T) {
	l := newLimiter(start, Rate{PerSecond: 1, Burst: 9}, Rate{PerSecond: 1, Burst: 9})
	for n := range 10 {
		admitted := l.admit(start, "a")
		if admitted != (n < 9) {
			t.Errorf("Event %d of 9 at once: admitted %v", n+1, admitted)
		}
	}
}

// TestBucketsAreBounded: at a rate of none no bucket gets full again. What a namespace has used is
// remembered before that of another which used less.
func TestBucketsAreBounded(t *testing.T) {
	l := newLimiter(start, Rate{PerSecond: 0, Burst: 10}, Rate{PerSecond: 1000, Burst: 1e6})
	for range 10 {
		l.admit(start, "loud")
	}
	for i := range 2 * mostBuckets {
		l.admit(start, fmt.Sprint("ns", i))
	}
	if len(l.namespaces) > mostBuckets {
		t.Errorf("%d buckets are kept, want at most %d", len(l.namespaces), mostBuckets)
	}
	if l.admit(start, "loud") {
		t.Error("a namespace that has used its rate has another")
	}
}

// TestEqualBucketsAreDroppedInOrder: of several fullest buckets the first by name is dropped, in
// each run.
func TestEqualBucketsAreDroppedInOrder(t *testing.T) {
	at := time.Unix(1000, 0)
	for range 10 {
		l := newLimiter(at, Rate{Burst: 2}, Rate{Burst: 1})
		for i := range mostBuckets {
			l.admit(at, fmt.Sprint("n", i))
		}
		l.admit(at, "more")
		if l.namespaces["n0"] != nil || len(l.namespaces) != mostBuckets {
			t.Fatalf("n0 is kept: %v; %d buckets", l.namespaces["n0"] != nil, len(l.namespaces))
		}
	}
}
