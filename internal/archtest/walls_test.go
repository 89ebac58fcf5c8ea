// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostCoreMethods is the number of methods that the core may have. It routes between rooms, each a
// value with state and methods of its own; see ARCHITECTURE.md.
const mostCoreMethods = 30

// mostWriters is the number of files that may assign a field of a struct.
const mostWriters = 2

// TestWalls fails when the generator's core becomes a hall again: when it has more methods than a
// router needs, or when a field is assigned in more than two files.
func TestWalls(t *testing.T) {
	files, info := typed(t, filepath.Join(root, "pleg"))
	methods := 0
	writers := make(map[string]map[string]bool)
	for name, file := range files {
		writes := func(e ast.Expr) {
			for {
				switch x := e.(type) {
				case *ast.IndexExpr: // an element
					e = x.X
					continue
				case *ast.ParenExpr:
					e = x.X
					continue
				case *ast.SelectorExpr:
					if field := fieldOf(info, x); field != "" {
						if writers[field] == nil {
							writers[field] = make(map[string]bool)
						}
						writers[field][name] = true
					}
				}
				return
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && strings.Contains(types.ExprString(n.Recv.List[0].Type), "core[") {
					methods++
				}
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					writes(e)
				}
			case *ast.IncDecStmt:
				writes(n.X)
			}
			return true
		})
	}
	if methods == 0 || len(writers) < 50 {
		t.Fatalf("%d methods of the core and %d fields are assigned: the test has lost its object", methods, len(writers))
	}
	if methods > mostCoreMethods {
		t.Errorf("the core has %d methods, of %d: give some to the room whose state they are about", methods, mostCoreMethods)
	}
	for _, field := range slices.Sorted(maps.Keys(writers)) {
		if in := slices.Sorted(maps.Keys(writers[field])); len(in) > mostWriters {
			t.Errorf("%s is assigned in %s: give its struct a method", field, strings.Join(in, ", "))
		}
	}
}

// typed returns the files of a package but its tests, and the types of their expressions, as far as
// they need no other package.
func typed(t *testing.T, dir string) (map[string]*ast.File, *types.Info) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	files := make(map[string]*ast.File)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(path)] = file
	}
	info := &types.Info{Selections: make(map[*ast.SelectorExpr]*types.Selection)}
	config := types.Config{
		Importer: nothing{},
		Error:    func(error) {}, // of what other packages have
	}
	_, _ = config.Check(dir, fset, slices.Collect(maps.Values(files)), info)
	return files, info
}

// nothing imports every package as an empty one.
type nothing struct{}

// Import implements types.Importer.
func (nothing) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}

// fieldOf returns the field that a selector names, with its struct, or "" if it names none.
func fieldOf(info *types.Info, x *ast.SelectorExpr) string {
	sel := info.Selections[x]
	if sel == nil || sel.Kind() != types.FieldVal {
		return ""
	}
	at := sel.Recv()
	name := ""
	for _, i := range sel.Index() {
		if p, ok := at.Underlying().(*types.Pointer); ok {
			at = p.Elem()
		}
		s, ok := at.Underlying().(*types.Struct)
		if !ok {
			return ""
		}
		owner := types.TypeString(at, func(*types.Package) string { return "" })
		owner, _, _ = strings.Cut(owner, "[")
		name = owner + "." + s.Field(i).Name()
		at = s.Field(i).Type()
	}
	return name
}
