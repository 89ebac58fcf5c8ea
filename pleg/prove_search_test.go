// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// proveSearch is a breadth-first search through all states of a scope.
type proveSearch struct {
	sc    *proveScope
	codec *proveCodec
	limit int

	mu      sync.Mutex // owns the fields below
	seen    map[[2]uint64]struct{}
	seeds   [2]maphash.Seed
	parents []uint32 // of each state
	by      []uint16 // the number of the move that leads to each state
	next    []proveState
	first   []byte
	bad     string
	trace   []string

	transitions atomic.Int64
	stop        atomic.Bool
	depth       int
	took        time.Duration
}

type proveState struct {
	id   uint32
	form []byte
}

// run searches until no new state, a violation or too many states are found.
func (b *proveSearch) run(workers int) {
	defer func(began time.Time) { b.took = time.Since(began) }(time.Now())
	b.codec, b.seen = newProveCodec(b.sc), make(map[[2]uint64]struct{})
	b.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	v := newProver(b.sc, b.codec)
	v.begin()
	if b.bad = v.wrong; b.bad != "" {
		return
	}
	b.first = v.save()
	b.found(b.first, 0, 0)
	for len(b.next) > 0 && len(b.parents) < b.limit && !b.stop.Load() {
		level := b.next
		b.next, b.depth = nil, b.depth+1
		var at atomic.Int64
		var group sync.WaitGroup
		for range workers {
			group.Go(func() {
				v := newProver(b.sc, b.codec)
				for k := int(at.Add(1)); k <= len(level) && !b.stop.Load(); k = int(at.Add(1)) {
					b.expand(v, &level[k-1])
				}
			})
		}
		group.Wait()
	}
}

// expand drains a state, and finds the states that may follow.
func (b *proveSearch) expand(v *prover, s *proveState) {
	v.load(s.form)
	moves := slices.Clone(v.moves())
	for k := range moves {
		v.load(s.form)
		v.do(&moves[k])
		b.transitions.Add(1)
		ticked := v.ticked
		if v.wrong == "" && b.found(v.save(), s.id, k) && ticked { // else the core has not been told anything
			if err := v.invariants(); err != nil {
				v.fail("INVARIANT: %v", err)
			}
		}
		if v.wrong != "" {
			b.convict(v, v.wrong, append(b.path(s.id), k))
			return
		}
	}
	v.load(s.form)
	if v.drain(); v.wrong != "" {
		b.convict(v, v.wrong, b.path(s.id))
	}
}

// found enters a state, and reports whether the state is new.
func (b *proveSearch) found(form []byte, parent uint32, move int) bool {
	key := [2]uint64{maphash.Bytes(b.seeds[0], form), maphash.Bytes(b.seeds[1], form)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.seen[key]; ok {
		return false
	}
	b.seen[key] = struct{}{}
	b.next = append(b.next, proveState{uint32(len(b.parents)), form})
	b.parents, b.by = append(b.parents, parent), append(b.by, uint16(move))
	return true
}

// path returns the moves that lead to a state.
func (b *proveSearch) path(id uint32) (path []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ; id != 0; id = b.parents[id] {
		path = append(path, int(b.by[id]))
	}
	slices.Reverse(path)
	return path
}

// convict keeps the first violation, with one of the shortest ways to it.
func (b *proveSearch) convict(v *prover, wrong string, path []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop.Swap(true) {
		return
	}
	b.bad = wrong
	form := b.first
	for _, k := range path {
		v.load(form)
		m := v.moves()[k]
		b.trace = append(b.trace, m.String())
		v.do(&m)
		form = v.save()
	}
}

func (b *proveSearch) complete() bool { return b.bad == "" && len(b.next) == 0 }

func (b *proveSearch) String() string {
	end := "fixpoint"
	if b.bad != "" {
		end = "violation"
	} else if !b.complete() {
		end = "bound reached"
	}
	n := b.transitions.Load()
	return fmt.Sprintf("%-9s %9d states, drained, %10d transitions, depth %2d, %7.1fs (%.0f/s): %s",
		b.sc.name, len(b.parents), n, b.depth, b.took.Seconds(), float64(n)/b.took.Seconds(), end)
}

// String shows a state.
func (v *prover) String() string {
	c := *v.core
	var s strings.Builder
	s.WriteString(fmt.Sprintf("%+v\n%+v %+v", v.w, c.stream.conn, c.lists))
	for _, p := range inOrder(keysOf(c.pods)) {
		s.WriteString(fmt.Sprintf("\n%+v", *p))
		for _, x := range p.items {
			s.WriteString(fmt.Sprintf("\n\t%+v", *x))
		}
		if f, ok := c.reads.inflight[p]; ok {
			s.WriteString(fmt.Sprintf("\n\t%+v", f))
		}
	}
	for _, r := range append(v.w.reads, v.w.list) {
		if r != nil {
			s.WriteString(fmt.Sprintf("\n%+v", *r))
		}
	}
	return s.String() + fmt.Sprintf("\nrounds %v early %v gone %v candidates %+v uncertain %d floor %d sched %+v mute %+v",
		c.lists.rounds, c.evidence.early, c.gone, c.trust.open, c.uncertain, c.floor, c.trust.sched, c.trust.mute)
}

func keysOf(pods map[cache.UID]*pod) map[*pod]struct{} {
	keys := make(map[*pod]struct{})
	for _, p := range pods {
		keys[p] = struct{}{}
	}
	return keys
}
