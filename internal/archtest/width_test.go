// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// libraries are the folders that embedders read.
var libraries = []string{"pleg", "cache", "cri", "cri/fakeruntime", "metrics", "events", "embed", "embed/install", "embed/kubelet", "embed/ledger"}

const (
	longestFunction = 70  // lines, braces included
	widestComment   = 100 // bytes, without the indentation
)

// TestLibrariesCanBeRead wants functions that fit on a screen, and comments that fit beside another
// window.
func TestLibrariesCanBeRead(t *testing.T) {
	files := 0
	for _, dir := range libraries {
		paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			files++
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, complaint := range unreadable(t, path, text) {
				t.Error(complaint)
			}
		}
	}
	if files < 50 {
		t.Fatalf("%d files found: is the test in its place?", files)
	}
}

// unreadable returns where a file has functions that are too long and comments that are too wide.
func unreadable(t *testing.T, path string, text []byte) []string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, group := range file.Comments {
		for _, comment := range group.List {
			for i, line := range strings.Split(comment.Text, "\n") {
				if len(line) > widestComment {
					at := set.Position(comment.Pos())
					at.Line += i
					found = append(found, at.String()+": a comment over 100 columns")
				}
			}
		}
	}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			if from, to := set.Position(f.Pos()), set.Position(f.End()); to.Line-from.Line+1 > longestFunction {
				found = append(found, from.String()+": "+f.Name.Name+" has over 70 lines")
			}
		}
	}
	return found
}

func TestUnreadableIsSeen(t *testing.T) {
	good := "package p\n\n// " + strings.Repeat("x", 97) + "\nfunc f() {" + strings.Repeat("\n", 69) + "}\n"
	if found := unreadable(t, "good.go", []byte(good)); len(found) != 0 {
		t.Errorf("complaints about a file that can be read: %q", found)
	}
	bad := "package p\n\n// " + strings.Repeat("x", 98) + "\nfunc f() {" + strings.Repeat("\n", 70) + "}\n"
	if found := unreadable(t, "bad.go", []byte(bad)); len(found) != 2 || !strings.HasPrefix(found[0], "bad.go:3:") {
		t.Errorf("complaints about a wide comment and a long function: %q", found)
	}
}
