// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

var exploreFlag = flag.Int("explore", 5, "length of the sequences that TestExplore enumerates; 7 takes a minute or so")

// TestExplore runs every sequence of so many observations of two pods with two containers each
// through the core: changes, claims, stale claims, lists and inspections that look early or late,
// waiters, and time. After each observation what the cache shows, and what Watch was told, is
// compared with the runtime's history.
func TestExplore(t *testing.T) {
	x := &explorer{t: t, states: map[string]struct{}{}}
	x.walk(make([]int, 0, *exploreFlag), *exploreFlag)
	t.Logf("%d sequences of up to %d observations, %d observations applied, %d distinct states", x.sequences, *exploreFlag, x.steps, len(x.states))
	if x.sequences < 1000 {
		t.Errorf("only %d sequences", x.sequences)
	}
}

// explorer enumerates sequences. A sequence is replayed from the start for each extension: the core
// cannot be copied.
type explorer struct {
	t         *testing.T
	states    map[string]struct{}
	sequences int
	steps     int
	failures  int
}

func (x *explorer) walk(prefix []int, depth int) {
	if x.failures > 3 {
		return
	}
	for op := range len(smallOps) {
		s := newSmall()
		for _, o := range prefix {
			smallOps[o].run(s)
		}
		if !smallOps[op].run(s) {
			continue // it means nothing here
		}
		x.steps += len(prefix) + 1
		seq := append(slices.Clone(prefix), op)
		s.check()
		x.states[s.print()] = struct{}{}
		if len(s.wrong) > 0 {
			var names []string
			for _, o := range seq {
				names = append(names, smallOps[o].name)
			}
			x.failures++
			x.t.Errorf("%s: %s", strings.Join(names, ", "), strings.Join(s.wrong, "; "))
			continue
		}
		if depth > 1 {
			x.walk(seq, depth-1)
		} else {
			x.sequences++
		}
	}
}

// smallID is one container of the small world.
type smallID struct {
	pod   cache.UID
	id    string
	steps []smallStep
}

type smallStep struct {
	at    instant
	phase Phase
}

func (d *smallID) now() Phase { return d.steps[len(d.steps)-1].phase }

// small is a world of two pods with two containers each, around a core.
type small struct {
	*driver[status]
	clock   clock
	now     instant
	ids     []*smallID
	list    *action[status] // the list under way
	early   Listing         // what it saw when it began
	inspect []smallInspect
	told    map[string]EventType
	wrong   []string
}

type smallInspect struct {
	a     action[status]
	early Pod
}

func newSmall() *small {
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &small{clock: clock{epoch}, now: 1, told: map[string]EventType{}}
	s.driver = newDriver(Config[status]{
		Source: newToy(), Stream: newToy(), Jitter: -1, Capacity: 64,
		Cache:     cache.New(func(uid cache.UID) *status { return &status{UID: uid} }),
		RelistMax: 30 * time.Second, // so that a minute of rest has a relist, which finds what no claim told
	}, s.clock)
	for i, pod := range []cache.UID{"a", "a", "b", "b"} {
		s.ids = append(s.ids, &smallID{pod: pod, id: fmt.Sprintf("c%d", i), steps: []smallStep{{0, phaseNone}}})
	}
	s.ids[0].steps = []smallStep{{0, PhaseRunning}} // one runs before the beginning
	s.start(s.now)
	s.claims(&batch[status]{claims: 1}, s.now) // so that the stream counts as connected
	s.turn()
	return s
}

// turn is one turn of the loop: time passes a little, and the core says what it wants.
func (s *small) turn() {
	s.now++
	s.tick(s.now)
	for _, a := range s.begun {
		switch a.kind {
		case actList:
			if s.list != nil {
				s.fail("two lists at once")
			}
			s.list, s.early = &a, s.listing()
		case actInspect:
			for _, in := range s.inspect {
				if in.a.uid == a.uid {
					s.fail("two inspections of %s at once", a.uid)
				}
			}
			s.inspect = append(s.inspect, smallInspect{a, s.pod(a.uid)})
		}
	}
	s.begun, s.reports = nil, nil
	if err := s.invariants(s.now); err != nil {
		s.fail("invariant: %v", err)
	}
}

