// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// entry is one input of a history, with the time at which the core was told and what it wanted
// then.
type entry struct {
	in  input[status]
	now instant
	do  todo[status]
}

// record keeps an entry. The input and the actions are used again afterwards, and so are copied.
func (j *journal) record(in input[status], now instant, do *todo[status]) {
	*j = append(*j, copied(entry{in, now, *do}))
}

type journal []entry

// replay tells a core what the journal says, and returns how the first actions differ from those of
// the journal; nil if none do.
func (j journal) replay(c *core[status]) error {
	for i := range j {
		e := copied(j[i])
		c.apply(&e.in, e.now)
		if err := sameTodo(&e.do, &c.todo); err != nil {
			return fmt.Errorf("input %d of %d, of kind %d at %d: %w", i, len(j), e.in.kind, e.now, err)
		}
		c.todo.reset()
	}
	return nil
}

// sameTodo compares what two cores want done, one action after the other.
func sameTodo(want, got *todo[status]) error {
	for i := range max(len(want.actions), len(got.actions)) {
		switch {
		case i >= len(want.actions):
			return fmt.Errorf("action %d is %+v, want none", i, got.actions[i])
		case i >= len(got.actions):
			return fmt.Errorf("there is no action %d, want %+v", i, want.actions[i])
		case !reflect.DeepEqual(want.actions[i], got.actions[i]):
			return fmt.Errorf("action %d is %+v, want %+v", i, got.actions[i], want.actions[i])
		}
	}
	if !slices.Equal(want.events, got.events) || !slices.Equal(want.observed, got.observed) {
		return fmt.Errorf("%+v, %v are told and observed, want %+v, %v", got.events, got.observed, want.events, want.observed)
	}
	return nil
}

// wild is a world without truth around a core: every report says what chance has it say, within
// what a runtime could send. What the core makes of it is not judged, but that it makes the same
// each time, and keeps its invariants.
type wild struct {
	*driver[status]
	r       *rand.Rand
	now     instant
	list    *action[status]
	reads   []action[status]
	stream  bool
	foreign bool      // somebody else writes to the cache
	calls   []ownCall // of the agent's that are under way
	serial  uint64    // of the last one
}

var errWild = errors.New("chance has it fail")

func wildConfig() Config[status] {
	return Config[status]{
		Source: newToy(), Stream: newToy(), Cache: cache.New(func(uid cache.UID) *status { return &status{UID: uid} }),
		Capacity: 8, SweepAt: 4, InspectWorkers: 3, UnconfirmedMax: 12, OwedMax: 2, RelistMax: 20 * time.Second,
	}
}

var wildEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// play makes a history of n steps.
func (w *wild) play(t *testing.T, n int) {
	w.now = 1
	w.start(w.now)
	for range n {
		w.now++
		w.step()
		w.now = w.now.add(time.Duration(w.r.Int64N(int64(30 * time.Millisecond))))
		if w.r.IntN(12) == 0 {
			w.now = w.now.add(time.Duration(w.r.Int64N(int64(5 * time.Second))))
		}
		w.tick(w.now)
		if err := w.invariants(w.now); err != nil && !w.foreign {
			t.Fatalf("invariant at %d: %v", w.now, err)
		}
		w.take()
		if w.r.IntN(3) == 0 {
			for range w.watched {
				w.exec.out.flush()
			}
		}
	}
}

// take takes up the reads that the core wants.
func (w *wild) take() {
	for _, a := range w.begun {
		switch a.kind {
		case actOpen:
			w.stream = true
		case actList:
			w.list = &a
		case actInspect:
			w.reads = append(w.reads, a)
		case actInterrupt:
			i := slices.IndexFunc(w.reads, func(r action[status]) bool { return r.uid == a.uid })
			w.inspected(i, errWild)
		case actCut:
			w.ended(inLost)
		}
	}
	w.begun = nil
}

func (w *wild) step() {
	switch k := w.r.IntN(16); {
	case k < 5:
		w.tellClaims()
	case k < 7 && w.list != nil:
		w.listed()
	case k < 12 && len(w.reads) > 0:
		var err error
		if w.r.IntN(6) == 0 {
			err = errWild
		}
		w.inspected(w.r.IntN(len(w.reads)), err)
	case k == 12 && w.stream && w.r.IntN(3) == 0:
		w.ended([]connInput{inLost, inEOF, inNoEvents}[w.r.IntN(3)])
	case k == 13:
		demand := map[cache.UID]time.Time{}
		for range 1 + w.r.IntN(5) {
			demand[w.uid()] = w.core.clock.time(max(1, w.now-instant(w.r.Int64N(int64(time.Second)))))
		}
		w.tell(input[status]{kind: inputDemand, demand: demand}, w.now)
	case k == 14:
		r := request{uid: w.uid(), inspect: w.r.IntN(2) == 0}
		if w.r.IntN(4) == 0 {
			r = request{}
		}
		w.tell(input[status]{kind: inputRequest, request: r}, w.now)
	case k == 12:
		w.tellAcks()
	case k == 15 && w.foreign:
		uid := w.uid()
		at := w.core.clock.time(w.now.add(time.Duration(w.r.Int64N(int64(time.Second)))))
		if w.r.IntN(2) == 0 {
			w.cache.Set(uid, &status{UID: uid}, nil, at)
		} else {
			w.cache.Delete(uid, at)
		}
	}
}

