// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// TestHeadersHaveNoEffect wants the header of an if or switch to ask and its body to act: a counter
// that grows in a header is overlooked.
func TestHeadersHaveNoEffect(t *testing.T) {
	eachFile(t, func(path string) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return
		}
		f := parse(t, path, read(t, path))
		for _, at := range f.effects() {
			t.Errorf("%s: an effect in the header of an if or switch; put it on a line of its own before", at)
		}
	})
}

// TestEffectsAreFound holds effects to the headers that it must name, and to those that are fine.
func TestEffectsAreFound(t *testing.T) {
	for header, want := range map[string]int{
		"if n++; n > 1 {}":                                 1,
		"if delete(m, 1); len(m) == 0 {}":                  1,
		"if s.f = g(); s.f {}":                             1,
		"if m[1], ok = g(); ok {}":                         1,
		"switch n--; { case n > 1: }":                      1,
		"if x := g(); x {}":                                0,
		"if err = g(); err != nil {}":                      0,
		"if s.v, s.err = g(); s.err != nil {}":             0,
		"switch x := y.(type) { case int: _ = x }":         0,
		"if err := g(); err != nil { n++ } else { m = 1 }": 0,
	} {
		f := parse(t, "x.go", []byte("package x\nfunc f() { "+header+" }\n"))
		if found := f.effects(); len(found) != want {
			t.Errorf("%s: found %q, want %d", header, found, want)
		}
	}
}

// effects returns the places of headers with an effect. An assignment to an error that the header
// asks about is none, as is a declaration.
func (f parsed) effects() (found []string) {
	ast.Inspect(f.file, func(n ast.Node) bool {
		var init ast.Stmt
		switch n := n.(type) {
		case *ast.IfStmt:
			init = n.Init
		case *ast.SwitchStmt:
			init = n.Init
		}
		if isEffect(init) {
			found = append(found, f.set.Position(init.Pos()).String())
		}
		return true
	})
	return found
}

func isEffect(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt:
		return true
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return false
		}
		switch last := s.Lhs[len(s.Lhs)-1].(type) {
		case *ast.Ident:
			return last.Name != "err"
		case *ast.SelectorExpr:
			return last.Sel.Name != "err"
		}
		return true
	}
	return false
}
