// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package jsonref writes the reference of the tools' JSON, docs/json.md, from the Go types.
//
// # Model
//
// A [Root] is an object that a command prints. [Render] parses the packages of the roots, follows
// the fields to the types of this repository, and writes a table for each root. A type that is met
// in several places has a table of its own. The meaning of a field is its comment.
//
// # Concurrency
//
// Render starts nothing.
//
// # Errors
//
// Render names each field without a comment, and a type that it cannot follow.
package jsonref

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Root is an object that a command prints.
type Root struct {
	// Title is the heading of its table, Text what stands below the heading.
	Title, Text string
	// Dir is the folder of its package, Type its type there.
	Dir, Type string
}

// module is the path below which imports are folders of the repository.
const module = "github.com/evented-pleg/evented-pleg/"

// name is a type of the repository.
type name struct{ dir, typ string }

// generator reads packages and writes tables.
type generator struct {
	repo   string
	parsed map[string]map[string]declared // by folder and type
	met    map[name]int                   // in how many fields structs are met
	errs   []error
}

// declared is a type with the imports of its file.
type declared struct {
	expr    ast.Expr
	doc     string
	imports map[string]string // path by name
}

// Render returns the page: the head, and a table for each root, of packages below a folder.
func Render(repo, head string, roots []Root) (string, error) {
	g := &generator{repo: repo, parsed: make(map[string]map[string]declared), met: make(map[name]int)}
	for _, r := range roots {
		g.count(name{r.Dir, r.Type})
	}
	var b strings.Builder
	b.WriteString(head)
	for _, r := range roots {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s", r.Title, r.Text, g.table(name{r.Dir, r.Type}))
	}
	byType := func(a, b name) int { return cmp.Or(strings.Compare(a.typ, b.typ), strings.Compare(a.dir, b.dir)) }
	for _, n := range slices.SortedFunc(maps.Keys(g.met), byType) {
		if g.shared(n) {
			text := meaning(n.typ, g.find(n).doc)
			fmt.Fprintf(
				&b,
				"\n## %s\n\n%s%s.\n\n%s",
				n.typ,
				strings.ToUpper(text[:min(1, len(text))]),
				text[min(1, len(text)):],
				g.table(n),
			)
		}
	}
	return b.String(), errors.Join(g.errs...)
}

// shared reports whether a type has a table of its own.
func (g *generator) shared(n name) bool { return g.met[n] > 1 }

// count counts the structs below a struct.
func (g *generator) count(n name) {
	g.fields(n, func(f field) {
		below, ok := g.structOf(n.dir, g.find(n), f.expr)
		if !ok {
			return
		}
		g.met[below]++
		if g.met[below] == 1 {
			g.count(below)
		}
	})
}

// table returns the rows of a struct.
func (g *generator) table(n name) string {
	var b strings.Builder
	b.WriteString("| field | type | meaning |\n|---|---|---|\n")
	g.rows(&b, n, "")
	return b.String()
}

func (g *generator) rows(b *strings.Builder, n name, prefix string) {
	g.fields(n, func(f field) {
		at := g.find(n)
		below, isStruct := g.structOf(n.dir, at, f.expr)
		switch {
		case f.embedded && g.shared(below):
			where := "here"
			if prefix != "" {
				where = "in `" + strings.TrimSuffix(prefix, ".") + "`"
			}
			fmt.Fprintf(b, "| %s | %s | all of its fields |\n", where, link(below))
			return
		case f.embedded:
			g.rows(b, below, prefix)
			return
		}
		path := prefix + f.json
		if f.doc == "" && (!isStruct || g.shared(below)) {
			g.errs = append(g.errs, fmt.Errorf("%s: %s.%s has no comment", n.dir, n.typ, f.name))
		}
		if f.doc != "" {
			text := g.text(n.dir, at, f.expr)
			if f.optional {
				text += ", optional"
			}
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", path, text, meaning(f.name, f.doc))
		}
		if isStruct && !g.shared(below) {
			g.rows(b, below, path+brackets(f.expr)+".")
		}
	})
}

// brackets follow the path of a list or a map, before the fields of its elements.
func brackets(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return brackets(e.X)
	case *ast.ArrayType:
		return "[]" + brackets(e.Elt)
	case *ast.MapType:
		return ".*" + brackets(e.Value)
	}
	return ""
}

// field is a field of a struct as JSON has it.
type field struct {
	name, json, doc    string
	optional, embedded bool
	expr               ast.Expr
}

