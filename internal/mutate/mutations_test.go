// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/parser"
	"go/token"
	"testing"
)

// TestEveryMutationApplies: a change of the code that a mutation names must change the mutation too, and not wait for somebody to run them all.
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

// TestScriptsNameMutations: a mutation that is renamed or deleted must not leave scripts behind that are thought to convict it.
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
