// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg/internal/evidence"
)

// TestTheNextCoreEndsAsThisOneDoes gives random histories of the small world to the core and,
// report by report, to the rules of pleg/internal/evidence, which are to take its place. While a
// history runs, what the rules show must have been so since their AsOf. Once all is at rest both
// must show what the runtime has, and must have told Watch of the same ends.
func TestTheNextCoreEndsAsThisOneDoes(t *testing.T) {
	histories, reads := 1000, 0
	if testing.Short() {
		histories = 200
	}
	for seed := range uint64(histories) {
		w := newTwin()
		steps := w.play(rand.New(rand.NewPCG(seed, seed)), 40)
		w.rest()
		w.compare()
		reads += w.reads
		if len(w.s.wrong) > 0 {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(w.s.wrong, "; "), strings.Join(steps, "\n"))
		}
	}
	t.Logf("%d histories; the rules wanted %d reads beyond those of the core once it was at rest", histories, reads)
}

// twin is the small world around the core, and beside it what the rules make of the same reports.
type twin struct {
	s     *small
	know  map[cache.UID]*evidence.Pod
	told  map[string]evidence.Events
	reads int // that the rules wanted at the end, and the core did not make
}

func newTwin() *twin {
	w := &twin{s: newSmall(), know: map[cache.UID]*evidence.Pod{}, told: map[string]evidence.Events{}}
	for _, uid := range []cache.UID{"a", "b"} {
		w.know[uid] = &evidence.Pod{}
	}
	return w
}

// play makes random steps, and returns their names.
func (w *twin) play(r *rand.Rand, n int) []string {
	var steps []string
	for range n {
		k := r.IntN(12)
		early := r.IntN(2) == 0
		name, ok := fmt.Sprintf("%d early %t", k, early), false
		w.s.now++
		switch {
		case k < 4:
			ok = w.s.move(k)
		case k < 8:
			ok = w.claim(k-4, r.IntN(4) == 0)
		case k == 8:
			ok = w.listed(early)
		case k < 11:
			ok = w.inspected(early)
		default:
			w.s.now = w.s.now.add(time.Duration(r.IntN(3)) * time.Second)
			ok = true
		}
		if ok {
			steps = append(steps, name)
			w.s.turn()
			w.check()
		}
	}
	return steps
}

func (w *twin) time() evidence.Time { return evidence.Time(w.s.now) }

// claim gives a claim to both.
func (w *twin) claim(i int, stale bool) bool {
	l := w.s.letter(i, stale)
	if l == nil || !w.s.claim(i, stale) {
		return false
	}
	p := w.know[l.pod]
	p.OnClaim(shownBy(l.told[0].item), evidence.NoStamp, w.time())
	var shows []evidence.Shown
	for _, it := range l.payload {
		shows = append(shows, shownBy(it))
		p.OnClaim(shownBy(it), evidence.NoStamp, w.time())
	}
	w.apply(p, p.OnPayload(shows))
	return true
}

// listed gives the end of a list to both.
func (w *twin) listed(early bool) bool {
	r := w.s.listResult(early)
	if r == nil {
		return false
	}
	for uid, p := range w.know {
		inspecting := slices.ContainsFunc(w.s.inspect, func(in smallInspect) bool { return in.a.uid == uid })
		i := slices.IndexFunc(r.listing.Pods, func(x Pod) bool { return x.UID == uid })
		var items []Item
		if i >= 0 {
			items = r.listing.Pods[i].Items
		}
		w.apply(p, p.OnListed(readOf(r.began, items), inspecting, w.time()))
	}
	return w.s.listed(early)
}

// inspected gives the end of an inspection to both.
func (w *twin) inspected(early bool) bool {
	r := w.s.inspectResult(early)
	if r == nil {
		return false
	}
	p := w.know[r.uid]
	if r.status != nil {
		w.apply(p, p.OnInspected(readOf(r.began, r.shows.Items), w.time()))
	} else {
		w.apply(p, p.OnPodListed(readOf(r.began, r.listing.Items), w.time()))
	}
	return w.s.inspected(early)
}

