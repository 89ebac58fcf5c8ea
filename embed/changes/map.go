// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package changes

import "maps"

// Map counts the changes of a map that is made anew again and again, for a single goroutine. A map
// that equals the last, as when a worker has synced its pod once more, counts nothing.
type Map[K, V comparable] struct {
	last map[K]V
	n    uint64
}

// Set takes the map, which must not be changed any more, and counts a change if it differs from the
// last.
func (m *Map[K, V]) Set(to map[K]V) {
	if !maps.Equal(m.last, to) {
		m.n++
	}
	m.last = to
}

// Changes returns the number of changes.
func (m *Map[K, V]) Changes() uint64 { return m.n }
