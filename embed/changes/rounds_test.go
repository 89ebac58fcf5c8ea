// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"sync"
	"testing"
	"time"
)

// looked is a thing that a loop looks at.
type looked struct{ Mutex }

func TestALockOfAWriterCounts(t *testing.T) {
	var m Mutex
	var rw RWMutex
	for _, step := range []struct {
		name        string
		do          func()
		mutex, both uint64
	}{
		{"a reader", func() {
			hold(m.LockUncounted, m.Unlock)
			hold(rw.RLock, rw.RUnlock)
			hold(rw.LockUncounted, rw.Unlock)
		}, 0, 0},
		{"a writer", func() { hold(m.Lock, m.Unlock); hold(rw.Lock, rw.Unlock) }, 1, 1},
		{"a reader that changes something", func() { m.LockUncounted(); m.Changed(); m.Unlock() }, 2, 1},
	} {
		step.do()
		if m.Changes() != step.mutex || rw.Changes() != step.both {
			t.Errorf("%s: %d and %d changes, want %d and %d", step.name, m.Changes(), rw.Changes(), step.mutex, step.both)
		}
	}
}

// hold takes a lock and gives it back.
func hold(lock, unlock func()) {
	lock()
	unlock()
}

// TestAChangeIsCountedBeforeItIsSeen reads the count and then the state, again and again, while a
// writer changes the state: a state is never newer than the count of a later look says.
func TestAChangeIsCountedBeforeItIsSeen(t *testing.T) {
	var m Mutex
	state := 0
	var writer sync.WaitGroup
	writer.Go(func() {
		for range 10_000 {
			m.Lock()
			state++
			m.Unlock()
		}
	})
	for range 10_000 {
		counted := m.Changes()
		m.LockUncounted()
		seen := state
		m.Unlock()
		if after := m.Changes(); uint64(seen) > after || uint64(seen) < counted {
			t.Fatalf("%d changes are seen, and %d to %d were counted around the look", seen, counted, after)
		}
	}
	writer.Wait()
}

func TestRounds(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		// round is what happens in the first round after Due.
		round func(r *Rounds, it *looked)
		// between happens after the first round.
		between func(it *looked)
		known   bool // the other source
		after   time.Duration
		want    bool // the second round is made
	}{
		"nothing has changed": {
			round: func(r *Rounds, _ *looked) { r.Done() }, known: true, after: time.Second,
		},
		"something has changed": {
			round:   func(r *Rounds, _ *looked) { r.Done() },
			between: func(it *looked) { hold(it.Lock, it.Unlock) },
			known:   true, after: time.Second, want: true,
		},
		"something was only read": {
			round:   func(r *Rounds, _ *looked) { r.Done() },
			between: func(it *looked) { hold(it.LockUncounted, it.Unlock) },
			known:   true, after: time.Second,
		},
		"it has changed during the round": {
			round: func(r *Rounds, it *looked) { hold(it.Lock, it.Unlock); r.Done() },
			known: true, after: time.Second, want: true,
		},
		"the round has left something": {
			round: func(r *Rounds, _ *looked) { r.Left(); r.Done() },
			known: true, after: time.Second, want: true,
		},
		"the round has failed": {
			round: func(*Rounds, *looked) {}, known: true, after: time.Second, want: true,
		},
		"a source does not know": {
			round: func(r *Rounds, _ *looked) { r.Done() }, after: time.Second, want: true,
		},
		"just before the longest time": {
			round: func(r *Rounds, _ *looked) { r.Done() }, known: true, after: Longest - 1,
		},
		"the longest time is over": {
			round: func(r *Rounds, _ *looked) { r.Done() }, known: true, after: Longest, want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var it looked
			r := NewRounds(Longest, Of(&it), func() (uint64, bool) { return 7, test.known })
			if !r.Due(start) {
				t.Fatal("the first round was left out")
			}
			test.round(r, &it)
			if test.between != nil {
				test.between(&it)
			}
			if got := r.Due(start.Add(test.after)); got != test.want {
				t.Errorf("the second round is made: %v, want %v", got, test.want)
			}
		})
	}
}

// TestAnUnknownBeginningIsNoBeginning has a source that knows its revision at the second look only:
// what it was at the first is not known.
func TestAnUnknownBeginningIsNoBeginning(t *testing.T) {
	known := false
	r := NewRounds(Longest, func() (uint64, bool) { return 7, known })
	for i, want := range []bool{true, true, false} {
		if got := r.Due(time.Unix(int64(i), 0)); got != want {
			t.Errorf("round %d is made: %v, want %v", i, got, want)
		}
		if want {
			r.Done()
		}
		known = true
	}
}

func TestOneThatDoesNotCountIsNeverLeftOut(t *testing.T) {
	r := NewRounds(Longest, Of(new(looked)), Of(struct{}{}))
	for i := range 3 {
		if !r.Due(time.Unix(int64(i), 0)) {
			t.Errorf("round %d was left out", i)
		}
		r.Done()
	}
}

func TestNilRoundsLeaveNothingOut(t *testing.T) {
	var r *Rounds
	for range 3 {
		if !r.Due(time.Unix(1000, 0)) {
			t.Error("a round was left out")
		}
		r.Left()
		r.Done()
	}
}

func TestAMapCountsWhatDiffers(t *testing.T) {
	var m Map[string, int]
	for i, step := range []struct {
		to   map[string]int
		want uint64
	}{
		{map[string]int{}, 0},
		{map[string]int{"a": 1}, 1},
		{map[string]int{"a": 1}, 1},
		{map[string]int{"a": 2}, 2},
		{map[string]int{"a": 2, "b": 1}, 3},
		{map[string]int{"b": 1}, 4},
		{nil, 5},
	} {
		m.Set(step.to)
		if got := m.Changes(); got != step.want {
			t.Errorf("step %d: %d changes, want %d", i, got, step.want)
		}
	}
}
