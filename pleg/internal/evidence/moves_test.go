// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

// next calls emit for each state that may follow.
func (w *world) next(from *state, emit func(s *state, t step)) {
	var s state
	take := func(t step) {
		w.tidy(&s)
		emit(&s, t)
	}
	for i := range w.n { // the runtime's own life
		if from.stage[i] < w.last(i) {
			s = *from
			w.advance(&s, i)
			take(step{kind: "truth:", id: i, phase: w.truth(&s, i)})
		}
	}
	if w.lists {
		w.reads(from, &s, true, take)
	}
	w.reads(from, &s, false, take)
	if at := w.nextAge(from); at != 0 {
		s = *from
		s.front = at
		take(step{kind: "the grace of a claim passes", id: -1})
	}
	if w.claims {
		w.hear(from, &s, take)
	}
	if w.waits && !from.waiting {
		s = *from
		s.waiting, s.t, s.tLow = true, present, s.stage
		take(step{kind: "GetNewerThan(now)", id: -1})
	}
	if w.memory && from.waiting && from.verb == None {
		s = *from
		if w.remember(&s) {
			take(step{kind: "memory answers", id: -1})
		}
	}
	if w.acks {
		w.calls(from, &s, take)
	}
	if w.restarts {
		w.restart(from, &s, take)
	}
}

// remember answers the waiter from memory, if it may be. What it gets was so since the read that the
// status is from, and is not behind what has been told of.
func (w *world) remember(s *state) bool {
	p := w.unpack(&s.pod)
	if !p.OnRemembered(s.insp.on, Time(present)) {
		return false
	}
	w.pack(p, &s.pod)
	for i := range w.n {
		c := s.pod.ids[i].cached
		switch {
		case w.lies || w.sandbox: // a false claim is in doubt until a read; that a sandbox recovers no claim tells
		case !w.was(s, i, c, s.asOfLow[i]):
			w.fail("MEMORY: %s is %v, which it was not since the read that this is from", idName(i), c)
		case s.heard[i] && shown(c) != w.truth(s, i) && s.stage[i] != w.leaving(i):
			w.fail("OLD MEMORY: %s is %v, though %v has been told of", idName(i), c, w.truth(s, i))
		}
	}
	s.unwait()
	return true
}

func (w *world) restart(from, s *state, take func(step)) {
	p := &from.pod
	fresh := packedPod{asOf: p.asOf, foreign: p.foreign}
	if *p == fresh {
		return
	}
	*s = *from
	for i := range w.n {
		fresh.foreign = fresh.foreign || p.ids[i].cached.Live()
	}
	fresh.foreign = fresh.foreign || p.failed
	s.pod = fresh
	s.list, s.insp = flight{}, flight{}
	s.ever, s.heard = [ids]uint8{}, [ids]bool{}
	take(step{kind: "restart of the generator", id: -1})
}

func (w *world) advance(s *state, i int) {
	s.stage[i]++
	switch {
	case s.stage[i] == w.leaving(i):
		s.since[i], s.heard[i] = uint8(present), false
	case s.stage[i] > w.leaving(i):
		s.since[i] = 0
	default:
		s.heard[i] = false
	}
}

func (w *world) begin(s *state) flight {
	return flight{on: true, from: present, cut: s.front, low: s.stage}
}

func (f *flight) full(n int) bool {
	for i := range n {
		if f.look[i] == None {
			return false
		}
	}
	return true
}

func (w *world) result(f *flight) Read {
	return Read{From: Time(f.from), Cut: Time(f.cut), Shows: w.shows(&f.look, w.show[:0])}
}

func (w *world) endList(s *state) flight {
	f := s.list
	s.list = flight{}
	s.lastList = f.look
	w.apply(s, f.from, &f.low, func(p *Pod) Effects { return p.OnListed(w.result(&f), s.insp.on, Time(present)) })
	return f
}

func (w *world) endInspection(s *state) {
	f := s.insp
	s.insp = flight{}
	w.apply(s, f.from, &f.low, func(p *Pod) Effects { return p.OnInspected(w.result(&f), Time(present)) })
}

// tidy lets the record forget what no read under way can contradict.
func (w *world) tidy(s *state) {
	oldest, cut := present+1, s.front
	for _, f := range []*flight{&s.list, &s.insp} {
		if f.on {
			oldest, cut = min(oldest, f.from), min(cut, f.cut)
		}
	}
	p := w.unpack(&s.pod)
	p.Forget(Time(oldest), Time(cut))
	w.pack(p, &s.pod)
}

// reads lets a list or an inspection begin, look at one ID, end, or fail.
func (w *world) reads(from, s *state, list bool, take func(step)) {
	name, f := "inspection", &s.insp
	was := from.insp
	if list {
		name, f, was = "list", &s.list, from.list
	}
	*s = *from
	if !was.on {
		*f = w.begin(s)
		take(step{kind: name + " begins", id: -1})
		return
	}
	atomic := list && w.atomic
	for i := range w.n {
		if was.look[i] != None {
			continue
		}
		*s = *from
		for j := i; j < w.n && (j == i || atomic); j++ {
			f.look[j] = w.truth(s, j)
		}
		sees := f.look[i]
		take(step{kind: name + " looks at", id: i, phase: sees})
		if w.unknown && sees != Gone {
			*s = *from
			f.look[i] = Unknown
			take(step{kind: name + " looks at", id: i, phase: Unknown})
		}
		if atomic {
			break
		}
	}
	if was.full(w.n) {
		*s = *from
		if list {
			w.listEnds(s, take)
		} else {
			w.endInspection(s)
			take(step{kind: "inspection ends", id: -1})
		}
	}
	if w.fails && !list {
		*s = *from
		w.failInspection(s)
		take(step{kind: "inspection fails", id: -1})
	}
}

