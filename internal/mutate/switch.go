// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// chosenBy is the environment variable that chooses the mutation of a test binary with all of them:
// its number, or nothing.
const chosenBy = "EVENTED_PLEG_MUTATION"

// chooser is the file added to a package.
const chooser = `package %s

import (
	"os"
	"strconv"
)

var mutation__, _ = strconv.Atoi(os.Getenv("` + chosenBy + `"))
`

// edit is the part of a file changed by a mutation, without the text repeated only to be found.
type edit struct {
	number     int
	start, end int // offsets in the file
	text       string
}

// edit returns the mutation's change in the text of its file.
func (m mutation) edit(number int, src string) edit {
	e := edit{number: number, start: strings.Index(src, m.old), text: m.new}
	e.end = e.start + len(m.old)
	for e.start < e.end && e.text != "" && src[e.start] == e.text[0] {
		e.start, e.text = e.start+1, e.text[1:]
	}
	for e.start < e.end && e.text != "" && src[e.end-1] == e.text[len(e.text)-1] {
		e.end, e.text = e.end-1, e.text[:len(e.text)-1]
	}
	return e
}

// switched returns a file with mutations built in: each mutated function is there unchanged, and
// once for each mutation, and the function of its name calls the chosen variant. A mutation outside
// of a function's body is an error.
func switched(file, src string, muts map[int]mutation) (text, pkg string, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return "", "", err
	}
	g := goFile{src: src, offset: func(p token.Pos) int { return fset.Position(p).Offset }}
	edits := map[*ast.FuncDecl][]edit{}
	for _, number := range slices.Sorted(maps.Keys(muts)) {
		e := muts[number].edit(number, src)
		d := g.changedBy(f, e)
		if d == nil {
			return "", "", fmt.Errorf("mutation %q changes more of %s than the body of one function: let it break what a function does", muts[number].name, file)
		}
		edits[d] = append(edits[d], e)
	}
	var out strings.Builder
	from := 0
	for _, decl := range f.Decls {
		if d, ok := decl.(*ast.FuncDecl); ok && len(edits[d]) > 0 {
			out.WriteString(src[from:g.offset(d.Pos())])
			g.choice(&out, d, edits[d])
			from = g.offset(d.End())
		}
	}
	out.WriteString(src[from:])
	return out.String(), f.Name.Name, nil
}

// goFile is the text of a file, and the positions of its syntax.
type goFile struct {
	src    string
	offset func(token.Pos) int
}

func (g *goFile) text(n ast.Node) string { return g.src[g.offset(n.Pos()):g.offset(n.End())] }

// changedBy returns the function with all of an edit in its body, nil without any.
func (g *goFile) changedBy(f *ast.File, e edit) *ast.FuncDecl {
	for _, decl := range f.Decls {
		d, ok := decl.(*ast.FuncDecl)
		if ok && d.Body != nil && g.offset(d.Body.Lbrace) < e.start && e.end <= g.offset(d.Body.Rbrace) {
			return d
		}
	}
	return nil
}

// choice writes the variants of a function, and a function that calls the chosen variant.
func (g *goFile) choice(out *strings.Builder, d *ast.FuncDecl, edits []edit) {
	name := d.Name.Name
	receiver, on := "", ""
	if d.Recv != nil {
		receiver, on = "(r__ "+g.text(d.Recv.List[0].Type)+") ", "r__."
	}
	var params, args, types []string
	for _, field := range d.Type.Params.List {
		for range max(1, len(field.Names)) {
			p := fmt.Sprintf("p%d__", len(params))
			params = append(params, p+" "+g.text(field.Type))
			if _, ok := field.Type.(*ast.Ellipsis); ok {
				p += "..."
			}
			args = append(args, p)
		}
	}
	typeParams, typeArgs := "", ""
	if d.Type.TypeParams != nil {
		typeParams = g.text(d.Type.TypeParams)
		for _, field := range d.Type.TypeParams.List {
			for _, n := range field.Names {
				types = append(types, n.Name)
			}
		}
		typeArgs = "[" + strings.Join(types, ", ") + "]"
	}
	results, ret := "", ""
	if d.Type.Results != nil {
		results, ret = g.text(d.Type.Results), "return "
	}
	call := func(number int) string {
		return fmt.Sprintf("%s%s%s__%d%s(%s)", ret, on, name, number, typeArgs, strings.Join(args, ", "))
	}
	fmt.Fprintf(out, "func %s%s%s(%s) %s {\n\tswitch mutation__ {\n", receiver, name, typeParams, strings.Join(params, ", "), results)
	for _, e := range edits {
		fmt.Fprintf(out, "\tcase %d:\n\t\t%s\n", e.number, call(e.number))
	}
	fmt.Fprintf(out, "\tdefault:\n\t\t%s\n\t}\n}\n", call(0))
	start, end := g.offset(d.Name.End()), g.offset(d.End())
	head := g.src[g.offset(d.Pos()):g.offset(d.Name.Pos())] + name
	fmt.Fprintf(out, "\n%s__0%s\n", head, g.src[start:end])
	for _, e := range edits {
		fmt.Fprintf(out, "\n%s__%d%s%s%s\n", head, e.number, g.src[start:e.start], e.text, g.src[e.end:end])
	}
}

// chooserOf is the name of the file by which a mutation of a file is chosen.
func chooserOf(file string) string { return path.Join(path.Dir(file), "mutation__.go") }
