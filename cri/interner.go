// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"unicode/utf8"

	"github.com/evented-pleg/evented-pleg/cache"
)

// internerSize is the number of strings after which an interner starts over; it may hold twice as
// many.
const internerSize = 8192

// interner gives equal bytes one string of their own, so that what events repeat is allocated once,
// and an ID does not hold on to the event that it came in. It remembers what it gave out since it
// last started over, and what was used since the time before. It belongs to one goroutine.
type interner struct{ young, old map[string]string }

func (n *interner) get(b []byte) string {
	if s, ok := n.young[string(b)]; ok { // does not allocate
		return s
	}
	s, ok := n.old[string(b)]
	if !ok {
		s = string(b)
	}
	if n.young == nil || len(n.young) >= internerSize {
		n.old, n.young = n.young, make(map[string]string)
	}
	n.young[s] = s
	return s
}

// short does so for a name, which is cut if it is long.
func (n *interner) short(name []byte) string {
	if len(name) > maxText || !utf8.Valid(name) {
		return bounded(string(name))
	}
	return n.get(name)
}

func (n *interner) uid(b []byte) cache.UID { return cache.UID(n.get(b)) }