func (w *world) failInspection(s *state) {
	f := s.insp
	s.insp = flight{}
	p := w.unpack(&s.pod)
	stored := p.OnFailed(Time(f.from), Time(present))
	w.pack(p, &s.pod)
	if stored {
		s.asOfLow = f.low
		if s.waiting && f.from > s.t { // it gets the error
			s.unwait()
		}
	}
}

// listEnds ends the list under way. Its listing may become the beginning of an inspection, which then
// looks again only at what the listing showed.
func (w *world) listEnds(s *state, take func(step)) {
	f := w.endList(s)
	w.tidy(s)
	ended := *s
	take(step{kind: "list ends", id: -1})
	if !w.listing || ended.insp.on || f.from < ended.pod.asOf {
		return
	}
	*s = ended
	s.insp = flight{on: true, from: f.from, cut: f.cut, low: f.low}
	for i := range w.n {
		if f.look[i] == Gone {
			s.insp.look[i] = Gone
		}
	}
	take(step{kind: "list ends, an inspection takes its listing", id: -1})
}

// nextAge returns the next rank that may become older than the grace, 0 if none may. A removal that
// may have been told of must have happened by then.
func (w *world) nextAge(s *state) rank {
	at, ok := rank(255), false
	for i := range w.n {
		if x := &s.pod.ids[i]; x.claim != None && x.at > s.front && x.at < at {
			at, ok = x.at, true
		}
	}
	for i := range w.n {
		if s.since[i] != 0 && rank(s.since[i]) < at {
			ok = false
		}
	}
	if !ok {
		return 0
	}
	return at
}

// hear lets the stream tell anything that is or was true, in any order and as often as it likes:
// late, twice, or with an old payload. A removal may be told when it is decided. With lies, anything.
func (w *world) hear(from, s *state, take func(step)) {
	var can [ids][Gone + 1]bool
	for i := range w.n {
		for g := uint8(1); g <= from.stage[i]; g++ {
			can[i][w.life[i][g]] = true
		}
		can[i][Gone] = from.stage[i] >= w.leaving(i)
	}
	for i := range w.n {
		for c := Created; c <= Gone; c++ {
			if !can[i][c] && !w.lies {
				continue
			}
			w.tell(from, s, i, c, nil, take)
			if !w.payloads {
				continue
			}
			v := [ids]Phase{Gone, Gone}
			v[i] = c
			for q := Created; q <= Gone; q++ {
				if q == Gone || w.n > 1 && (can[1-i][q] || w.lies) {
					v[1-i] = q
					w.tell(from, s, i, c, &v, take)
				}
			}
		}
	}
}

// tell is one claim of an ID, with a payload or without.
func (w *world) tell(from, s *state, i int, c Phase, payload *[ids]Phase, take func(step)) {
	*s = *from
	w.apply(s, 0, nil, func(p *Pod) Effects {
		p.OnClaim(Shown{Name: idName(i), Phase: c}, NoStamp, Time(present))
		if payload == nil {
			return Effects{}
		}
		shows := w.shows(payload, w.show[:0])
		for _, x := range shows {
			p.OnClaim(x, NoStamp, Time(present))
		}
		return p.OnPayload(shows)
	})
	if leaving := s.stage[i] == w.leaving(i); c == shown(w.life[i][s.stage[i]]) || c == Gone && leaving {
		s.heard[i] = !leaving || c == Gone
	}
	if payload != nil {
		payload = new(*payload)
	}
	take(step{kind: "claim", id: i, phase: c, payload: payload})
}

// calls lets the agent make, start, stop and remove containers, one call at a time.
func (w *world) calls(from, s *state, take func(step)) {
	if from.verb == None {
		for i := range w.n {
			for p := Created; p <= Gone; p++ {
				if w.mayCall(from, i, p) {
					*s = *from
					s.verb, s.callID, s.done = p, uint8(i), false
					take(step{kind: "call begins:", id: i, phase: p})
				}
			}
		}
		return
	}
	i, p := int(from.callID), from.verb
	if !from.done {
		*s = *from
		w.work(s, i, p)
		take(step{kind: "call works:", id: i, phase: p})
	}
	for _, ok := range []bool{true, false} {
		if ok && !from.done {
			continue
		}
		*s = *from
		w.callReturns(s, i, p, ok)
		kind := "call fails or times out:"
		if ok {
			kind = "call returns:"
		}
		take(step{kind: kind, id: i, phase: p})
	}
}

func (w *world) mayCall(s *state, i int, p Phase) bool {
	if !w.container(i) || w.short && p == Created {
		return false
	}
	g := s.stage[i]
	first := Created
	if w.short {
		first = Running
	}
	switch {
	case p == first:
		return g == 0
	case p == Running:
		return g == 1
	}
	return g != 0 && g != w.last(i)
}

// work lets the call have its effect: the truth comes to be what the call brings.
func (w *world) work(s *state, i int, p Phase) {
	for s.stage[i] < w.last(i) && (s.stage[i] == 0 || w.truth(s, i) < p) {
		w.advance(s, i)
	}
	s.done = true
}

func (w *world) callReturns(s *state, i int, p Phase, ok bool) {
	done := s.done
	s.verb, s.callID, s.done = None, 0, false
	pod := w.unpack(&s.pod)
	pod.OnCall(Shown{Name: idName(i), Phase: p}, ok, Time(present))
	w.pack(pod, &s.pod)
	if done && w.truth(s, i) == p && s.stage[i] != w.leaving(i) {
		s.heard[i] = true
	}
	if ok && p == Gone {
		s.ever[i] |= 8
	}
}
