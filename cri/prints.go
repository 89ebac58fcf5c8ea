// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"encoding/binary"
	"hash/maphash"

	"google.golang.org/grpc/mem"
)

// print stands for all that a listing says of one item: 128 bits of two hashes with seeds of their
// own, made anew in each process. Two items that differ have the same print with a chance of one in
// 2^128, whatever a runtime sends, because it does not know the seeds (ADR 50).
type print struct{ a, b uint64 }

// printer makes prints. It belongs to one goroutine.
type printer struct {
	seeds [2]maphash.Seed
	key   []byte
}

func newPrinter() printer {
	return printer{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// of returns the print of an ID, two more texts, and a few bits.
func (p *printer) of(id, x, y []byte, bits uint32) print {
	key := append(append(append(p.key[:0], id...), x...), y...)
	key = binary.LittleEndian.AppendUint32(key, uint32(len(id))) // so that no two ways of dividing one text are alike
	key = binary.LittleEndian.AppendUint32(key, uint32(len(x)))
	key = binary.LittleEndian.AppendUint32(key, bits)
	if p.key = key; cap(key) > maxKeptScratch {
		p.key = nil
	}
	return print{maphash.Bytes(p.seeds[0], key), maphash.Bytes(p.seeds[1], key)}
}

// prints is the set of what the last listing showed, by print. Entries lie in the order in which
// they came, and the one after the entry found last is tried first: a list in the order of the one
// before is compared in one pass through memory. In any other order an entry is found through
// slots, a table that is small enough for a processor's cache: four bytes for each, at most half of
// them in use.
//
// R is a pointer to a record, which knows the place of its entry.
type prints[R interface{ put(place int) }] struct {
	entries []entry[R]
	// slots hold a place plus one in their low bits, and some bits of the print above; zero if
	// free. A print's slot is the first free one at its home or after, circularly.
	slots []uint32
	// dead counts the entries that are no more.
	dead int
	// last is the place of the entry found last.
	last int
	// sum is that of the prints of all entries. A list of as many items with the same sum shows just
	// these, in whatever order (ADR 58).
	sum print
	// whole is the last listing that showed every entry there was, by its sum; such a listing
	// leaves the rounds of the entries as they are.
	whole uint32
	// moved says that an entry was added, changed or removed by the present listing; settled that
	// none was by the one before, so that the sum is worth a try.
	moved, settled bool
}

// entry is one print and the record that it stands for.
type entry[R any] struct {
	print  print
	record R
	// round is the last listing that showed the item.
	round uint32
	live  bool
}

const (
	// placeBits bound the places: two listings of maxListed items, and as many dead entries again.
	placeBits = 22
	placeMask = 1<<placeBits - 1
	minSlots  = 16
)

// plus returns the sum of two prints, which is one of each half.
func (p print) plus(q print) print { return print{p.a + q.a, p.b + q.b} }

// minus returns what plus made p of.
func (p print) minus(q print) print { return print{p.a - q.a, p.b - q.b} }

// slot returns what a slot holds for a print at a place.
func (p print) slot(place int) uint32 { return uint32(p.b)&^placeMask | uint32(place+1) }

// find returns the place of a print, -1 if there is none.
func (t *prints[R]) find(p print) int {
	if i := t.last + 1; i < len(t.entries) && t.entries[i].print == p && t.entries[i].live {
		t.last = i
		return i
	}
	if i := t.slotOf(p, -1); i >= 0 {
		t.last = int(t.slots[i]&placeMask) - 1
		return t.last
	}
	return -1
}

// slotOf returns the slot of a print, of the one at a place if that is not negative; -1 if there is
// none.
func (t *prints[R]) slotOf(p print, place int) int {
	if len(t.slots) == 0 {
		return -1
	}
	mask := len(t.slots) - 1
	for i := int(p.a) & mask; t.slots[i] != 0; i = (i + 1) & mask {
		s := t.slots[i]
		if (s^uint32(p.b))&^placeMask != 0 {
			continue
		}
		if at := int(s&placeMask) - 1; at == place || place < 0 && t.entries[at].print == p {
			return i
		}
	}
	return -1
}

// show finds an item that the present listing has not shown yet and that has not changed since the
// one before. It reports whether there is one.
func (t *prints[R]) show(p print, round uint32) bool {
	i := t.find(p)
	if i < 0 || t.shown(i, round) {
		return false
	}
	t.entries[i].round = round
	return true
}

// shown reports whether a listing, the present one, has shown the entry at a place.
func (t *prints[R]) shown(place int, round uint32) bool {
	return t.whole == round || t.entries[place].round == round
}

// begin starts a listing.
func (t *prints[R]) begin() { t.last, t.settled, t.moved = -1, !t.moved, false }

// live returns the number of entries.
func (t *prints[R]) live() int { return len(t.entries) - t.dead }

// showAll reports whether the items of a whole list are just the entries, and if so, notes that a
// listing showed all n of them. One look-up for the list takes the place of one for each item,
// which would wait for memory.
func (t *prints[R]) showAll(w *segments, list mem.BufferSlice, of func(raw []byte) (print, bool), round uint32) (n int, same bool) {
	if !t.settled {
		return 0, false
	}
	var sum print
	all := t.live()
	ok := w.walk(list, itemsField, func(raw []byte) bool {
		p, quick := of(raw)
		sum = sum.plus(p)
		n++
		return quick && n <= all
	})
	if !ok || n != all || sum != t.sum {
		t.settled, t.moved = false, true // nor is the next listing asked
		return n, false
	}
	t.whole = round
	return n, true
}

// add makes an entry of a record that has none.
func (t *prints[R]) add(p print, record R, round uint32) {
	if 2*(len(t.entries)+1) > len(t.slots) {
		t.rebuild()
	}
	place := len(t.entries)
	t.entries = append(t.entries, entry[R]{print: p, record: record, round: round, live: true})
	record.put(place)
	t.sum, t.moved = t.sum.plus(p), true
	t.link(place)
}

// change gives the entry at a place another print.
func (t *prints[R]) change(place int, p print) {
	t.unlink(place)
	t.sum, t.moved = t.sum.minus(t.entries[place].print).plus(p), true
	t.entries[place].print = p
	t.link(place)
}

// remove ends the entry at a place.
func (t *prints[R]) remove(place int) {
	t.unlink(place)
	t.sum, t.moved = t.sum.minus(t.entries[place].print), true
	t.entries[place].record.put(-1)
	t.entries[place] = entry[R]{}
	t.dead++
}

// link puts the entry at a place into the slots, where there is room.
func (t *prints[R]) link(place int) {
	p, mask := t.entries[place].print, len(t.slots)-1
	i := int(p.a) & mask
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = p.slot(place)
}

// unlink takes the entry at a place out of the slots, and moves up those behind it that would not
// be found any more.
func (t *prints[R]) unlink(place int) {
	mask := len(t.slots) - 1
	free := t.slotOf(t.entries[place].print, place)
	for i := (free + 1) & mask; t.slots[i] != 0; i = (i + 1) & mask {
		home := int(t.entries[t.slots[i]&placeMask-1].print.a) & mask
		if (i-home)&mask >= (i-free)&mask {
			t.slots[free] = t.slots[i]
			free = i
		}
	}
	t.slots[free] = 0
}

// tidy drops the dead entries if they are many. It keeps the order.
func (t *prints[R]) tidy() {
	if t.dead > minSlots+len(t.entries)/4 {
		t.rebuild()
	}
}

// rebuild drops the dead entries, and makes slots for a third more than there are.
func (t *prints[R]) rebuild() {
	live := t.entries[:0]
	for _, e := range t.entries {
		if e.live {
			e.record.put(len(live))
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
		t.link(place)
	}
}
