// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

// drain ends all faults and says what is then wrong. The order in which the reads under way end is
// given.
func (w *world) drain(s state, listFirst bool) {
	if s.waiting && !(w.payloads && w.anyLeaving(&s)) { // one inspection serves it, however young a claim is
		t := s
		if w.finish(&t, listFirst); t.waiting {
			if w.inspect(&t); t.waiting {
				w.fail("STARVED: an inspection does not serve the waiter")
			}
		}
	}
	for i := range w.n {
		if s.stage[i] == w.leaving(i) {
			w.advance(&s, i)
		}
		s.since[i] = 0
	}
	if s.verb != None {
		w.callReturns(&s, int(s.callID), s.verb, false)
	}
	whole := w.finish(&s, listFirst)
	w.settle(&s, "after the stream")
	for i := range w.n {
		told := s.heard[i] && !w.lies || whole
		if told && shown(s.pod.ids[i].cached) != w.truth(&s, i) && w.container(i) {
			w.fail("LOST: %s was told to be %v, and the cache shows %v once all reads are done",
				idName(i), w.truth(&s, i), s.pod.ids[i].cached)
		}
	}
	for k := range 2 {
		s.canon(w, false)
		s.list = w.begin(&s)
		w.finish(&s, true)
		if again, r := w.needs(&s); k == 1 && again {
			w.fail("BUSY: a list of a settled pod causes a read: %v", r)
		}
		w.settle(&s, "after a list")
	}
	for i := range w.n {
		if shown(s.pod.ids[i].cached) != w.truth(&s, i) {
			w.fail("UNSETTLED: %s is %v, and the cache shows %v after a list", idName(i), w.truth(&s, i), s.pod.ids[i].cached)
		}
	}
	s.front = present + 1
	if w.tidy(&s); w.settledGone(&s) && s.pod.ids != [ids]packedID{} {
		w.fail("REMEMBERED: %+v of a pod that has gone", s.pod.ids)
	}
}

func (w *world) settledGone(s *state) bool {
	for i := range w.n {
		if w.truth(s, i) != Gone {
			return false
		}
	}
	return true
}

// finish ends the reads under way, in the given order. It reports whether a list ended that showed
// all as it is.
func (w *world) finish(s *state, listFirst bool) bool {
	whole := s.list.on
	one := func(list bool) {
		f := &s.insp
		if list {
			f = &s.list
		}
		if !f.on {
			return
		}
		for i := range w.n {
			if f.look[i] == None {
				f.look[i] = w.truth(s, i)
			}
			whole = whole && (!list || f.look[i] == w.truth(s, i))
		}
		if list {
			w.endList(s)
		} else {
			w.endInspection(s)
		}
		w.tidy(s)
	}
	one(listFirst)
	one(!listFirst)
	return whole
}

// inspect makes a whole inspection at one moment.
func (w *world) inspect(s *state) {
	s.canon(w, false)
	s.insp = w.begin(s)
	w.finish(s, false)
}

// needs says whether a read of the pod should begin.
func (w *world) needs(s *state) (bool, Reason) {
	r := w.unpack(&s.pod).Doubt()
	return r != Settled || s.waiting, r
}

// settle makes the reads that the pod needs, each after a grace, and says when they do not end.
func (w *world) settle(s *state, when string) {
	for n := 0; ; n++ {
		again, r := w.needs(s)
		if !again {
			return
		}
		if n == 2 {
			w.fail("BUSY: more than 2 reads %s: %v", when, r)
			return
		}
		for at := w.nextAge(s); at != 0; at = w.nextAge(s) {
			s.front = at
		}
		w.inspect(s)
	}
}

func (w *world) anyLeaving(s *state) bool {
	for i := range w.n {
		if s.stage[i] == w.leaving(i) {
			return true
		}
	}
	return false
}
