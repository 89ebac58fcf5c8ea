// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// apart are the folders, with those below, without a packed literal and without an assignment of
// several things that are no swap: all but that of the file excused.
var apart = []string{
	"cache",
	"cmd",
	"cri",
	"deploy",
	"embed",
	"events",
	"exits",
	"internal",
	"metrics",
	"pleg",
	"test",
	"tools",
}

// notApart is a file with one such assignment.
const notApart = "/cri/client.go"

// TestLinesHoldOneThing wants a key a line in a literal of four keys and more, and one assignment a
// line. A table of literals has a row a line, and the header of a loop may begin several things.
func TestLinesHoldOneThing(t *testing.T) {
	files := 0
	eachGoFile(t, apart, func(path string, f parsed) {
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, notApart) {
			return
		}
		files++
		for _, at := range f.packed() {
			t.Errorf("%s: a literal of four keys and more; write a key a line", at)
		}
		for _, at := range f.parallel() {
			t.Errorf("%s: an assignment of several things; write one a line", at)
		}
	})
	if files < 400 {
		t.Errorf("%d files found: is the test in its place?", files)
	}
}

// TestSharedLinesAreFound holds the rule to what it must name, and to what is fine.
func TestSharedLinesAreFound(t *testing.T) {
	for body, want := range map[string]int{
		"x := T{a: 1, b: 2, c: 3, d: 4}":                     1,
		"x := T{\na: 1,\nb: 2,\nc: 3,\nd: 4,\n}":             0,
		"x := T{a: 1, b: 2, c: 3, d: 4, e: 5,\nf: 6, g: 7}":  1,
		"x := T{a: 1, b: 2, c: 3}":                           0,
		"x := []T{{a: 1, b: 2, c: 3, d: 4}, {a: 1}}":         0,
		"x := []*T{&T{a: 1, b: 2, c: 3, d: 4}}":              0,
		"x := map[string]T{\"x\": {a: 1, b: 2, c: 3, d: 4}}": 0,
		"a, b := f(), g()":                                   1,
		"a.x, b = 1, 2":                                      1,
		"switch { case true: a, b = 1, 2 }":                  1,
		"a, b = b, a":                                        0,
		"q[i], q[j] = q[j], q[i]":                            0,
		"a, b := f()":                                        0,
		"for a, b := 1, 2; a < b; a++ {}":                    0,
		"if a, b := f(), g(); a < b {}":                      0,
		"switch a, b := f(), g(); { case a < b: }":           0,
	} {
		f := parse(t, "x.go", []byte("package x\nfunc f() { "+body+" }\n"))
		if found := slices.Concat(f.packed(), f.parallel()); len(found) != want {
			t.Errorf("%s: found %q, want %d", body, found, want)
		}
	}
}

// packed returns the places of literals of four keys and more with fewer lines than keys.
func (f parsed) packed() (found []string) {
	rows := make(map[ast.Expr]bool) // of tables
	ast.Inspect(f.file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		keys := 0
		for _, element := range literal.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				keys++
				element = pair.Value
			}
			if pointer, ok := element.(*ast.UnaryExpr); ok {
				element = pointer.X
			}
			rows[element] = true
		}
		lines := f.line(literal.End()) - f.line(literal.Pos()) + 1
		if keys >= 4 && keys > lines && !rows[literal] {
			found = append(found, f.set.Position(literal.Pos()).String())
		}
		return true
	})
	return found
}

func (f parsed) line(at token.Pos) int { return f.set.Position(at).Line }

// parallel returns the places of statements that assign several values to several things.
func (f parsed) parallel() (found []string) {
	look := func(list []ast.Stmt) {
		for _, s := range list {
			a, ok := s.(*ast.AssignStmt)
			if ok && len(a.Lhs) > 1 && len(a.Lhs) == len(a.Rhs) && !f.swaps(a) {
				found = append(found, f.set.Position(a.Pos()).String())
			}
		}
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			look(n.List)
		case *ast.CaseClause:
			look(n.Body)
		case *ast.CommClause:
			look(n.Body)
		}
		return true
	})
	return found
}

// swaps reports whether a value is read from what a statement assigns before it.
func (f parsed) swaps(a *ast.AssignStmt) (swaps bool) {
	for i, value := range a.Rhs {
		ast.Inspect(value, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			swaps = swaps || ok && slices.ContainsFunc(a.Lhs[:i], func(l ast.Expr) bool { return f.source(l) == f.source(e) })
			return true
		})
	}
	return swaps
}

func (f parsed) source(n ast.Node) string {
	return string(f.text[f.set.Position(n.Pos()).Offset:f.set.Position(n.End()).Offset])
}
