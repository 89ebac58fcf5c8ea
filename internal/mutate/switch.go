// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
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

// switched returns a file with mutations built in: a mutated function has its body once more for
// each mutation, ahead of the unchanged body, and runs the chosen one. A mutation outside of a
// function's body is an error.
func switched(file, src string, muts map[int]mutation) (text, pkg string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.SkipObjectResolution)
	if err != nil {
		return "", "", err
	}
	variants := map[int]string{} // by the offset of the function's body
	for _, number := range slices.Sorted(maps.Keys(muts)) {
		m := muts[number]
		if n := strings.Count(src, m.old); n != 1 {
			return "", "", fmt.Errorf(
				"mutation %q: its text occurs %d times in %s, want once: adapt it to the code",
				m.name,
				n,
				file,
			)
		}
		from, to, instead := m.edit(src)
		d := funcAround(f, from, to)
		if d == nil {
			return "", "", fmt.Errorf(
				"mutation %q changes more of %s than the body of one function: let it break what a function does",
				m.name,
				file,
			)
		}
		begin := int(d.Body.Lbrace-f.FileStart) + 1
		end := int(d.Body.Rbrace - f.FileStart)
		leave := ""
		if d.Type.Results == nil {
			leave = "return\n" // with results, the body ends with a return of its own
		}
		variants[begin] += fmt.Sprintf(
			"\nif mutation__ == %d {%s%s%s\n%s}\n",
			number,
			src[begin:from],
			instead,
			src[to:end],
			leave,
		)
	}
	var out strings.Builder
	done := 0
	for _, begin := range slices.Sorted(maps.Keys(variants)) {
		out.WriteString(src[done:begin] + variants[begin])
		done = begin
	}
	out.WriteString(src[done:])
	return out.String(), f.Name.Name, nil
}

// edit returns the part of a file changed by the mutation, and the new text, without the text
// repeated only to be found.
func (m mutation) edit(src string) (from, to int, instead string) {
	instead = m.new
	from = strings.Index(src, m.old)
	to = from + len(m.old)
	for from < to && instead != "" && src[from] == instead[0] {
		from++
		instead = instead[1:]
	}
	for from < to && instead != "" && src[to-1] == instead[len(instead)-1] {
		to--
		instead = instead[:len(instead)-1]
	}
	return from, to, instead
}

// funcAround returns the function with a part of the file in its body, nil without any.
func funcAround(f *ast.File, from, to int) *ast.FuncDecl {
	for _, decl := range f.Decls {
		d, ok := decl.(*ast.FuncDecl)
		if ok && d.Body != nil && int(d.Body.Lbrace-f.FileStart) < from &&
			to <= int(d.Body.Rbrace-f.FileStart) {
			return d
		}
	}
	return nil
}
