// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// smallOp is one observation, or one thing that happens. Run reports whether it meant anything.
type smallOp struct {
	name string
	run  func(s *small) bool
}

var smallOps = makeSmallOps()

func makeSmallOps() []smallOp {
	var ops []smallOp
	add := func(name string, run func(s *small) bool) {
		ops = append(ops, smallOp{name, func(s *small) bool {
			s.now++
			if !run(s) {
				return false
			}
			s.turn()
			return true
		}})
	}
	for i := range 4 {
		add(fmt.Sprintf("c%d moves on", i), func(s *small) bool { return s.move(i) })
		add(fmt.Sprintf("a claim of c%d", i), func(s *small) bool { return s.claim(i, false) })
	}
	add("a stale claim of c0", func(s *small) bool { return s.claim(0, true) })
	add("the list, as it began", func(s *small) bool { return s.listed(true) })
	add("the list, as it ended", func(s *small) bool { return s.listed(false) })
	add("an inspection, as it began", func(s *small) bool { return s.inspected(true) })
	add("an inspection, as it ended", func(s *small) bool { return s.inspected(false) })
	add("a waiter for pod a", func(s *small) bool {
		s.tell(input[status]{kind: inputDemand, demand: map[cache.UID]time.Time{"a": s.clock.time(s.now)}}, s.now)
		return true
	})
	add("the grace passes", func(s *small) bool {
		s.now = s.now.add(defaultGrace + time.Millisecond)
		return true
	})
	return ops
}

// move is a change of the runtime.
func (s *small) move(i int) bool {
	d := s.ids[i]
	next := PhaseCreated
	switch d.now() {
	case phaseNone:
	case PhaseRemoved:
		return false
	default:
		next = d.now() + 1
	}
	d.steps = append(d.steps, smallStep{s.now, next})
	return true
}

// claim tells of an ID as it is, or as it was before its last change, with the pod as the payload.
func (s *small) claim(i int, stale bool) bool {
	l := s.podClaims(i, stale)
	if l == nil {
		return false
	}
	s.claims(&batch[status]{pods: []*podClaims[status]{l}, claims: 1}, s.now)
	return true
}

// podClaims is such a claim, nil if there is nothing to claim.
func (s *small) podClaims(i int, stale bool) *podClaims[status] {
	d := s.ids[i]
	phase, payload := d.now(), s.pod(d.pod)
	if stale {
		if len(d.steps) < 3 {
			return nil
		}
		phase = d.steps[len(d.steps)-2].phase
		for j := range payload.Items {
			if payload.Items[j].ID == d.id {
				payload.Items[j].Phase = phase
			}
		}
		if d.now() == PhaseRemoved {
			payload.Items = append(payload.Items, Item{ID: d.id, Kind: Container, Phase: phase})
		}
	}
	if phase == phaseNone {
		return nil
	}
	return &podClaims[status]{
		pod: d.pod, claims: 1, latest: []latestClaim{{item: Item{ID: d.id, Kind: Container, Phase: phase}}}, payload: payload.Items,
		status: func() (*status, error) { return &status{UID: d.pod, Items: payload.Items}, nil },
	}
}

// listed ends the list under way.
func (s *small) listed(early bool) bool {
	r := s.listResult(early)
	if r == nil {
		return false
	}
	s.list = nil
	s.onListed(r, s.now)
	return true
}

// listResult is what the list under way shows if it ends now, nil if none is under way.
func (s *small) listResult(early bool) *listedAll {
	if s.list == nil {
		return nil
	}
	l := s.early
	if !early {
		l = s.listing()
	}
	return &listedAll{began: s.list.at, listing: l}
}

// inspected ends the oldest inspection under way, as the loop's child would: list the pod, and read
// its statuses if it has changed.
func (s *small) inspected(early bool) bool {
	r := s.inspectResult(early)
	if r == nil {
		return false
	}
	s.inspect = s.inspect[1:]
	s.onInspected(r, s.now)
	return true
}

// inspectResult is what the oldest inspection shows if it ends now, nil if none is under way.
func (s *small) inspectResult(early bool) *inspected[status] {
	if len(s.inspect) == 0 {
		return nil
	}
	in := s.inspect[0]
	r := &inspected[status]{uid: in.a.uid, began: in.a.at, asked: in.a.read.asked}
	items := in.a.read.ref.Items
	if !in.a.read.listed {
		p := in.early
		if !early {
			p = s.pod(in.a.uid)
		}
		r.listing, items = &p, p.Items
	}
	if len(items) > 0 && (in.a.read.listed || !in.a.read.builds || !sameItems(items, in.a.read.have)) {
		seen := in.early
		if !early {
			seen = s.pod(in.a.uid)
		}
		shows := Pod{UID: in.a.uid}
		for _, it := range items {
			for _, now := range seen.Items {
				if now.ID == it.ID {
					shows.Items = append(shows.Items, now)
				}
			}
		}
		r.status, r.shows = &status{UID: in.a.uid, Items: shows.Items}, shows
	} else if r.listing == nil {
		r.listing = &Pod{UID: in.a.uid}
	}
	return r
}