func (w *wild) uid() cache.UID { return cache.UID(fmt.Sprintf("u%d", w.r.IntN(7))) }

// item is an ID of the pod, mostly; it is in any phase up to most.
func (w *wild) item(uid cache.UID, most Phase) Item {
	if w.r.IntN(20) == 0 {
		uid = w.uid()
	}
	k := Kind(w.r.IntN(3) / 2)
	return Item{ID: fmt.Sprintf("%s-%d-%d", uid, k, w.r.IntN(3)), Kind: k, Phase: Phase(w.r.IntN(int(most) + 1))}
}

// pod shows the pod as chance has it, every ID once.
func (w *wild) pod(uid cache.UID) Pod {
	p := Pod{UID: uid}
	if w.r.IntN(2) == 0 {
		p.Name, p.Namespace = "pod-"+string(uid), "default"
	}
	for range w.r.IntN(4) {
		it := w.item(uid, PhaseExited)
		if !slices.ContainsFunc(p.Items, func(x Item) bool { return x.ID == it.ID }) {
			p.Items = append(p.Items, it)
		}
	}
	return p
}

func (w *wild) tellClaims() {
	b := &batch[status]{dropped: w.r.IntN(40) / 39, replayed: w.r.IntN(2)}
	for range 1 + w.r.IntN(3) {
		uid := w.uid()
		l := &podClaims[status]{pod: uid, claims: 1}
		for range 1 + w.r.IntN(3) {
			l.latest = append(l.latest, latestClaim{item: w.item(uid, PhaseRemoved), stamp: w.r.Int64N(1000)})
		}
		if w.r.IntN(8) == 0 {
			l.pod = ""
		} else if w.r.IntN(2) == 0 {
			l.payload = w.pod(uid).Items
			if p := w.core.pods[uid]; p != nil && w.r.IntN(2) == 0 { // one that dominates
				l.payload = nil
				for _, x := range p.items {
					if x.phase < PhaseRemoved {
						l.payload = append(l.payload, Item{ID: x.id, Kind: x.kind, Phase: x.phase})
					}
				}
			}
			shows := l.payload
			l.status = func() (*status, error) { return &status{UID: uid, Items: shows}, nil }
			if w.r.IntN(10) == 0 {
				l.status = func() (*status, error) { return nil, errWild }
			}
		}
		b.pods = append(b.pods, l)
		b.claims++
	}
	w.claims(b, w.now)
}

// tellAcks has the agent begin some calls, and end some of those that are under way.
func (w *wild) tellAcks() {
	var acks []ack
	for range 1 + w.r.IntN(4) {
		uid := w.uid()
		a := ack{at: w.now}
		if n := len(w.calls); n > 0 && w.r.IntN(2) == 0 {
			i := w.r.IntN(n)
			a.call, a.returned, a.failed = w.calls[i], true, w.r.IntN(6) == 0
			w.calls = slices.Delete(w.calls, i, i+1)
			if !a.failed && w.r.IntN(8) > 0 {
				a.items = append(a.items, w.item(uid, PhaseRemoved))
			}
		} else {
			w.serial++
			a.call = ownCall{serial: w.serial, began: w.now}
			switch w.r.IntN(3) {
			case 0:
				a.call.Pod = PodRef{UID: uid, Name: "pod-" + string(uid), Namespace: "default"}
			case 1:
				a.call.Pod.UID, a.call.ID = uid, w.item(uid, PhaseRemoved).ID
			case 2:
				a.call.ID = w.item(uid, PhaseRemoved).ID
			}
			w.calls = append(w.calls, a.call)
		}
		acks = append(acks, a)
	}
	w.tell(input[status]{kind: inputAcks, acks: acks, lost: w.r.IntN(20) == 0}, w.now)
}

func (w *wild) listed() {
	r := &listedAll{began: w.list.at}
	since := w.list.since
	w.list = nil
	if w.r.IntN(6) == 0 {
		r.err = errWild
	} else {
		r.listing.Revision = Revision(w.r.IntN(3))
		r.listing.Delta = since != 0 && w.r.IntN(2) == 0
		for i := range 7 {
			uid := cache.UID(fmt.Sprintf("u%d", i))
			switch w.r.IntN(3) {
			case 0:
				r.listing.Pods = append(r.listing.Pods, w.pod(uid))
			case 1:
				if r.listing.Delta {
					r.listing.Gone = append(r.listing.Gone, uid)
				}
			}
		}
	}
	w.onListed(r, w.now)
}

