// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"fmt"
	"time"
	"unsafe"
)

// search is a breadth-first search through all states of a scope. All states are kept, so equal
// hashes cannot hide one.
type search struct {
	w           *world
	symmetric   bool
	states      []state
	parent      []uint32
	table       []uint32 // open addressing: index into states, plus one
	transitions int
	depth       int
	complete    bool // a fixpoint: no state is left from which anything new follows
	bad         string
	trace       []string // the shortest way to the violation
	took        time.Duration
}

func (b *search) add(s *state, parent uint32) {
	if 2*len(b.states)+2 > len(b.table) {
		b.table = make([]uint32, max(1<<12, 2*len(b.table)))
		for i := range b.states {
			b.table[b.slot(&b.states[i])] = uint32(i + 1)
		}
	}
	k := b.slot(s)
	if b.table[k] != 0 {
		return
	}
	b.states, b.parent = append(b.states, *s), append(b.parent, parent)
	b.table[k] = uint32(len(b.states))
}

func (b *search) slot(s *state) uint64 {
	mask := uint64(len(b.table) - 1)
	for k := s.hash() & mask; ; k = (k + 1) & mask {
		if i := b.table[k]; i == 0 || b.states[i-1] == *s {
			return k
		}
	}
}

// explore searches a scope until nothing new is found, a violation is, or so many states are.
func explore(sc scope, maxStates int) *search {
	w := newWorld(sc)
	b := &search{w: w, symmetric: w.n == 2 && !sc.sandbox}
	begin := time.Now()
	defer func() { b.took = time.Since(begin) }()
	b.add(&state{front: 1}, 0)
	level := 1
	for at := 0; at < len(b.states); at++ {
		if at == level {
			b.depth, level = b.depth+1, len(b.states)
		}
		if len(b.states) > maxStates {
			return b
		}
		s := b.states[at]
		if w.checkState(&s); w.bad == "" {
			w.drain(s, true)
		}
		if w.bad == "" && s.list.on && s.insp.on {
			w.drain(s, false)
		}
		if w.bad != "" {
			b.convict(at, "")
			return b
		}
		w.next(&s, func(n *state, t step) {
			b.transitions++
			if w.bad != "" {
				if b.bad == "" {
					b.convict(at, t.String())
				}
				return
			}
			c := *n
			c.canon(w, b.symmetric)
			b.add(&c, uint32(at))
		})
		if b.bad != "" {
			return b
		}
	}
	b.complete = true
	return b
}

// convict keeps the violation and the shortest way to it.
func (b *search) convict(at int, last string) {
	b.bad = b.w.bad
	var path []int
	for i := at; i != 0; i = int(b.parent[i]) {
		path = append(path, i)
	}
	w, from := newWorld(b.w.scope), 0
	for k := len(path) - 1; k >= 0; k-- {
		found := false
		s := b.states[from]
		w.next(&s, func(n *state, t step) {
			c := *n
			c.canon(w, b.symmetric)
			if !found && c == b.states[path[k]] {
				found = true
				b.trace = append(b.trace, t.String())
			}
		})
		from = path[k]
	}
	if last != "" {
		b.trace = append(b.trace, last)
	}
}

func (b *search) String() string {
	end := "FIXPOINT"
	if b.bad != "" {
		end = fmt.Sprintf("%s (%d steps)", b.bad, len(b.trace))
	} else if !b.complete {
		end = "bound reached"
	}
	bytes := len(b.states)*int(unsafe.Sizeof(state{})+4) + 4*len(b.table)
	return fmt.Sprintf("%-9s %10d states %11d transitions, depth %2d %8.1fs %6d MB  %s",
		b.w.name, len(b.states), b.transitions, b.depth, b.took.Seconds(), bytes>>20, end)
}