// apply notes what Watch is told.
func (w *twin) apply(p *evidence.Pod, e evidence.Effects) {
	for _, x := range e.Changes {
		if told := w.told[x.ID.Name]; told&x.Events&^evidence.Sync != 0 {
			w.s.fail("the rules tell %03b of %s after %03b", x.Events, x.ID.Name, told)
		}
		w.told[x.ID.Name] |= x.Events
	}
	if err := p.Check(w.time()); err != nil {
		w.s.fail("the record: %v", err)
	}
}

// check compares what the rules show with the runtime's history.
func (w *twin) check() {
	for uid, p := range w.know {
		shown := w.shown(uid)
		for _, d := range w.s.ids {
			if d.pod == uid {
				w.s.checkID(d, instant(p.AsOf), shown)
			}
		}
	}
}

// shown is the status that the rules have put into the cache.
func (w *twin) shown(uid cache.UID) *status {
	st := &status{UID: uid}
	for _, x := range w.know[uid].CachedIDs(nil) {
		st.Items = append(st.Items, Item{ID: x.Name, Kind: Container, Phase: Phase(x.Phase - evidence.Unknown)})
	}
	return st
}

// rest ends all reads, and lets both make those that they want, until nothing is left to do.
func (w *twin) rest() {
	s := w.s
	for range 400 {
		s.now++
		switch {
		case s.list != nil:
			w.listed(false)
		case len(s.inspect) > 0:
			w.inspected(false)
		case s.core.deadline() > s.now.add(time.Hour):
		default:
			s.now = max(s.now, s.core.deadline())
		}
		s.turn()
	}
	for uid, p := range w.know {
		for range 3 {
			s.now++
			p.Forget(w.time(), evidence.Time(s.now.add(-defaultGrace)))
			if p.Doubt() == evidence.Settled {
				break
			}
			w.reads++
			s.now = s.now.add(2 * defaultGrace)
			began := s.now
			s.now++
			w.apply(p, p.OnInspected(readOf(began, s.pod(uid).Items), w.time()))
		}
		if d := p.Doubt(); d != evidence.Settled {
			s.fail("the rules are still in doubt about %s: %v", uid, d)
		}
	}
}

// compare compares both with the runtime, and with each other.
func (w *twin) compare() {
	for e := range w.s.watched {
		w.s.checkEvent(e)
	}
	for _, d := range w.s.ids {
		want := d.now()
		if want == PhaseRemoved {
			want = phaseNone
		}
		core, err := w.s.cache.Get(d.pod)
		if got := phaseShown(core, d.id); got != want || err != nil {
			w.s.fail("the core shows %s %v, want %v (%v)", d.id, got, want, err)
		}
		if got := phaseShown(w.shown(d.pod), d.id); got != want {
			w.s.fail("the rules show %s %v, want %v", d.id, got, want)
		}
		core1, rules := w.s.told[d.id], lastTold(w.told[d.id])
		if want == phaseNone && (core1 == "" || rules == "") {
			continue // it came and went, and one of the two saw it meanwhile
		}
		if core1 != rules {
			w.s.fail("the core told last that %s %q, the rules %q", d.id, core1, rules)
		}
	}
}

func lastTold(told evidence.Events) EventType {
	switch {
	case told&evidence.Removed != 0:
		return ContainerRemoved
	case told&evidence.Died != 0:
		return ContainerDied
	case told&evidence.Started != 0:
		return ContainerStarted
	}
	return ""
}

func phaseShown(s *status, id string) Phase {
	for _, it := range s.Items {
		if it.ID == id {
			return it.Phase
		}
	}
	return phaseNone
}

func shownBy(it Item) evidence.Shown {
	return evidence.Shown{Name: it.ID, Sandbox: it.Kind == Sandbox, Phase: evidence.Phase(it.Phase) + evidence.Unknown}
}

func readOf(began instant, items []Item) evidence.Read {
	r := evidence.Read{From: evidence.Time(began), Cut: evidence.Time(began.add(-defaultGrace))}
	for _, it := range items {
		r.Shows = append(r.Shows, shownBy(it))
	}
	return r
}
