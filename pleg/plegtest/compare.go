// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package plegtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Item is a container or sandbox, as the cache or the runtime shows it.
type Item struct {
	pleg.Item
	// Detail is the rest that must be equal, such as an exit code: any comparable value.
	Detail any
}

// Pod is a pod, as the cache or the runtime shows it. A pod without items equals no pod.
type Pod struct {
	UID cache.UID
	// Items are all sandboxes and containers, in any order.
	Items []Item
	// Err is the error beside the status in a cache.
	Err error
}

// NewPod returns a pod whose items have no details.
func NewPod(uid cache.UID, items ...pleg.Item) Pod {
	p := Pod{UID: uid}
	for _, item := range items {
		p.Items = append(p.Items, Item{Item: item})
	}
	return p
}

// find returns an item of the pod.
func (p Pod) find(id string) (item Item, ok bool) {
	i := slices.IndexFunc(p.Items, func(item Item) bool { return item.ID == id })
	if i < 0 {
		return Item{}, false
	}
	return p.Items[i], true
}

// Compare returns a violation [Differs] for each difference between the pods of a cache and those
// of the runtime, sorted by pod and ID. Pods of one UID are parts of one pod. Names are compared
// where both sides have them.
func Compare(cached, runtime []Pod) (differences []Violation) {
	have := byUID(cached)
	want := byUID(runtime)
	all := maps.Clone(want)
	maps.Copy(all, have)
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		differences = append(differences, comparePod(uid, have[uid], want[uid])...)
	}
	return differences
}

// byUID returns the pods that have items, those of a UID as one.
func byUID(pods []Pod) map[cache.UID]Pod {
	index := make(map[cache.UID]Pod, len(pods))
	for _, p := range pods {
		if len(p.Items) == 0 {
			continue
		}
		whole := index[p.UID]
		whole.UID = p.UID
		whole.Items = slices.Concat(whole.Items, p.Items)
		whole.Err = cmp.Or(whole.Err, p.Err)
		index[p.UID] = whole
	}
	return index
}

func comparePod(uid cache.UID, have, want Pod) (differences []Violation) {
	differs := func(id, format string, args ...any) {
		differences = append(differences, Violation{
			Fault: Differs,
			Pod:   uid,
			ID:    id,
			What:  fmt.Sprintf(format, args...),
		})
	}
	for _, w := range sorted(want.Items) {
		h, shown := have.find(w.ID)
		switch {
		case !shown:
			differs(w.ID, "%s in the runtime and missing in the cache", w)
		case !equal(h, w):
			differs(w.ID, "%s in the runtime and %s in the cache", w, h)
		}
	}
	seen := make(map[string]bool)
	for _, h := range sorted(have.Items) {
		if seen[h.ID] {
			differs(h.ID, "%s in the cache, which shows it twice", h)
			continue
		}
		seen[h.ID] = true
		if _, exists := want.find(h.ID); !exists {
			differs(h.ID, "%s in the cache and gone in the runtime", h)
		}
	}
	if len(differences) == 0 && have.Err != nil {
		differs("", "the cache has an error: %v", have.Err)
	}
	return differences
}

// equal reports whether a cache and a runtime show the same of an item.
func equal(have, want Item) bool {
	if have.Name == "" || want.Name == "" {
		have.Name = want.Name
	}
	return have == want
}

func sorted(items []Item) []Item {
	return slices.SortedFunc(slices.Values(items), func(a, b Item) int { return cmp.Compare(a.ID, b.ID) })
}

// String is such as "container 4f6b (app) is Running".
func (i Item) String() string {
	text := fmt.Sprintf("%v %s is %v", i.Kind, i.ID, i.Phase)
	if i.Name != "" {
		text = fmt.Sprintf("%v %s (%s) is %v", i.Kind, i.ID, i.Name, i.Phase)
	}
	if i.Detail != nil {
		text += fmt.Sprintf(" %+v", i.Detail)
	}
	return text
}
