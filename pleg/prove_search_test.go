// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/evented-pleg/evented-pleg/cache"
)

var proveCore, proveRest *coder

func init() {
	proveCore = coderOf(reflect.TypeFor[core[status]](), moment)
	proveRest = coderOf(reflect.TypeFor[proveWorld](), moment)
}

// save writes the present state down in its canonical form, and leaves out of it what that leaves
// out.
func (v *prover) save() []byte {
	v.pack()
	v.normalize()
	v.dropLooks()
	v.write()
	return v.form(v.q.canon(&v.enc, v.oldest()))
}

// oldest returns the begin of the oldest read under way, or that a read to come may build upon.
func (v *prover) oldest() instant {
	at := v.core.oldestRead(v.world.now)
	for _, p := range v.core.pods {
		if p.listing != nil {
			at = min(at, p.listingBegan)
		}
	}
	return at
}

// write encodes the core and the world.
func (v *prover) write() {
	e := &v.enc
	e.buf, e.at, e.kind, e.objs = e.buf[:0], e.at[:0], e.kind[:0], e.objs[:0]
	proveCore.enc(e, unsafe.Pointer(v.core))
	proveRest.enc(e, unsafe.Pointer(&v.world))
}

// form joins what was encoded and the instants.
func (v *prover) form(at []instant) []byte {
	b := make([]byte, 0, len(v.enc.buf)+6*len(at)+2)
	b = append(b, byte(len(v.enc.buf)), byte(len(v.enc.buf)>>8))
	b = append(b, v.enc.buf...)
	for _, i := range at {
		b = append(b, byte(i), byte(i>>8), byte(i>>16), byte(i>>24), byte(i>>32), byte(i>>40))
	}
	return b
}

// load makes a written state the present one.
func (v *prover) load(b []byte) {
	n := int(b[0]) | int(b[1])<<8
	d := decoder{buf: b[2 : 2+n], at: v.q.out[:0]}
	for t := b[2+n:]; len(t) > 0; t = t[6:] {
		i := instant(t[0]) | instant(t[1])<<8 | instant(t[2])<<16 | instant(t[3])<<24 | instant(t[4])<<32 | instant(t[5])<<40
		if i == 1<<48-1 {
			i = never
		}
		d.at = append(d.at, i)
	}
	v.q.out = d.at
	c := v.template
	v.core = &c
	proveCore.dec(&d, unsafe.Pointer(v.core))
	v.world = proveWorld{}
	proveRest.dec(&d, unsafe.Pointer(&v.world))
	v.unpack()
}

// pack takes the cache into the world.
func (v *prover) pack() {
	w := &v.world
	w.entries, w.gone, w.global = nil, nil, 0
	slices.SortFunc(w.reads, func(a, b *proveRead) int { return strings.Compare(string(a.uid), string(b.uid)) })
	if g := v.cache.Global(); !g.IsZero() {
		w.global = v.clk.instant(g)
	}
	for _, uid := range v.cache.UIDs() {
		s, err := v.cache.Get(uid)
		w.entries = append(w.entries, proveEntry{uid, sortedItems(s.Items), s.Items != nil, err != nil, v.asOfNow(uid)})
	}
	for _, uid := range []cache.UID{"p", "q"} {
		if at := v.asOfNow(uid); at > w.global && v.core.guard.tombstones[uid] != 0 {
			w.gone = append(w.gone, proveTomb{uid, at})
		}
	}
}

// dropLooks forgets what there was at instants that nothing will come to be as of any more, and of
// the others what makes no difference.
func (v *prover) dropLooks() {
	w := &v.world
	kept := w.looks[:0]
	for _, l := range w.looks {
		if v.asOfSome(l.at) {
			v.raise(&l.low)
			kept = append(kept, l)
		}
	}
	w.looks = kept
	for _, r := range w.reads {
		v.raise(&r.low)
	}
	if w.list != nil {
		v.raise(&w.list.low)
	}
}

// raise leaves out of what an ID has lived through the stages whose phase it has been in again.
func (v *prover) raise(low *[proveIDs]uint8) {
	for i := range v.scope.ids {
		shows, stage := v.scope.ids[i].shows, v.world.ids[i].stage
		for low[i] < stage && shows[low[i]] == shows[low[i]+1] {
			low[i]++
		}
	}
}

// asOfSome says that something may come to be as of an instant, or be changed that is.
func (v *prover) asOfSome(at instant) bool {
	w, c := &v.world, v.core
	if w.list != nil && w.list.began == at {
		return true
	}
	for _, r := range w.reads {
		if r.began == at {
			return true
		}
	}
	for _, r := range c.rounds {
		if r.began == at {
			return true
		}
	}
	for _, p := range c.pods {
		switch {
		case v.scope.payloads && p.hasStatus && at == c.asOf(p),
			at == p.read && v.roundBy(at),
			p.listing != nil && at == p.listingBegan:
			return true
		}
	}
	return false
}

// roundBy says that a round may wait for a pod that was read at that time, and take it as it was then.
func (v *prover) roundBy(at instant) bool {
	c := v.core
	return c.lists.inflight && c.lists.began <= at || slices.ContainsFunc(c.rounds, func(r round) bool { return r.began <= at })
}

