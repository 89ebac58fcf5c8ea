// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestEveryMutationApplies fails when a change of the code has left a mutation behind.
func TestEveryMutationApplies(t *testing.T) {
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range allMutations() {
		if names[m.name] {
			t.Errorf("two mutations are called %q", m.name)
		}
		names[m.name] = true
		text, err := m.apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, text, 0); err != nil {
			t.Errorf("mutation %q does not parse: %v", m.name, err)
		}
	}
}

// TestSwitched runs each function unchanged, and in the form of each of its mutations, by the
// chosen number.
func TestSwitched(t *testing.T) {
	const src = `package main

import "fmt"

type box[T any] struct{ v T }

func (b *box[T]) get() (v T, ok bool) { return b.v, true }

func sum[T int | float64](first T, _ string, more ...T) T {
	for _, m := range more {
		first += m
	}
	return first
}

func say(int) { fmt.Print("said ") }

func main() {
	say(1)
	v, ok := (&box[int]{7}).get()
	fmt.Print(v, ok, " ", sum(1, "", 2, 3))
}
`
	text, pkg, err := switched("main.go", src, map[int]mutation{
		1: {old: "return b.v, true", new: "return b.v, false"},
		2: {old: "first += m", new: "first -= m"},
		3: {old: "for _, m := range more {", new: "for _, m := range more[1:] {"},
		4: {old: `fmt.Print("said ")`, new: ""},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"main.go": text, "mutation__.go": fmt.Sprintf(chooser, pkg), "go.mod": "module m\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "m", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, text)
	}
	for number, want := range []string{"said 7 true 6", "said 7 false 6", "said 7 true -4", "said 7 true 4", "7 true 6"} {
		run := exec.CommandContext(t.Context(), filepath.Join(dir, "m"))
		run.Env = append(os.Environ(), fmt.Sprintf("%s=%d", chosenBy, number))
		if out, err := run.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("with mutation %d it says %q, error %v, want %q", number, out, err, want)
		}
	}
	if _, _, err := switched("main.go", src, map[int]mutation{1: {name: "x", old: "v T }", new: "v, w T }"}}); err == nil {
		t.Error("a mutation of a type is accepted")
	}
}

// TestWorkshop checks that all mutations change the body of a single function.
func TestWorkshop(t *testing.T) {
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorkshop(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
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