// fields yields the fields of a struct that JSON has.
func (g *generator) fields(n name, yield func(field)) {
	st, ok := g.find(n).expr.(*ast.StructType)
	if !ok {
		g.errs = append(g.errs, fmt.Errorf("%s: %s is no struct", n.dir, n.typ))
		return
	}
	for _, f := range st.Fields.List {
		doc := strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
		tag := ""
		if f.Tag != nil {
			raw, _ := strconv.Unquote(f.Tag.Value) // the parser has checked it
			tag = reflect.StructTag(raw).Get("json")
		}
		key, options, _ := strings.Cut(tag, ",")
		if len(f.Names) == 0 {
			yield(field{embedded: true, expr: f.Type})
		}
		for _, id := range f.Names {
			if id.IsExported() && key != "" && key != "-" {
				yield(field{
					name:     id.Name,
					json:     key,
					doc:      doc,
					optional: strings.Contains(options, "omitempty"),
					expr:     f.Type,
				})
			}
		}
	}
}

// find returns a type, parsing its package.
func (g *generator) find(n name) declared {
	if g.parsed[n.dir] == nil {
		g.parse(n.dir)
	}
	return g.parsed[n.dir][n.typ]
}

func (g *generator) parse(dir string) {
	types := make(map[string]declared)
	g.parsed[dir] = types
	entries, err := os.ReadDir(filepath.Join(g.repo, dir))
	if err != nil {
		g.errs = append(g.errs, err)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(
			token.NewFileSet(),
			filepath.Join(g.repo, dir, entry.Name()),
			nil,
			parser.ParseComments,
		)
		if err != nil {
			g.errs = append(g.errs, err)
			continue
		}
		imports := make(map[string]string)
		for _, spec := range file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			local := path.Base(imported)
			if spec.Name != nil {
				local = spec.Name.Name
			}
			imports[local] = imported
		}
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				continue
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.TypeSpec)
				types[spec.Name.Name] = declared{
					spec.Type,
					strings.Join(strings.Fields(decl.Doc.Text()), " "),
					imports,
				}
			}
		}
	}
}

// follow returns the type of the repository that an expression names, if it names one.
func (g *generator) follow(dir string, at declared, e ast.Expr) (name, bool) {
	switch e := e.(type) {
	case *ast.Ident:
		n := name{dir, e.Name}
		return n, g.find(n).expr != nil
	case *ast.SelectorExpr:
		imported := at.imports[e.X.(*ast.Ident).Name]
		below, ours := strings.CutPrefix(imported, module)
		return name{below, e.Sel.Name}, ours
	}
	return name{}, false
}

// structOf returns the struct that a field holds, alone or in lists and maps.
func (g *generator) structOf(dir string, at declared, e ast.Expr) (name, bool) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return g.structOf(dir, at, e.X)
	case *ast.ArrayType:
		return g.structOf(dir, at, e.Elt)
	case *ast.MapType:
		return g.structOf(dir, at, e.Value)
	}
	n, ok := g.follow(dir, at, e)
	if !ok {
		return name{}, false
	}
	_, ok = g.find(n).expr.(*ast.StructType)
	return n, ok
}

// link leads to the table of a type.
func link(n name) string { return fmt.Sprintf("[%s](#%s)", n.typ, strings.ToLower(n.typ)) }

// text is the type of a field in words.
func (g *generator) text(dir string, at declared, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		if _, ok := g.structOf(dir, at, e.X); ok {
			return g.text(dir, at, e.X)
		}
		return g.text(dir, at, e.X) + " or null"
	case *ast.ArrayType:
		if bound, ok := e.Len.(*ast.BasicLit); ok {
			return "list of " + bound.Value + " " + g.text(dir, at, e.Elt)
		}
		return "list of " + g.text(dir, at, e.Elt)
	case *ast.MapType:
		return "map of " + g.text(dir, at, e.Value)
	case *ast.InterfaceType:
		return "object"
	}
	if n, ok := g.follow(dir, at, e); ok {
		found := g.find(n)
		if _, ok := found.expr.(*ast.StructType); !ok {
			return g.text(n.dir, found, found.expr)
		}
		if g.shared(n) {
			return link(n)
		}
		return "object"
	}
	switch e := e.(type) {
	case *ast.Ident:
		if short, ok := basic[e.Name]; ok {
			return short
		}
	case *ast.SelectorExpr:
		if e.Sel.Name == "Time" {
			return "time"
		}
	}
	g.errs = append(g.errs, fmt.Errorf("%s: the type %T cannot be followed", dir, e))
	return "?"
}

var basic = map[string]string{
	"bool":    "bool",
	"string":  "string",
	"float64": "float",
	"int":     "int",
	"int32":   "int",
	"int64":   "int",
	"uint64":  "int",
}

// meaning is a comment without the name with which it begins, for a cell of a table.
func meaning(name, doc string) string {
	for _, begin := range []string{name + " is ", name + " are ", name + " "} {
		if rest, ok := strings.CutPrefix(doc, begin); ok {
			doc = rest
			break
		}
	}
	return strings.ReplaceAll(strings.TrimSuffix(doc, "."), "|", "\\|")
}
