// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package standalone

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGoroutinesAreCountedByTheirEntry(t *testing.T) {
	const profile = "goroutine profile: total 7\n" +
		"3 @ 0x1 0x2\n#\t0x1\truntime.gopark+0x1f\t\t/src/runtime/proc.go:1\n#\t0x2\texample.com/a.run+0x10\t/a/run.go:2\n\n" +
		"2 @ 0x1 0x3 0x2\n# labels: {\"a\":\"b\"}\n#\t0x3\tsync.wait+0x1f\t/s.go:1\n#\t0x2\texample.com/a.run+0x14\t/a/run.go:3\n\n" +
		"1 @ 0x5 0x6 0x7\n#\t0x6\texample.com/c.run+0x1\t/c.go:9\n#\t0x7\tsync.(*WaitGroup).Go.func1+0x1\t/w.go:9\n\n" +
		"1 @ 0x5\n#\t0x5\texample.com/b.(*T).loop.func1+0x1\t/b.go:9\n\n"
	got, err := entries(profile)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"example.com/a.run": 5, "example.com/b.(*T).loop.func1": 1, "example.com/c.run": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := entries("x @ 0x1\n"); err == nil {
		t.Error("a profile without numbers was taken")
	}
}
