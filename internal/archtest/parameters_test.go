// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"strings"
	"testing"
)

// sideBySide is how many functions of a folder, with those below, may take two instants, two times
// or two booleans one after the other. A caller can swap these, and no compiler says so: a span or
// another struct has names for them. The numbers are those of today: they may fall, not grow.
var sideBySide = map[string]int{
	"pleg":   15,
	"cache":  2,
	"cri":    1,
	"events": 2,
	"exits":  2,
	"embed":  2,
	"cmd":    0,
}

// TestParametersHaveNames holds the folders to their numbers.
func TestParametersHaveNames(t *testing.T) {
	for folder, most := range sideBySide {
		var found []string
		eachGoFile(t, []string{folder}, func(path string, f parsed) {
			if !strings.HasSuffix(path, "_test.go") {
				found = append(found, f.sideBySide()...)
			}
		})
		if len(found) > most {
			t.Errorf("%s: %d functions take two instants, times or booleans side by side, %d at the most; write a struct with names:\n%s",
				folder, len(found), most, strings.Join(found, "\n"))
		}
		if len(found) < most {
			t.Errorf("%s: only %d functions take two instants, times or booleans side by side: lower its number", folder, len(found))
		}
	}
}

// TestSideBySideIsFound holds the rule to what it must name, and to what is fine.
func TestSideBySideIsFound(t *testing.T) {
	for params, want := range map[string]int{
		"a, b instant":              1,
		"a bool, b bool":            1,
		"from, to time.Time":        1,
		"a instant, s S, b instant": 0,
		"a span":                    0,
		"a, b int":                  0,
		"instant, instant":          1,
		"a bool, b ...bool":         0,
	} {
		f := parse(t, "x.go", []byte("package x\nfunc f("+params+") {}\n"))
		if found := f.sideBySide(); len(found) != want {
			t.Errorf("func f(%s): %d found, want %d", params, len(found), want)
		}
	}
}

// sideBySide returns where functions take two instants, times or booleans one after the other.
func (f parsed) sideBySide() (found []string) {
	ast.Inspect(f.file, func(n ast.Node) bool {
		fn, ok := n.(*ast.FuncType)
		if !ok {
			return true
		}
		last := ""
		for _, field := range fn.Params.List {
			kind := swappable(field.Type)
			if kind != "" && (kind == last || len(field.Names) > 1) {
				found = append(found, f.set.Position(field.Pos()).String())
				break
			}
			last = kind
		}
		return true
	})
	return found
}

// swappable names a type of which two values tell nothing by themselves; empty for other types.
func swappable(kind ast.Expr) string {
	switch x := kind.(type) {
	case *ast.Ident:
		if x.Name == "instant" || x.Name == "bool" {
			return x.Name
		}
	case *ast.SelectorExpr:
		if pkg, ok := x.X.(*ast.Ident); ok && pkg.Name == "time" && x.Sel.Name == "Time" {
			return "time.Time"
		}
	}
	return ""
}
