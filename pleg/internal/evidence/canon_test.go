// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import "unsafe"

// canon renumbers the ranks, so that states which no rule can tell apart become the same: only the
// order of those that are compared is kept. There are two groups. To, AsOf, Moved and t are compared
// with the begin of a read under way, or to come; claims, and removals decided, with the instants one
// grace before those, and before now.
func (s *state) canon(w *world, symmetric bool) {
	var claims, begins marks
	for i := range w.n {
		x := &s.pod.ids[i]
		if x.claim != None {
			if w.oldForAll(s, x.at) {
				x.at = 1
			} else {
				claims.add(x.at)
			}
		}
		if s.since[i] != 0 {
			claims.add(rank(s.since[i]))
		}
	}
	for _, f := range []*flight{&s.list, &s.insp} {
		if f.on {
			begins.add(f.from)
		}
	}
	s.canonPod(w, &claims, &begins)
	for i := range w.n {
		if s.since[i] != 0 {
			s.since[i] = uint8(1 + claims.notAfter(rank(s.since[i])))
		}
	}
	if s.waiting {
		s.t = begins.between(s.t)
	}
	s.front = 1 + claims.notAfter(s.front)
	for _, f := range []*flight{&s.list, &s.insp} {
		if f.on {
			f.from, f.cut = 2*begins.notAfter(f.from), 1+claims.notAfter(f.cut)
		}
	}
	if !w.payloads {
		s.asOfLow = [ids]uint8{}
	}
	if symmetric {
		t := *s
		t.swap()
		if string(t.bytes()) < string(s.bytes()) {
			*s = t
		}
	}
}

// oldForAll says that a claim is older than the grace for all reads under way and to come.
func (w *world) oldForAll(s *state, at rank) bool {
	return at <= s.front && (!s.list.on || at <= s.list.cut) && (!s.insp.on || at <= s.insp.cut)
}

func (s *state) canonPod(w *world, claims, begins *marks) {
	p := &s.pod
	for i := range w.n {
		x := &p.ids[i]
		if x.at > 1 {
			x.at = 1 + claims.notAfter(x.at)
		}
		if x.seen != None {
			x.to = begins.between(x.to)
		}
	}
	overtaken := s.insp.on && p.asOf > s.insp.from
	p.asOf = begins.between(p.asOf)
	if !w.payloads && !w.listing && !overtaken {
		p.asOf = 0
	}
	switch {
	case p.moved == 0:
	case w.lists:
		p.moved = begins.between(p.moved)
	case s.insp.on && p.moved >= s.insp.from:
		p.moved = 20
	default:
		p.moved = 1
	}
	if !w.deltas {
		p.departed, p.listed, s.lastList = false, [ids]Phase{}, [ids]Phase{}
	}
}

// marks is a sorted list of ranks.
type marks struct {
	at [2 * ids]rank
	n  int
}

func (l *marks) add(x rank) {
	k := l.n
	for k > 0 && l.at[k-1] >= x {
		k--
	}
	if k < l.n && l.at[k] == x {
		return
	}
	copy(l.at[k+1:l.n+1], l.at[k:l.n])
	l.at[k] = x
	l.n++
}

// notAfter counts the marks up to x.
func (l *marks) notAfter(x rank) rank {
	k := 0
	for k < l.n && l.at[k] <= x {
		k++
	}
	return rank(k)
}

// between numbers x among the marks: 2, 4, … are the marks, 1, 3, … is what lies between.
func (l *marks) between(x rank) rank {
	k := l.notAfter(x)
	if k > 0 && l.at[k-1] == x {
		return 2 * k
	}
	return 2*k + 1
}

// swap exchanges the two IDs.
func (s *state) swap() {
	bytes := []*[ids]uint8{&s.stage, &s.since, &s.ever, &s.tLow, &s.asOfLow, &s.list.low, &s.insp.low}
	for _, a := range bytes {
		a[0], a[1] = a[1], a[0]
	}
	for _, a := range []*[ids]Phase{&s.list.look, &s.insp.look, &s.lastList, &s.pod.listed} {
		a[0], a[1] = a[1], a[0]
	}
	s.heard[0], s.heard[1] = s.heard[1], s.heard[0]
	s.pod.ids[0], s.pod.ids[1] = s.pod.ids[1], s.pod.ids[0]
	if s.verb != None {
		s.callID = 1 - s.callID
	}
}

// bytes is the state's memory: it has neither pointers nor padding, since each field is a byte wide.
func (s *state) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s)) }

func (s *state) hash() uint64 {
	h, b := uint64(0x9e3779b97f4a7c15), s.bytes()
	for ; len(b) >= 8; b = b[8:] {
		h = (h ^ *(*uint64)(unsafe.Pointer(&b[0]))) * 0x9fb21c651e98df25
		h ^= h >> 29
	}
	for _, x := range b {
		h = (h ^ uint64(x)) * 0x100000001b3
		h ^= h >> 32
	}
	return h
}
