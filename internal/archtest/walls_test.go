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

// halls are the types that tend to become halls: each routes between rooms, values with state and
// methods of their own (see ARCHITECTURE.md), and has no more methods than a router needs.
var halls = []struct {
	dir, name string
	most      int // methods
}{
	{"pleg", "core", 30},
	{"events", "Broadcaster", 25},
}

// mostWriters is the number of files that may assign a field of a struct.
const mostWriters = 2

// TestWalls fails when a type becomes a hall again, or when a field of its package is assigned in
// more than two files.
func TestWalls(t *testing.T) {
	for _, hall := range halls {
		files, info := typed(t, filepath.Join(root, hall.dir))
		methods := 0
		writers := make(map[string]map[string]bool)
		for name, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if n.Recv != nil && receiver(n) == hall.name {
						methods++
					}
				case *ast.AssignStmt:
					for _, e := range n.Lhs {
						note(writers, name, assigned(info, e))
					}
				case *ast.IncDecStmt:
					note(writers, name, assigned(info, n.X))
				}
				return true
			})
		}
		if methods == 0 || len(writers) < 50 {
			t.Fatalf(
				"%s: %d methods of %s and %d fields are assigned: the test has lost its object",
				hall.dir,
				methods,
				hall.name,
				len(writers),
			)
		}
		if methods > hall.most {
			t.Errorf(
				"%s: %s has %d methods, of %d: give some to the room whose state they are about",
				hall.dir,
				hall.name,
				methods,
				hall.most,
			)
		}
		for _, field := range slices.Sorted(maps.Keys(writers)) {
			if in := slices.Sorted(maps.Keys(writers[field])); len(in) > mostWriters {
				t.Errorf(
					"%s: %s is assigned in %s: give its struct a method",
					hall.dir,
					field,
					strings.Join(in, ", "),
				)
			}
		}
	}
}

// receiver returns the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*"), "[")
	return name
}

// note notes that a file assigns a field, unless there is none.
func note(writers map[string]map[string]bool, file, field string) {
	if field == "" {
		return
	}
	if writers[field] == nil {
		writers[field] = make(map[string]bool)
	}
	writers[field][file] = true
}

// assigned returns the field to which an expression on the left of an assignment belongs, or "".
func assigned(info *types.Info, e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.IndexExpr: // an element
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.SelectorExpr:
			return fieldOf(info, x)
		default:
			return ""
		}
	}
}

// typed returns the files of a package but its tests, and the types of what they define and
// express, as far as they need no other package.
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
	info := &types.Info{
		Defs:       make(map[*ast.Ident]types.Object),
		Selections: make(map[*ast.SelectorExpr]*types.Selection),
		Types:      make(map[ast.Expr]types.TypeAndValue),
	}
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