func (w *wild) inspected(i int, err error) {
	a := w.reads[i]
	w.reads = slices.Delete(w.reads, i, i+1)
	r := &inspected[status]{uid: a.uid, began: a.at, asked: a.read.asked, byIDs: a.read.byIDs, err: err}
	if shown := w.pod(a.uid); !a.read.listed && (err == nil || w.r.IntN(2) == 0) {
		r.listing = &shown
	} else if err == nil && w.r.IntN(4) == 0 {
		r.listing = &Pod{UID: a.uid}
	}
	if err == nil && (r.listing == nil || len(r.listing.Items) > 0 && w.r.IntN(3) > 0) {
		r.shows = w.pod(a.uid)
		r.status = &status{UID: a.uid, Items: r.shows.Items}
	}
	w.onInspected(r, w.now)
}

func (w *wild) ended(in connInput) {
	w.stream = false
	w.tell(input[status]{kind: inputEnded, in: in, ended: errWild}, w.now)
}

// TestReplay: what a core does follows from what it is told, and when, and from nothing else: not
// from the order of maps, a clock, or what became of its actions. Histories of chance are written
// down and told to a fresh core; and to a copy that is made in the middle of each, which goes on as
// the original did, while the original is not touched by what its copy does.
func TestReplay(t *testing.T) {
	histories := 300
	if testing.Short() {
		histories = 40
	}
	kinds, acts, inputs := map[inputKind]int{}, map[actionKind]int{}, 0
	for seed := range uint64(histories) {
		var told journal
		cfg := wildConfig()
		cfg.TellsCalls = seed%2 == 0
		w := &wild{driver: newDriver(cfg, clock{wildEpoch}), r: rand.New(rand.NewPCG(seed, 7)), foreign: seed%8 == 7}
		middle := 50 + int(seed%200)
		var twin *core[status]
		w.journal = func(in input[status], now instant, do *todo[status]) {
			told.record(in, now, do)
			kinds[in.kind]++
			for _, a := range do.actions {
				acts[a.kind]++
			}
			if len(told) == middle {
				twin = copied(w.core)
				twin.todo.reset()
			}
		}
		w.play(t, 200)
		inputs += len(told)
		cfg = cfg.withDefaults()
		if err := told.replay(newCore(&cfg, clock{wildEpoch}, 1)); err != nil {
			t.Fatalf("seed %d: a fresh core: %v", seed, err)
		}
		if err := told[middle:].replay(twin); err != nil {
			t.Fatalf("seed %d: a copy after %d inputs: %v", seed, middle, err)
		}
		if twin.count != w.core.count {
			t.Errorf("seed %d: the copy has counted %+v, the original %+v", seed, twin.count, w.core.count)
		}
	}
	t.Logf("%d histories, %d inputs by kind %v, actions by kind %v", histories, inputs, kinds, acts)
	for k := inputStart; k <= inputRefused; k++ {
		if kinds[k] == 0 {
			t.Errorf("no history has an input of kind %d", k)
		}
	}
	for k := actOpen; k <= actListLasted; k++ {
		if acts[k] == 0 && !(testing.Short() && k == actCut) {
			t.Errorf("no history has an action of kind %d", k)
		}
	}
}

// TestReplayOfTheLoop writes down what a running generator tells its core, and tells it to another
// one.
func TestReplayOfTheLoop(t *testing.T) {
	for seed := range uint64(20) {
		var told journal
		r := rand.New(rand.NewPCG(seed, 11))
		var cfg Config[status]
		var clk clock
		synctest.Test(t, func(t *testing.T) {
			b := &bed{t: t, toy: newToy(), told: &told}
			b.cache = cache.New(func(uid cache.UID) *status { return &status{UID: uid} })
			b.start(func(c *Config[status], toy *toyRuntime) {
				c.SweepAt, c.Capacity, c.Jitter = 3, 4, 0.5
				toy.delta = seed%2 == 0
				toy.delay = time.Duration(seed%3) * 700 * time.Millisecond
				cfg = *c
			})
			clk = b.gen.clock
			for range 60 {
				b.chance(r)
			}
			b.stop()
		})
		cfg = cfg.withDefaults()
		if len(told) < 100 {
			t.Errorf("seed %d: %d inputs", seed, len(told))
		}
		if err := told.replay(newCore(&cfg, clk, cfg.Seed)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// chance has something happen.
func (b *bed) chance(r *rand.Rand) {
	uid := cache.UID(fmt.Sprintf("p%d", r.IntN(5)))
	switch k := r.IntN(12); {
	case k < 6:
		b.toy.set(uid, Container, fmt.Sprintf("%s-c%d", uid, r.IntN(3)), Phase(1+r.IntN(4)))
	case k == 6:
		b.gen.RequestRelist(uid)
	case k == 7:
		b.gen.RequestReinspect(uid)
	case k == 8 && r.IntN(4) == 0:
		b.toy.cutStreams()
	case k == 9:
		b.toy.mu.Lock()
		b.toy.silent, b.toy.readErr = r.IntN(2) == 0, nil
		if r.IntN(3) == 0 {
			b.toy.readErr = errWild
		}
		b.toy.mu.Unlock()
	case k == 10:
		b.events()
	}
	time.Sleep(time.Duration(r.Int64N(int64(800 * time.Millisecond))))
}
