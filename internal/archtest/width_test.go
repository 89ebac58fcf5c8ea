// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// libraries are the folders read by embedders.
var libraries = []string{
	"pleg",
	"pleg/plegtest",
	"cache",
	"cri",
	"cri/criphase",
	"cri/fakeruntime",
	"cri/fakeruntime/processors",
	"metrics",
	"events",
	"exits",
	"embed",
	"embed/changes",
	"embed/install",
	"embed/kubelet",
	"embed/ledger",
}

const (
	longestFunction = 70  // lines, braces included
	widest          = 100 // columns, without the indentation
)

// TestFilesCanBeRead wants comments of 100 columns in every module, and in libraries functions that
// fit on a screen.
func TestFilesCanBeRead(t *testing.T) {
	files := 0
	eachFile(t, func(path string) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		files++
		text := read(t, path)
		f := parse(t, path, text)
		if ast.IsGenerated(f.file) {
			return
		}
		comments := f.wideComments()
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		if len(comments) > 0 {
			t.Errorf("%s: comments over 100 columns", strings.Join(comments, ", "))
		}
		if slices.Contains(libraries, dir) && !strings.HasSuffix(path, "_test.go") {
			for _, complaint := range f.longFunctions() {
				t.Error(complaint)
			}
		}
	})
	if files < 400 {
		t.Fatalf("%d files found: is the test in its place?", files)
	}
}

// parsed is a file and its text.
type parsed struct {
	set  *token.FileSet
	file *ast.File
	text []byte
}

func parse(t *testing.T, path string, text []byte) parsed {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return parsed{set, file, text}
}

// wideComments returns the places of wide comments. The output of an example may have any width.
func (f parsed) wideComments() (found []string) {
	raw := map[int]bool{}
	for _, group := range f.file.Comments {
		if strings.HasPrefix(group.Text(), "Output:") {
			for line := f.set.Position(group.Pos()).Line; line <= f.set.Position(group.End()).Line; line++ {
				raw[line] = true
			}
		}
	}
	for i, line := range strings.Split(string(f.text), "\n") {
		line = strings.TrimLeft(line, "\t")
		at := f.set.Position(f.file.FileStart)
		at.Line, at.Column = i+1, 0
		if utf8.RuneCountInString(line) > widest && strings.HasPrefix(line, "//") &&
			!strings.HasPrefix(line, "//go:") &&
			!raw[i+1] {
			found = append(found, at.String())
		}
	}
	return found
}

func (f parsed) longFunctions() (found []string) {
	for _, decl := range f.file.Decls {
		if d, ok := decl.(*ast.FuncDecl); ok {
			from, to := f.set.Position(d.Pos()), f.set.Position(d.End())
			if to.Line-from.Line+1 > longestFunction {
				found = append(found, from.String()+": "+d.Name.Name+" has over 70 lines")
			}
		}
	}
	return found
}
