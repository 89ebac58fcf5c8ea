// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// states are the states of package events: a field, or all fields of a struct. Only functions named
// become… enter a state.
var states = []string{"state.phase", "state.end", "scope.", "roster.phase", "core.stage"}

// TestStatesAreEntered fails when a state of package events is entered by another function than a
// become… of its type, or when the header of an if or switch there has an effect.
func TestStatesAreEntered(t *testing.T) {
	files, info := typed(t, filepath.Join(root, "events"))
	entered := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, decl := range files[name].Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			enter := func(e ast.Expr) {
				field := assigned(info, e)
				for _, state := range states {
					if !strings.HasPrefix(field, state) {
						continue
					}
					entered[state]++
					owner, _, _ := strings.Cut(field, ".")
					if !strings.HasPrefix(f.Name.Name, "become") || f.Recv == nil || receiver(f) != owner {
						t.Errorf("events/%s: %s assigns %s: give %s a become method", name, f.Name.Name, field, owner)
					}
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for _, e := range n.Lhs {
						enter(e)
					}
				case *ast.IncDecStmt:
					enter(n.X)
				case *ast.IfStmt:
					onlyAsks(t, name, f, n.Init)
				case *ast.SwitchStmt:
					onlyAsks(t, name, f, n.Init)
				}
				return true
			})
		}
	}
	for _, state := range states {
		if entered[state] == 0 {
			t.Errorf("events: nothing enters %s: the test has lost its object", state)
		}
	}
}

// onlyAsks fails if the first statement in a header does more than define a name.
func onlyAsks(t *testing.T, file string, f *ast.FuncDecl, init ast.Stmt) {
	t.Helper()
	define, ok := init.(*ast.AssignStmt)
	if init != nil && (!ok || define.Tok != token.DEFINE) {
		t.Errorf("events/%s: an effect in a header in %s: a header asks, a body acts", file, f.Name.Name)
	}
}