// unpack makes a real cache of what the world has of it.
func (v *prover) unpack() {
	w := &v.world
	v.cache = newProveCache()
	if w.global != 0 {
		v.cache.Advance(v.clk.time(w.global))
	}
	for i := range w.entries {
		e := &w.entries[i]
		at := v.clk.time(e.at)
		if e.status {
			v.cache.Set(e.uid, &status{UID: e.uid, Items: append([]Item{}, e.items...)}, nil, at)
		}
		if e.failed {
			v.cache.Set(e.uid, nil, errProve, at)
		}
	}
	for _, t := range w.gone {
		v.cache.Delete(t.uid, v.clk.time(t.at))
	}
	if f := v.core.guard.floor; f != 0 {
		v.cache.Prune(v.clk.time(f))
	}
	v.exec.cfg.Cache = v.cache
	v.exec.counted = v.core.count
	v.exec.mistakes, v.exec.overflowed, v.exec.refused = 0, false, nil
	v.wrong, v.before, v.ticked = "", v.view(), 0
	for i := range v.scope.ids {
		v.beforeAt[i] = v.asOfNow(v.scope.ids[i].pod)
	}
	v.begun, v.views = v.begun[:0], v.views[:0]
}

// proveSearch is a breadth-first search through all states of a scope.
type proveSearch struct {
	scope       *proveScope
	limit       int
	drains      int // every so many-th state is drained
	workers     int
	seen        proveSet
	parents     []uint32
	moves       []uint16
	first       []byte
	mu          sync.Mutex // owns parents, moves, next
	next        []proveState
	transitions atomic.Int64
	drained     atomic.Int64
	depth       int
	complete    bool
	stop        atomic.Bool
	bad         string
	trace       []string
	took        time.Duration
	bytes       int
	keep        bool
	forms       [][]byte
}

type proveState struct {
	id   uint32
	form []byte
}

// proveSet is a set of 128-bit hashes.
type proveSet struct {
	seeds  [2]maphash.Seed
	shards [256]struct {
		mu sync.Mutex
		m  map[[2]uint64]struct{}
	}
}

// add reports whether a form is new.
func (s *proveSet) add(form []byte) bool {
	h := [2]uint64{maphash.Bytes(s.seeds[0], form), maphash.Bytes(s.seeds[1], form)}
	k := &s.shards[h[0]>>56]
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.m[h]; ok {
		return false
	}
	if k.m == nil {
		k.m = make(map[[2]uint64]struct{})
	}
	k.m[h] = struct{}{}
	return true
}

// run searches until nothing new is found, a violation is, or there are too many states.
func (b *proveSearch) run() {
	began := time.Now()
	defer func() { b.took = time.Since(began) }()
	b.seen.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	v := newProver(b.scope)
	v.begin()
	b.first = v.save()
	if v.wrong != "" {
		b.bad = v.wrong
		return
	}
	b.found(b.first, 0, 0)
	for len(b.next) > 0 && len(b.parents) < b.limit {
		level := b.next
		b.next = nil
		b.level(level)
		if b.bad != "" {
			return
		}
		b.depth++
	}
	b.complete = len(b.next) == 0
}

// level looks at all states of one depth.
func (b *proveSearch) level(level []proveState) {
	var at atomic.Int64
	var group sync.WaitGroup
	for range b.workers {
		group.Go(func() {
			v := newProver(b.scope)
			for !b.stop.Load() {
				k := int(at.Add(1)) - 1
				if k >= len(level) {
					return
				}
				b.expand(v, &level[k])
			}
		})
	}
	group.Wait()
}

// expand looks at what may follow a state.
func (b *proveSearch) expand(v *prover, s *proveState) {
	if b.drains > 0 && int(s.id)%b.drains == 0 {
		b.drained.Add(1)
		v.load(s.form)
		if v.drain(); v.wrong != "" {
			b.convict(v.wrong, s, -1)
			return
		}
	}
	v.load(s.form)
	moves := append([]proveMove(nil), v.moves()...)
	for k := range moves {
		if k > 0 {
			v.load(s.form)
		}
		v.do(&moves[k])
		b.transitions.Add(1)
		if v.wrong != "" {
			b.convict(v.wrong, s, k)
			return
		}
		form := v.save()
		if !b.found(form, s.id, uint16(k)) {
			continue
		}
		if v.ticked == 0 {
			continue // the core has been told nothing
		}
		if err := v.invariants(v.ticked); err != nil {
			b.convict(fmt.Sprintf("INVARIANT: %v", err), s, k)
			return
		}
	}
}

// found enters a state, unless it is known.
func (b *proveSearch) found(form []byte, parent uint32, move uint16) bool {
	if !b.seen.add(form) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	id := uint32(len(b.parents))
	b.parents, b.moves = append(b.parents, parent), append(b.moves, move)
	b.next = append(b.next, proveState{id, form})
	b.bytes += len(form)
	if b.keep {
		b.forms = append(b.forms, form)
	}
	return true
}

// convict keeps the first violation, and the shortest way to it.
func (b *proveSearch) convict(wrong string, s *proveState, last int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop.Store(true)
	if b.bad != "" {
		return
	}
	b.bad = wrong
	var path []int
	if last >= 0 {
		path = append(path, last)
	}
	for id := s.id; id != 0; id = b.parents[id] {
		path = append(path, int(b.moves[id]))
	}
	v := newProver(b.scope)
	form := b.first
	for i := len(path) - 1; i >= 0; i-- {
		v.load(form)
		m := v.moves()[path[i]]
		b.trace = append(b.trace, m.String())
		v.do(&m)
		form = v.save()
	}
}

func (b *proveSearch) String() string {
	end := "FIXPOINT"
	if b.bad != "" {
		end = fmt.Sprintf("%s (%d moves)", b.bad, len(b.trace))
	} else if !b.complete {
		end = "bound reached"
	}
	n := len(b.parents)
	rate := float64(b.transitions.Load()) / b.took.Seconds()
	return fmt.Sprintf("%-9s %10d states %11d transitions, depth %2d, %9d drained %8.1fs (%.0f/s, %d B a state)  %s",
		b.scope.name, n, b.transitions.Load(), b.depth, b.drained.Load(), b.took.Seconds(), rate, b.bytes/max(1, n), end)
}
