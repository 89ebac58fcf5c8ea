// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

// dormants remembers how far the series of a key had come after the series itself was forgotten: enough to continue one that was evicted, and
// to give the next one its name without asking the server. It is bounded; the oldest memory goes first, and then the walk over the names finds
// what is stored. Guarded by the broadcaster's lock.
type dormants struct {
	max    int
	byID   map[seriesID]state
	order  []seriesID // ring of insertions
	oldest int
}

func newDormants(size int) dormants {
	return dormants{max: size, byID: map[seriesID]state{}}
}

func (d *dormants) put(id seriesID, s state) {
	if _, known := d.byID[id]; !known {
		if len(d.order) < d.max {
			d.order = append(d.order, id)
		} else {
			delete(d.byID, d.order[d.oldest])
			d.order[d.oldest] = id
			d.oldest = (d.oldest + 1) % d.max
		}
	}
	d.byID[id] = s
}

func (d *dormants) get(id seriesID) (state, bool) {
	s, ok := d.byID[id]
	return s, ok
}
