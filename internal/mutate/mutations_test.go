// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/parser"
	"go/token"
	"os"
	"testing"
)

// TestEveryMutationApplies fails when a change of the code has left a mutation behind, when a
// mutation changes more than the body of a single function, or when the code with all mutations
// does not compile: then none of them can be tried.
func TestEveryMutationApplies(t *testing.T) {
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorkshop(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if all := len(allMutations()); len(w.numbers) != all {
		t.Errorf("%d mutations have %d names", all, len(w.numbers))
	}
	for file, path := range w.overlay {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), file, text, 0); err != nil {
			t.Error(err)
		}
	}
	if err := w.compiles(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestScriptsNameMutations fails when a script names a renamed or deleted mutation.
func TestScriptsNameMutations(t *testing.T) {
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := named(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(scripts) < 50 {
		t.Errorf("scripts name %d mutations only", len(scripts))
	}
}

func TestReason(t *testing.T) {
	for _, c := range []struct {
		title, out, want string
	}{
		{
			title: "a search names its scope",
			out:   "prove_test.go:9: scope CAqs: a false exit: p1",
			want:  " (a false exit, scope CAqs)",
		},
		{
			title: "a simulation names its seed",
			out:   "main_test.go:9: seed 17, at 3s: p1 is stale: no read",
			want:  " (p1 is stale, seed 17)",
		},
		{
			title: "a hang",
			out:   "time stands still",
			want:  " (hang)",
		},
		{
			title: "a timeout is a hang or a slow machine",
			out:   "panic: test timed out after 1m0s",
			want:  " (timed out)",
		},
		{
			title: "a timeout after a test has failed is no doubt",
			out:   "--- FAIL: TestShutdown (0.00s)\npanic: test timed out after 1m0s",
			want:  "",
		},
	} {
		t.Run(c.title, func(t *testing.T) {
			if got := reason(c.out); got != c.want {
				t.Errorf("reason is %q, want %q", got, c.want)
			}
		})
	}
}
