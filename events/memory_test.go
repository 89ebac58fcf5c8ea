// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"encoding/binary"
	"testing"
)

// TestMemory: the memory of evicted series holds as many as it may, whatever was forgotten between,
// and never another series than the one asked for.
func TestMemory(t *testing.T) {
	const limit = 8
	id := func(n int) (id seriesID) {
		binary.BigEndian.PutUint32(id[:], uint32(n))
		return id
	}
	m := memory{at: map[seriesID]int{}}
	held := func() (n int) {
		for i := range 1000 {
			g, ok := m.get(id(i))
			if ok {
				n++
			}
			if ok && g.id != id(i) {
				t.Fatalf("asked for %d: got %v", i, g.id)
			}
		}
		return n
	}
	for i := range 1000 {
		m.put(gone{id: id(i)}, limit)
		_, ok := m.get(id(i))
		if !ok || held() != min(i+1, limit) {
			t.Fatalf("after %d: the last is held: %v; %d held", i, ok, held())
		}
	}
	m.forget(id(999))
	m.forget(id(999))
	if _, ok := m.get(id(999)); ok || held() != limit-1 {
		t.Fatalf("%d held after one was forgotten", held())
	}
	for range 2 { // a series that is put again takes no other's place
		m.put(gone{id: id(1)}, limit)
		if held() != limit || len(m.slots) != limit {
			t.Fatalf("%d held in %d slots", held(), len(m.slots))
		}
	}
}
