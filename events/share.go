// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

// shares holds the series of a bounded part of the table, by namespace. Namespaces share the room:
// a single one may use all of it, and where all is used, one with less gets a place of the one with
// the most. Guarded by the broadcaster's lock.
type shares struct {
	by     map[string]*share
	bySize indexed[*share] // the largest first
	n      int
	spare  *share // to be used again, nil for none
}

// share holds the series of a namespace, the latest last.
type share struct {
	chain[series, *series]
	index int // in bySize, -1 for none
}

func newShares() *shares {
	return &shares{
		by: map[string]*share{},
		bySize: indexed[*share]{
			less:  func(a, b *share) bool { return a.n > b.n },
			index: func(l *share) *int { return &l.index },
		},
	}
}

// hold puts a series into its share, or moves it there from another part; nil takes it out.
func (s *series) hold(in *shares) {
	if s.in == in {
		return
	}
	if s.in != nil {
		s.in.remove(s)
	}
	s.in = in
	s.part = nil
	if in != nil {
		in.add(s)
	}
}

func (h *shares) add(s *series) {
	namespace := s.content.namespace
	l := h.by[namespace]
	if l == nil {
		l = h.spare
		h.spare = nil
		if l == nil {
			l = &share{index: -1}
		}
		h.by[namespace] = l
	}
	s.part = l
	l.put(s, l.last)
	h.bySize.set(l, true)
	h.n++
}

// renew makes a series the latest of its namespace.
func (l *share) renew(s *series) {
	if l.last != s {
		l.remove(s)
		l.put(s, l.last)
	}
}

func (h *shares) remove(s *series) {
	l := s.part
	l.remove(s)
	h.bySize.set(l, l.n > 0)
	h.n--
	if l.n == 0 {
		delete(h.by, s.content.namespace)
		h.spare = l
	}
}

// of returns how many series of a namespace are held.
func (h *shares) of(namespace string) int {
	l := h.by[namespace]
	if l == nil {
		return 0
	}
	return l.n
}

// sought is how many series are looked at for one to give way.
const sought = 64

// givesWay returns the series to be given up for a new series of the given namespace: of the
// namespace with the most, the latest, of those without a call of unknown effect. Nil if no other
// namespace has more.
func (h *shares) givesWay(namespace string) (found *series) {
	own := h.of(namespace) + 1
	if 2*own > h.n+1 {
		return nil
	}
	most := h.bySize.items[0]
	if own >= most.n {
		return nil
	}
	s := most.last
	for range min(sought, most.n) {
		switch {
		case s.inflight:
		case s.st.certain():
			return s
		case found == nil:
			found = s
		}
		s = s.prev
	}
	return found
}
