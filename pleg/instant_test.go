// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"math"
	"math/big"
	"testing"
	"time"
)

// FuzzInstant compares the arithmetic of instants and delays with that of integers without bounds.
func FuzzInstant(f *testing.F) {
	for _, i := range []int64{0, 1, int64(time.Hour), math.MaxInt64 - 1, math.MaxInt64} {
		for _, d := range []int64{0, 1, -1, int64(-2 * time.Second), math.MaxInt64, math.MinInt64} {
			f.Add(i, d)
		}
	}
	f.Fuzz(func(t *testing.T, start, delay int64) {
		i, d := instant(start), time.Duration(delay)
		if i < 0 {
			t.Skip("no instant is negative")
		}
		if got, want := i.add(d), bounded(big.NewInt(start), big.NewInt(delay)); i != never && got != instant(want) {
			t.Errorf("%d.add(%d) is %d, want %d", i, d, got, want)
		}
		if got := never.add(d); got != never {
			t.Errorf("never.add(%d) is %d", d, got)
		}
		if i != never && i.next() <= i {
			t.Errorf("%d.next() is %d", i, i.next())
		}
		if back := i.add(d); d > 0 && back != never && back.sub(i) != d {
			t.Errorf("%d.add(%d).sub is %d", i, d, back.sub(i))
		}
		checkDelays(t, max(0, d), time.Duration(start))
	})
}

// bounded returns the sum of two integers, no less than 0 and no more than the largest int64.
func bounded(a, b *big.Int) int64 {
	n := new(big.Int).Add(a, b)
	switch {
	case n.Sign() < 0:
		return 0
	case !n.IsInt64():
		return math.MaxInt64
	}
	return n.Int64()
}

// checkDelays checks the arithmetic of two delays, neither of them negative.
func checkDelays(t *testing.T, d, e time.Duration) {
	t.Helper()
	if got, want := sum(d, e), bounded(big.NewInt(int64(d)), big.NewInt(int64(e))); got != time.Duration(want) {
		t.Errorf("the sum of %d and %d is %d, want %d", d, e, got, want)
	}
	twice := bounded(big.NewInt(int64(d)), big.NewInt(int64(d)))
	if got, want := doubled(d, e), min(time.Duration(twice), e); got != want {
		t.Errorf("twice %d, at most %d, is %d, want %d", d, e, got, want)
	}
	cfg := connConfig{jitter: 1}
	if got := cfg.lengthen(d, 0.999); got < d {
		t.Errorf("%d lengthened is %d", d, got)
	}
}

// TestClockAtTheEnds: times that no duration reaches are instants all the same.
func TestClockAtTheEnds(t *testing.T) {
	c := clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	late, early := c.epoch.AddDate(1000, 0, 0), c.epoch.AddDate(-1000, 0, 0)
	if got := c.instant(late); got != never {
		t.Errorf("a thousand years from now is %d, want never", got)
	}
	if got := c.instant(early); got != 1 {
		t.Errorf("a thousand years ago is %d, want 1", got)
	}
	if before, made := c.instant(c.epoch.Add(-1)), c.instant(c.epoch); before != 1 || made <= before {
		t.Errorf("the moment before the first is %d, the first is %d, want 1 and a later one: what was asked for then is answered by the first read", before, made)
	}
	for _, i := range []instant{1, 2, instant(time.Hour), never - 1} {
		if got := c.instant(c.time(i)); got != i {
			t.Errorf("instant %d becomes %d by way of its time", i, got)
		}
	}
}

// TestLadder: a delay doubles with each read that has waited for the end of the last, and begins
// anew, no longer, with each that has not.
func TestLadder(t *testing.T) {
	const least, most = time.Second, 5 * time.Second
	at := func(s int64) instant { return instant(s * int64(time.Second)) }
	for _, test := range []struct {
		name string
		l    ladder
		read span
		want ladder
	}{
		{"at the foot", ladder{}, span{at(7), at(8)}, ladder{time.Second, at(9)}},
		{"a read that waited", ladder{time.Second, at(9)}, span{at(9), at(10)}, ladder{2 * time.Second, at(12)}},
		{"a read that came sooner", ladder{2 * time.Second, at(12)}, span{at(12) - 1, at(12)}, ladder{2 * time.Second, at(14)}},
		{"the longest but one", ladder{4 * time.Second, at(20)}, span{at(21), at(21)}, ladder{5 * time.Second, at(26)}},
		{"the longest", ladder{5 * time.Second, at(26)}, span{at(30), at(31)}, ladder{5 * time.Second, at(36)}},
		{"a shorter delay than the last", ladder{32 * time.Second, at(40)}, span{at(30), at(31)}, ladder{5 * time.Second, at(36)}},
		{"for ever", ladder{5 * time.Second, at(26)}, span{at(30), never - 1}, ladder{5 * time.Second, never}},
	} {
		l := test.l
		if end := l.climb(test.read, least, most); l != test.want || end != l.end {
			t.Errorf("%s: %+v, over at %d, want %+v", test.name, l, end, test.want)
		}
	}
}

// TestLadderThatTurns: the delays begin anew once they have become long, and not before.
func TestLadderThatTurns(t *testing.T) {
	const long = time.Second
	for _, step := range []time.Duration{0, 1, long - 1, long, time.Minute} {
		l := ladder{step: step, end: 1}
		l.turns(long)
		want := step
		if step >= long {
			want = 0
		}
		if l.step != want {
			t.Errorf("a delay of %v has become %v, want %v", step, l.step, want)
		}
	}
}