func (s *small) fail(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// pod returns what the runtime has of a pod now.
func (s *small) pod(uid cache.UID) Pod {
	p := Pod{UID: uid}
	for _, d := range s.ids {
		if ph := d.now(); d.pod == uid && ph <= PhaseExited {
			p.Items = append(p.Items, Item{ID: d.id, Kind: Container, Phase: ph})
		}
	}
	return p
}

func (s *small) listing() Listing {
	var l Listing
	for _, uid := range []cache.UID{"a", "b"} {
		if p := s.pod(uid); len(p.Items) > 0 {
			l.Pods = append(l.Pods, p)
		}
	}
	return l
}

// check compares the cache and Watch with the history.
func (s *small) check() {
	for _, uid := range []cache.UID{"a", "b"} {
		at := s.clock.instant(s.cache.AsOf(uid))
		if s.cache.AsOf(uid).IsZero() {
			at = 0
		}
		shown, err := s.cache.Get(uid)
		if shown == nil || err != nil {
			s.fail("pod %s: %v, %v", uid, shown, err)
			return
		}
		for _, d := range s.ids {
			if d.pod == uid {
				s.checkID(d, at, shown)
			}
		}
	}
	for e := range s.watched {
		s.checkEvent(e)
	}
}

func (s *small) checkID(d *smallID, at instant, shown *status) {
	phase := phaseNone
	for _, it := range shown.Items {
		if it.ID == d.id {
			phase = it.Phase
		}
	}
	possible := []Phase{}
	for i, st := range d.steps {
		last := i == len(d.steps)-1 || d.steps[i+1].at >= at
		if last && (at == 0 || i == len(d.steps)-1 || d.steps[i+1].at >= at || st.at >= at) {
			p := st.phase
			if p == PhaseRemoved {
				p = phaseNone
			}
			possible = append(possible, p)
		}
	}
	if at == 0 {
		possible = append(possible, phaseNone)
	}
	if !slices.Contains(possible, phase) {
		s.fail("%s of pod %s is shown %v as of %d, and was %v since (history %v)", d.id, d.pod, phase, at, possible, d.steps)
	}
}

func (s *small) checkEvent(e Event) {
	if e.Type == PodSync {
		return
	}
	order := map[EventType]int{"": 0, ContainerStarted: 1, ContainerDied: 2, ContainerRemoved: 3}
	if order[e.Type] <= order[s.told[e.ID]] {
		s.fail("Watch tells %s of %s after %s", e.Type, e.ID, s.told[e.ID])
	}
	s.told[e.ID] = e.Type
	for _, d := range s.ids {
		want := map[EventType]Phase{ContainerStarted: PhaseRunning, ContainerDied: PhaseExited, ContainerRemoved: PhaseRemoved}[e.Type]
		if d.id == e.ID && (d.now() == phaseNone || d.now() < want) {
			s.fail("Watch tells %s of %s, which is %v", e.Type, e.ID, d.now())
		}
	}
}

// print is a state: what is known of each ID, and what is under way.
func (s *small) print() string {
	var b strings.Builder
	for _, d := range s.ids {
		fmt.Fprintf(&b, "%d", d.now())
		if x := s.core.index[d.id]; x != nil {
			fmt.Fprintf(&b, ":%d.%d.%d.%d.%d.%t.%d", x.phase, x.emitted, x.cached, x.listed, x.claimed, x.byClaim, x.mask)
		}
		b.WriteByte(' ')
	}
	for _, uid := range []cache.UID{"a", "b"} {
		if p := s.core.pods[uid]; p != nil {
			fmt.Fprintf(&b, "%t%t%t%d%d ", p.disagrees, p.failed, s.core.reads(p), p.queued, len(p.unconfirmed))
		}
	}
	fmt.Fprintf(&b, "%t %d", s.list != nil, len(s.inspect))
	return b.String()
}
