// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "slices"

// idSet holds the IDs named by a report. A report may name any number: up to manyIDs are compared
// in turn, more are indexed. The zero and the nil idSet are empty.
type idSet struct {
	ids   []string
	items []Item
	many  map[string]struct{} `prove:"-"` // the index; nil up to manyIDs
}

// setOf returns a set of IDs, which it keeps.
func setOf(ids []string) idSet {
	s := idSet{ids: ids}
	if len(ids) > manyIDs {
		s.many = make(map[string]struct{}, len(ids))
		for _, id := range ids {
			s.many[id] = struct{}{}
		}
	}
	return s
}

// setOfItems returns the set of the IDs of the items that are valid. It keeps the items.
func setOfItems(items []Item) idSet {
	s := idSet{items: items}
	if len(items) > manyIDs {
		s.many = make(map[string]struct{}, len(items))
		for _, it := range items {
			if it.valid() {
				s.many[it.ID] = struct{}{}
			}
		}
	}
	return s
}

// without returns the IDs of items that others do not have; nil if they have all.
func without(items, others []Item) (rest []string) {
	has := setOfItems(others)
	for _, it := range items {
		if it.valid() && !has.has(it.ID) {
			rest = append(rest, it.ID)
		}
	}
	return rest
}

// both returns the IDs that are in both lists, nil if there are none.
func both(some, others []string) (ids []string) {
	if len(some) == 0 || len(others) == 0 {
		return nil
	}
	has := setOf(others)
	for _, id := range some {
		if has.has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// has reports whether the set has an ID.
func (s *idSet) has(id string) bool {
	if s == nil {
		return false
	}
	if s.many != nil {
		_, ok := s.many[id]
		return ok
	}
	return slices.Contains(s.ids, id) ||
		slices.ContainsFunc(s.items, func(it Item) bool { return it.ID == id && it.valid() })
}
