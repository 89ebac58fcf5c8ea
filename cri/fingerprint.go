// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// How a listing recognises an unchanged item: the fast read of an encoded item, its fingerprint,
// and the table of the last listing.

import (
	"encoding/binary"
	"hash/maphash"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// fingerprint stands for all relevant fields of a listed item: 128 bits, of two hashes with
// separate seeds, made anew in each process. Two different items have the same fingerprint with a
// chance of one in 2^128, whatever the runtime sends, because the runtime does not know the seeds
// (ADR 19).
type fingerprint struct{ a, b uint64 }

// hasher makes fingerprints. A single goroutine owns each hasher.
type hasher struct {
	seeds [2]maphash.Seed
	key   []byte
}

func newHasher() hasher {
	return hasher{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// of returns the fingerprint of an ID, two more texts, and a few bits.
func (h *hasher) of(id, x, y []byte, bits uint32) fingerprint {
	key := append(append(append(h.key[:0], id...), x...), y...)
	key = binary.LittleEndian.AppendUint32(key, uint32(len(id))) // no two divisions alike
	key = binary.LittleEndian.AppendUint32(key, uint32(len(x)))
	key = binary.LittleEndian.AppendUint32(key, bits)
	if h.key = key; cap(key) > maxKeptScratch {
		h.key = nil
	}
	return fingerprint{maphash.Bytes(h.seeds[0], key), maphash.Bytes(h.seeds[1], key)}
}

// sandbox returns the fingerprint of a sandbox: metadata is its encoded metadata, label its pod UID
// label.
func (h *hasher) sandbox(id, metadata, label []byte, state int32) fingerprint {
	return h.of(id, metadata, label, uint32(sandboxPhase(state)))
}

// container returns the fingerprint of a container. The sandbox counts only without a pod UID
// label, since either of the two attributes the container.
func (h *hasher) container(id, sandbox, label []byte, state int32) fingerprint {
	const labelled = 1 << 8
	bits := uint32(containerPhase(state))
	if len(label) > 0 {
		return h.of(id, label, nil, bits|labelled)
	}
	return h.of(id, sandbox, nil, bits)
}

// fastSandbox returns the fingerprint of a listed sandbox in the usual encoding.
func (h *hasher) fastSandbox(raw []byte) (made fingerprint, ok bool) {
	var q fastItem
	if !q.read(raw, fastSandboxTags) {
		return fingerprint{}, false
	}
	return h.sandbox(q.id, q.field2, q.uid, int32(q.state)), true
}

// fastContainer returns the fingerprint of a listed container in the usual encoding.
func (h *hasher) fastContainer(raw []byte) (made fingerprint, ok bool) {
	var q fastItem
	if !q.read(raw, fastContainerTags) {
		return fingerprint{}, false
	}
	return h.container(q.id, q.field2, q.uid, int32(q.state)), true
}

// fastItem holds the fields that decide whether a listed item has changed, read in a single pass
// over the usual encoding: tags of one byte, lengths of three at most, the ID and field 2 once, the
// pod UID label once and every label with its key before its value. Fields may come in any order.
// Other encodings are left to the full parsers, sandboxItem and containerItem, which read the same
// from every item accepted by fastItem. The slices alias the message.
type fastItem struct {
	id     []byte // field 1
	field2 []byte // field 2: the metadata of a sandbox, undecoded, or the sandbox ID of a container
	uid    []byte // the pod UID label, nil if there is none
	// state is the enum as sent.
	state byte
}

// fastTags are the tags in which sandboxes and containers differ.
type fastTags struct{ state, labels byte }

var (
	fastSandboxTags   = fastTags{3<<3 | byte(protowire.VarintType), labelsOfPodSandbox<<3 | byte(protowire.BytesType)}
	fastContainerTags = fastTags{6<<3 | byte(protowire.VarintType), 8<<3 | byte(protowire.BytesType)}
)

// maxFastVarint is the number of bytes up to which any varint is well-formed.
const maxFastVarint = 9

// read takes an encoded item. For an unusual encoding, read reports false and leaves q half read.
func (q *fastItem) read(b []byte, tags fastTags) bool {
	prefetch(b)
	for i := 0; i < len(b); {
		tag := b[i]
		i++
		if tag >= 0x80 || tag < 1<<3 {
			return false
		}
		if tag&7 == byte(protowire.VarintType) {
			from := i
			for i < len(b) && b[i] >= 0x80 {
				i++
			}
			if i >= len(b) || i-from >= maxFastVarint {
				return false
			}
			if tag == tags.state {
				if i > from {
					return false
				}
				q.state = b[i]
			}
			i++
			continue
		}
		if tag&7 != byte(protowire.BytesType) {
			return false
		}
		from, to := extent(b, i)
		if to < 0 {
			return false
		}
		switch data := b[from:to:to]; tag {
		case 1<<3 | byte(protowire.BytesType):
			if q.id != nil {
				return false
			}
			q.id = data
		case 2<<3 | byte(protowire.BytesType):
			if q.field2 != nil {
				return false
			}
			q.field2 = data
		case tags.labels:
			if !q.label(data) {
				return false
			}
		}
		i = to
	}
	return true
}

// cacheLine is the number of bytes fetched at once by a processor.
const cacheLine = 64

// prefetch reads one byte of each cache line of an item. A list of many megabytes lies outside the
// processor's caches during the walk, and read learns where a field begins from the field before,
// so read alone would wait for one line after the other. The reads here are independent: the
// processor fetches the lines side by side. Measured: the index of 100,000 containers takes 0.78 of
// the CPU needed without, the index of 10,000 the same (BenchmarkIndex).
//
//go:noinline
func prefetch(b []byte) (all byte) {
	for i := 0; i < len(b); i += cacheLine {
		all |= b[i]
	}
	return all
}

// extent returns the bounds of a field's data, with the data's length at b[i]; to is negative if
// the length is unusual or too long.
func extent(b []byte, i int) (from, to int) {
	size := 0
	for shift := 0; shift <= 14; shift += 7 {
		if i >= len(b) {
			return 0, -1
		}
		c := int(b[i])
		i++
		size |= c & 0x7f << shift
		if c < 0x80 {
			if size > len(b)-i {
				return 0, -1
			}
			return i, i + size
		}
	}
	return 0, -1
}

// label takes an encoded label, and reports false if the encoding is unusual.
func (q *fastItem) label(b []byte) bool {
	if len(b) < 4 || b[0] != 1<<3|byte(protowire.BytesType) || b[1] >= 0x80 {
		return false
	}
	k := 2 + int(b[1])
	if k+2 > len(b) || b[k] != 2<<3|byte(protowire.BytesType) || b[k+1] >= 0x80 || k+2+int(b[k+1]) != len(b) {
		return false
	}
	if int(b[1]) == len(labelPodUID) && string(b[2:k]) == labelPodUID {
		if q.uid != nil {
			return false
		}
		q.uid = b[k+2:]
	}
	return true
}

// fingerprintTable is the set of the items of the last listing, by fingerprint. Entries lie in
// order of arrival, and the entry after the last match is tried first: a list in the order of the
// list before is compared in a single pass through memory. In any other order an entry is found
// through slots, a table small enough for a processor's cache: four bytes a slot, at most half of
// them in use.
//
// R is a pointer to a record, which knows the place of its entry.
type fingerprintTable[R interface{ setPlace(place int) }] struct {
	entries []entry[R]
	// slots hold a place plus one in their low bits, and some bits of the fingerprint above; zero if
	// free. A fingerprint takes the first free slot at its home or after, circularly.
	slots []uint32
	// dead counts the removed entries.
	dead int
	// last is the place of the entry found last.
	last int
	// sum is the sum of the fingerprints of all entries. A list of as many items with the same sum
	// shows exactly these items, in whatever order (ADR 19).
	sum fingerprint
	// allShownBy is the last listing known by its sum to have shown all entries; such a listing leaves
	// the rounds of the entries unchanged.
	allShownBy uint32
	// changed: the present listing added, changed or removed an entry; stable: the listing before did
	// not, so the sum is worth a try.
	changed, stable bool
}

// entry is a fingerprint and its record.
type entry[R any] struct {
	fingerprint fingerprint
	record      R
	// round is the last listing with the item.
	round uint32
	live  bool
}

const (
	// placeBits bound the places: two listings of maxListItems items, and as many dead entries again.
	placeBits = 22
	placeMask = 1<<placeBits - 1
	minSlots  = 16
)

// plus returns the sum of two fingerprints, half by half.
func (p fingerprint) plus(q fingerprint) fingerprint { return fingerprint{p.a + q.a, p.b + q.b} }

// minus is the inverse of plus.
func (p fingerprint) minus(q fingerprint) fingerprint { return fingerprint{p.a - q.a, p.b - q.b} }

// slot returns the slot's content for a fingerprint at a place.
func (p fingerprint) slot(place int) uint32 { return uint32(p.b)&^placeMask | uint32(place+1) }

// find returns the place of a fingerprint, -1 if there is none.
func (t *fingerprintTable[R]) find(p fingerprint) int {
	if i := t.last + 1; i < len(t.entries) && t.entries[i].fingerprint == p && t.entries[i].live {
		t.last = i
		return i
	}
	if i := t.slotOf(p, -1); i >= 0 {
		t.last = int(t.slots[i]&placeMask) - 1
		return t.last
	}
	return -1
}

// slotOf returns the slot of a fingerprint, or, if place is not negative, of the entry at that
// place; -1 if there is none.
func (t *fingerprintTable[R]) slotOf(p fingerprint, place int) int {
	if len(t.slots) == 0 {
		return -1
	}
	mask := len(t.slots) - 1
	for i := int(p.a) & mask; t.slots[i] != 0; i = (i + 1) & mask {
		s := t.slots[i]
		if (s^uint32(p.b))&^placeMask != 0 {
			continue
		}
		if at := int(s&placeMask) - 1; at == place || place < 0 && t.entries[at].fingerprint == p {
			return i
		}
	}
	return -1
}

// markShown finds and marks an item unchanged since the listing before and not yet shown by the
// present, and reports whether there is such an item.
func (t *fingerprintTable[R]) markShown(p fingerprint, round uint32) bool {
	i := t.find(p)
	if i < 0 || t.shown(i, round) {
		return false
	}
	t.entries[i].round = round
	return true
}

// shown reports whether the present listing has shown the entry at a place.
func (t *fingerprintTable[R]) shown(place int, round uint32) bool {
	return t.allShownBy == round || t.entries[place].round == round
}

// begin starts a listing.
func (t *fingerprintTable[R]) begin() { t.last, t.stable, t.changed = -1, !t.changed, false }

// live returns the number of entries.
func (t *fingerprintTable[R]) live() int { return len(t.entries) - t.dead }

// markAllShown reports whether the items of a whole list are exactly the entries, and if so, marks
// all n entries shown. A single look-up for the list replaces a look-up for each item, which would
// wait for memory.
func (t *fingerprintTable[R]) markAllShown(w *segments, list mem.BufferSlice, of func(raw []byte) (fingerprint, bool), round uint32) (n int, same bool) {
	if !t.stable {
		return 0, false
	}
	var sum fingerprint
	all := t.live()
	ok := w.walk(list, itemsField, func(raw []byte) bool {
		p, quick := of(raw)
		sum = sum.plus(p)
		n++
		return quick && n <= all
	})
	if !ok || n != all || sum != t.sum {
		t.stable, t.changed = false, true // nor is the next listing asked
		return n, false
	}
	t.allShownBy = round
	return n, true
}

// add makes an entry for a record without one.
func (t *fingerprintTable[R]) add(p fingerprint, record R, round uint32) {
	if 2*(len(t.entries)+1) > len(t.slots) {
		t.rebuild()
	}
	place := len(t.entries)
	t.entries = append(t.entries, entry[R]{fingerprint: p, record: record, round: round, live: true})
	record.setPlace(place)
	t.sum, t.changed = t.sum.plus(p), true
	t.insert(place)
}

// change gives the entry at a place another fingerprint.
func (t *fingerprintTable[R]) change(place int, p fingerprint) {
	t.evict(place)
	t.sum, t.changed = t.sum.minus(t.entries[place].fingerprint).plus(p), true
	t.entries[place].fingerprint = p
	t.insert(place)
}

// remove ends the entry at a place.
func (t *fingerprintTable[R]) remove(place int) {
	t.evict(place)
	t.sum, t.changed = t.sum.minus(t.entries[place].fingerprint), true
	t.entries[place].record.setPlace(-1)
	t.entries[place] = entry[R]{}
	t.dead++
}

// insert puts the entry at a place into the slots, where there is room.
func (t *fingerprintTable[R]) insert(place int) {
	p, mask := t.entries[place].fingerprint, len(t.slots)-1
	i := int(p.a) & mask
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = p.slot(place)
}

// evict takes the entry at a place out of the slots, and moves up later slots that would no longer
// be found.
func (t *fingerprintTable[R]) evict(place int) {
	mask := len(t.slots) - 1
	free := t.slotOf(t.entries[place].fingerprint, place)
	for i := (free + 1) & mask; t.slots[i] != 0; i = (i + 1) & mask {
		home := int(t.entries[t.slots[i]&placeMask-1].fingerprint.a) & mask
		if (i-home)&mask >= (i-free)&mask {
			t.slots[free] = t.slots[i]
			free = i
		}
	}
	t.slots[free] = 0
}

// compact drops dead entries if there are many, and keeps the order.
func (t *fingerprintTable[R]) compact() {
	if t.dead > minSlots+len(t.entries)/4 {
		t.rebuild()
	}
}

// rebuild drops the dead entries, and makes slots for a third more than there are.
func (t *fingerprintTable[R]) rebuild() {
	live := t.entries[:0]
	for _, e := range t.entries {
		if e.live {
			e.record.setPlace(len(live))
			live = append(live, e)
		}
	}
	clear(t.entries[len(live):])
	t.entries, t.dead, t.last = live, 0, -1
	size := minSlots
	for size < 2*(len(live)+len(live)/3+1) {
		size *= 2
	}
	if size == len(t.slots) {
		clear(t.slots)
	} else {
		t.slots = make([]uint32, size)
	}
	for place := range t.entries {
		t.insert(place)
	}
}
