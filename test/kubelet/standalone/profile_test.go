// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package standalone

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGoroutinesAreCountedByTheirOrigin(t *testing.T) {
	const stacks = "goroutine 1 [select, 2 minutes]:\nmain.main()\n\t/m.go:1 +0x1f\n\n" +
		"goroutine 2 [chan receive]:\nruntime.gopark(0x1, {0x2, 0x3})\n\t/p.go:1 +0x1f\nexample.com/a.(*T).run(0xc000)\n\t/a.go:2 +0x14\ncreated by example.com/a.Start in goroutine 1\n\t/a.go:1 +0x3\n\n" +
		"goroutine 3 [running]:\nexample.com/a.(*T).run(...)\n\t/a.go:3\ncreated by example.com/a.Start in goroutine 9\n\t/a.go:1 +0x3\n\n" +
		"goroutine 4 [running]:\nexample.com/c.run()\n\t/c.go:3\nsync.(*WaitGroup).Go.func1()\n\t/w.go:9 +0x1\ncreated by sync.(*WaitGroup).Go in goroutine 1\n\t/w.go:8 +0x3\n"
	got, err := origins(stacks)
	if err != nil {
		t.Fatal(err)
	}
	want := map[Origin]int{
		{Begins: "main.main"}: 1,
		{Begins: "example.com/a.(*T).run", Creator: "example.com/a.Start"}: 2,
		{Begins: "example.com/c.run", Creator: "sync.(*WaitGroup).Go"}:     1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := origins("<html>"); err == nil {
		t.Error("what is no stack was taken for one")
	}
}
