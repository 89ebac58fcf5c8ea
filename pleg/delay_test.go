// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"testing"
	"time"
)

// TestLadder: a delay doubles with each read that has waited for the end of the last, and begins
// anew, no longer, with each that has not.
func TestLadder(t *testing.T) {
	const least, most = time.Second, 5 * time.Second
	at := func(s int64) instant { return instant(s * int64(time.Second)) }
	for _, test := range []struct {
		name       string
		l          ladder
		began, now instant
		want       ladder
	}{
		{"at the foot", ladder{}, at(7), at(8), ladder{time.Second, at(9)}},
		{"a read that waited", ladder{time.Second, at(9)}, at(9), at(10), ladder{2 * time.Second, at(12)}},
		{"a read that came sooner", ladder{2 * time.Second, at(12)}, at(12) - 1, at(12), ladder{2 * time.Second, at(14)}},
		{"the longest but one", ladder{4 * time.Second, at(20)}, at(21), at(21), ladder{5 * time.Second, at(26)}},
		{"the longest", ladder{5 * time.Second, at(26)}, at(30), at(31), ladder{5 * time.Second, at(36)}},
		{"for ever", ladder{5 * time.Second, at(26)}, at(30), never - 1, ladder{5 * time.Second, never}},
	} {
		l := test.l
		if end := l.climb(test.began, test.now, least, most); l != test.want || end != l.end {
			t.Errorf("%s: %+v, over at %d, want %+v", test.name, l, end, test.want)
		}
	}
}
