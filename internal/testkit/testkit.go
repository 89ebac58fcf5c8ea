// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package testkit holds the helpers of tests in several packages. The libraries' modules require
// nothing of it, and so have their own.
package testkit

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// Waiting has at least n tests with t.Parallel run at a time, instead of one for each processor, in
// packages whose tests wait more than they work; half as many under the race detector, with which
// they work more. TestMain calls Waiting; the flag -parallel prevails.
func Waiting(n int) {
	if raceDetector {
		n = (n + 1) / 2
	}
	n = max(n, runtime.GOMAXPROCS(0))
	if err := flag.Set("test.parallel", fmt.Sprint(n)); err != nil {
		panic(err) // not a test
	}
}

// Must returns a function that returns v, or ends the test with err.
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Check(t, err)
		return v
	}
}

// Check ends the test with err, if there is one.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Says fails the test for each part that a text lacks.
func Says(t testing.TB, name, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", name, part, text[:min(len(text), 4000)])
		}
	}
}
