// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"reflect"
	"slices"
	"testing"
)

// TestBelief: a phase that is set anew is sure as of then and has not been taken back; a claim that
// is borne out is sure from then on; only what was taken back, by a read that began no later than
// it was made sure, overtakes that read.
func TestBelief(t *testing.T) {
	b := belief{phase: PhaseExited, cause: CauseRead, first: 2, since: 3, confirmed: 4, rolledBack: true, stoppedByAgent: true}
	b.believe(PhaseRunning, CauseClaim, true, 77, 10)
	if want := (belief{phase: PhaseRunning, cause: CauseClaim, byClaim: true, first: 2, since: 10, confirmed: 10, stamp: 77}); b != want {
		t.Errorf("a claim: %+v, want %+v", b, want)
	}
	b.confirm(12)
	if want := (belief{phase: PhaseRunning, cause: CauseClaim, first: 2, since: 10, confirmed: 12, stamp: 77}); b != want {
		t.Errorf("confirmed: %+v, want %+v", b, want)
	}
	for _, test := range []struct {
		back  bool
		began instant
		want  bool
	}{{false, 11, false}, {true, 11, true}, {true, 12, true}, {true, 13, false}} {
		if b.rolledBack = test.back; b.rolledBackSince(test.began) != test.want {
			t.Errorf("taken back: %t, as of %d; a read begun at %d is overtaken: %t", test.back, b.confirmed, test.began, !test.want)
		}
	}
}

// TestWatchedOnce: every event is told once, and none after what comes later in a life.
func TestWatchedOnce(t *testing.T) {
	var w watched
	for i, test := range []struct {
		unless, mask uint8
		want         bool
	}{
		{maskStarted | maskDied | maskRemoved, maskStarted, true},
		{maskStarted | maskDied | maskRemoved, maskStarted, false},
		{maskDied | maskRemoved, maskDied, true},
		{maskStarted | maskDied | maskRemoved, maskStarted, false},
		{maskRemoved, maskRemoved, true},
		{maskDied | maskRemoved, maskDied, false},
	} {
		if got := w.once(test.unless, test.mask); got != test.want {
			t.Errorf("event %d, %03b: told %t, want %t", i, test.mask, got, test.want)
		}
	}
}

// TestWanted: a status answers who wanted it read if its read began later.
func TestWanted(t *testing.T) {
	for _, test := range []struct {
		w    wanted
		at   instant
		want wanted
	}{
		{wanted{}, 9, wanted{}},
		{wanted{force: 9, want: 9}, 9, wanted{force: 9, want: 9}},
		{wanted{force: 9, forced: 10, want: 9}, 10, wanted{forced: 10, want: 9, syncDue: true}},
	} {
		w := test.w
		if w.answered(test.at); w != test.want {
			t.Errorf("%+v as of %d: %+v, want %+v", test.w, test.at, w, test.want)
		}
		if got, want := w.asked(), w.want != 0 || w.force != 0; got != want {
			t.Errorf("%+v: asked %t", w, got)
		}
	}
}

// TestRecordsAreSmall: what is remembered of a pod has at most twelve parts, of an ID nine, and no
// other record more than twenty: a part that grows beyond that becomes a type with rules of its
// own. Config and Stats are what users see, and flat on purpose.
func TestRecordsAreSmall(t *testing.T) {
	for typ, most := range map[reflect.Type]int{
		reflect.TypeFor[pod]():          12,
		reflect.TypeFor[item]():         9,
		reflect.TypeFor[core[status]](): 20, reflect.TypeFor[counters](): 20, reflect.TypeFor[loop[status]](): 20,
		reflect.TypeFor[executor[status]](): 20, reflect.TypeFor[Generator[status]](): 20,
		reflect.TypeFor[limits](): 20, reflect.TypeFor[conn](): 20, reflect.TypeFor[mailbox[status]](): 20,
	} {
		if n := typ.NumField(); n > most {
			t.Errorf("%v has %d fields, at most %d", typ, n, most)
		}
	}
}

// TestAQueueKeepsItsOrder: what is not kept goes, from wherever it waits, and the rest is popped in
// the order in which it was pushed.
func TestAQueueKeepsItsOrder(t *testing.T) {
	var q fifo[int]
	for i := range 10 {
		q.push(i)
	}
	q.pop()
	q.pop()
	q.keep(func(v int) bool { return v%3 != 0 })
	q.push(3)
	var got []int
	for q.len() > 0 {
		got = append(got, q.pop())
	}
	if want := []int{2, 4, 5, 7, 8, 3}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	q.push(1)
	q.keep(func(int) bool { return false })
	if _, ok := q.front(); ok || q.len() != 0 {
		t.Errorf("%d are left of which none is kept", q.len())
	}
}
