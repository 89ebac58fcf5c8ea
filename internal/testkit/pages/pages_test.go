// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"reflect"
	"testing"
)

// TestCalls finds calls in blocks and in the text of a page.
func TestCalls(t *testing.T) {
	const page = "Say `tool one --a 'b c'`, not `other`.\n\n" +
		"    for i in 1 2; do tool two $i; done   # tool never\n" +
		"    go run ./cmd/tool three \\\n        --long\n\n" +
		"```console\n$ other && tool four | tool five &\n```\n" +
		"tool is no call here.\n"
	var got [][]string
	for _, code := range codeOf(page) {
		got = append(got, callsIn(code, "tool")...)
	}
	want := [][]string{{"one", "--a", "b", "c"}, {"two", "$i"}, {"three", "--long"}, {"four"}, {"five"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}
