// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// manyItems returns the running containers of one big pod.
func manyItems(n int) []Item {
	items := make([]Item, n)
	for i := range items {
		items[i] = Item{ID: fmt.Sprintf("%064x", i), Kind: Container, Phase: PhaseRunning}
	}
	return items
}

func reversed(items []Item) []Item {
	items = slices.Clone(items)
	slices.Reverse(items)
	return items
}

// TestSameItemsIsLinear counts the items looked at when the same items come in another order.
func TestSameItemsIsLinear(t *testing.T) {
	for _, n := range []int{2, fewItems, fewItems + 1, 1000} {
		items := manyItems(n)
		for name, other := range map[string][]Item{
			"reversed": reversed(items), "rotated": append(slices.Clone(items[1:]), items[0]), "equal": slices.Clone(items),
		} {
			same, looks := compareItems(items, other)
			if !same {
				t.Errorf("%d items, %s: they are said to differ", n, name)
			}
			if looks > max(4*n, fewItems*fewItems) {
				t.Errorf("%d items, %s: %d were looked at", n, name, looks)
			}
		}
	}
}

// TestSameItems compares with what is obvious: sorted, the two are equal.
func TestSameItems(t *testing.T) {
	for _, n := range []int{3, 10} {
		items := manyItems(n)
		other := func(change func([]Item)) []Item {
			items := reversed(items)
			change(items)
			return items
		}
		for name, items2 := range map[string][]Item{
			"another phase":        other(func(x []Item) { x[1].Phase = PhaseExited }),
			"another ID":           other(func(x []Item) { x[0].ID = "other" }),
			"one ID shown twice":   other(func(x []Item) { x[0] = x[1] }),
			"the last shown twice": other(func(x []Item) { x[n-1] = x[n-2] }),
			"one more":             append(slices.Clone(items), Item{ID: "more"}),
		} {
			if sameItems(items, items2) || sameItems(items2, items) {
				t.Errorf("%d items and %s are said to be the same", n, name)
			}
		}
	}
}

// TestReviewsAreLinear counts the items that reviews look at when one report changes many IDs of a
// pod that it is not about, or of which many IDs are forgotten at once.
func TestReviewsAreLinear(t *testing.T) {
	const n = 1000
	items := manyItems(n)
	each := make([]Pod, n) // the same IDs, each in a pod of its own
	for i := range each {
		each[i] = Pod{UID: cache.UID(fmt.Sprintf("q%04d", i)), Items: items[i : i+1]}
	}
	letterTo := func(pod cache.UID, phase Phase) *batch[status] {
		l := &podClaims[status]{pod: pod, claims: n}
		for _, it := range items {
			l.latest = append(l.latest, latestClaim{item: Item{ID: it.ID, Kind: Container, Phase: phase}})
		}
		return &batch[status]{pods: []*podClaims[status]{l}, claims: n}
	}
	for _, test := range []struct {
		name string
		do   func(w *moving)
	}{
		{"a list moves all to another pod", func(w *moving) { w.list(Pod{UID: "p"}, Pod{UID: "q", Items: reversed(items)}) }},
		{"a list moves each to a pod of its own", func(w *moving) { w.list(append(each, Pod{UID: "p"})...) }},
		{"a list that tells differences moves all", func(w *moving) { w.list(Pod{UID: "q", Items: items}) }},
		{"a read of another pod shows all", func(w *moving) { w.read("q", items...) }},
		{"claims say that all are another pod's", func(w *moving) { w.claims(letterTo("q", PhaseExited), w.now+1) }},
		{"claims do not say whose they are", func(w *moving) { w.claims(letterTo("", PhaseExited), w.now+1) }},
		{"all are removed, and the grace passes", func(w *moving) {
			w.claims(letterTo("p", PhaseRemoved), w.now+1)
			w.now = w.now.add(time.Minute)
			w.core.expire(w.now)
			w.settle()
			if w.core.expiring.len() > 0 || w.core.looks == 0 {
				t.Errorf("nothing has expired: this test is about something else")
			}
		}},
	} {
		w := newMoving()
		w.list(Pod{UID: "p", Items: items})
		w.core.dispatch(w.now)
		w.settle()
		w.read("p", items...)
		w.core.looks = 0
		test.do(w)
		if w.core.looks > 8*n {
			t.Errorf("%s: %d IDs, and reviews have looked at %d", test.name, n, w.core.looks)
		}
		w.checkPlaces(t, test.name)
	}
}

// checkPlaces checks that every item knows where it is.
func (w *moving) checkPlaces(t *testing.T, name string) {
	t.Helper()
	for uid, p := range w.core.pods {
		for i, x := range p.items {
			if x.at != i || x.pod != p || w.core.index[x.id] != x {
				t.Errorf("%s: pod %s: item %d, %s, has place %d", name, uid, i, x.id, x.at)
				return
			}
		}
	}
}
