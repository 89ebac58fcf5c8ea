// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// libraries are the folders read by embedders.
var libraries = []string{"pleg", "cache", "cri", "cri/fakeruntime", "metrics", "events", "embed", "embed/install", "embed/kubelet", "embed/ledger"}

const (
	longestFunction = 70  // lines, braces included
	widest          = 100 // columns, without the indentation
)

// Folders still to be straightened: wideComments have comments over 100 columns, wideCode code.
var (
	wideComments = []string{
		"internal/simulate", "test/kubelet/cmd/kubelet-build",
		"test/kubelet/cmd/kubelet-e2e", "test/node/workload",
	}
	wideCode = []string{
		"cache", "cmd/pleg-bench", "cri", "cri/fakeruntime", "cri/fakeruntime/rawcri",
		"cri/fakeruntime/strictmux", "embed", "embed/install", "embed/kubelet", "embed/ledger",
		"events", "events/eventstest", "internal/archtest", "internal/bench",
		"internal/bench/fakeproc", "internal/bench/load", "internal/bench/report",
		"internal/bench/run", "internal/bench/stream", "internal/bench/watch", "internal/bench/worker",
		"internal/cachemodel", "internal/faults", "internal/mutate",
		"internal/published", "internal/simulate", "metrics", "pleg", "test/apiserver",
		"test/controllerruntime", "test/kubelet/cmd/kubelet-build",
		"test/kubelet/cmd/kubelet-e2e", "test/kubelet/scene",
		"test/kubelet/standalone", "test/node/agent", "test/node/cmd/runtime", "test/node/components",
		"test/node/conformance", "test/node/crikit", "test/node/criproxy", "test/node/daemon",
		"test/node/image", "test/node/runtimes", "test/node/suite", "test/node/sweep",
		"test/peer", "test/peer/agent",
		"test/peer/kubelet", "test/peer/server", "test/pristine",
	}
)

// TestFilesCanBeRead wants lines of 100 columns in every module, and in libraries functions that
// fit on a screen.
func TestFilesCanBeRead(t *testing.T) {
	files := 0
	wide := map[string]bool{}
	eachFile(t, func(path string) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := parse(t, path, text)
		if ast.IsGenerated(f.file) {
			return
		}
		comments, code := f.wideLines()
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		if len(comments) > 0 && !slices.Contains(wideComments, dir) {
			t.Errorf("%s: comments over 100 columns", strings.Join(comments, ", "))
		}
		if len(code) > 0 && !slices.Contains(wideCode, dir) {
			t.Errorf("%s: code over 100 columns", strings.Join(code, ", "))
		}
		wide[dir+" comments"] = wide[dir+" comments"] || len(comments) > 0
		wide[dir+" code"] = wide[dir+" code"] || len(code) > 0
		if slices.Contains(libraries, dir) && !strings.HasSuffix(path, "_test.go") {
			for _, complaint := range f.longFunctions() {
				t.Error(complaint)
			}
		}
	})
	for kind, list := range map[string][]string{"comments": wideComments, "code": wideCode} {
		for _, dir := range list {
			if !wide[dir+" "+kind] {
				t.Logf("%s has no %s over 100 columns any more: take it off the list", dir, kind)
			}
		}
	}
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

// wideLines returns the places of wide lines, comments and code. Raw strings and the output of an
// example may have any width.
func (f parsed) wideLines() (comments, code []string) {
	raw := map[int]bool{}
	for _, group := range f.file.Comments {
		if strings.HasPrefix(group.Text(), "Output:") {
			for line := f.set.Position(group.Pos()).Line; line <= f.set.Position(group.End()).Line; line++ {
				raw[line] = true
			}
		}
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && s.Value[0] == '`' {
			for line := f.set.Position(s.Pos()).Line; line <= f.set.Position(s.End()).Line; line++ {
				raw[line] = true
			}
		}
		return true
	})
	for i, line := range strings.Split(string(f.text), "\n") {
		line = strings.TrimLeft(line, "\t")
		at := f.set.Position(f.file.FileStart)
		at.Line, at.Column = i+1, 0
		switch {
		case utf8.RuneCountInString(line) <= widest || strings.HasPrefix(line, "//go:") || raw[i+1]:
		case strings.HasPrefix(line, "//"):
			comments = append(comments, at.String())
		default:
			code = append(code, at.String())
		}
	}
	return comments, code
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

func TestUnreadableIsSeen(t *testing.T) {
	for _, c := range []struct {
		name            string
		comment, code   int // their columns
		lines           int // of the function
		wide, wideC, fn int // what is found
	}{
		{"good.go", 100, 100, 70, 0, 0, 0},
		{"bad.go", 101, 101, 71, 1, 1, 1},
	} {
		text := "package p\n\n// " + strings.Repeat("x", c.comment-3) + "\nvar " + strings.Repeat("é", c.code-8) +
			" int\n\nfunc f() {" + strings.Repeat("\n", c.lines-1) + "}\n\nvar s = `" + strings.Repeat("x", 200) + "`\n"
		f := parse(t, c.name, []byte(text))
		comments, code := f.wideLines()
		functions := f.longFunctions()
		if len(comments) != c.wide || len(code) != c.wideC || len(functions) != c.fn {
			t.Errorf("found %q, %q, %q", comments, code, functions)
		}
		if c.wide > 0 && comments[0] != "bad.go:3" {
			t.Errorf("the wide comment is at %s, want line 3", comments[0])
		}
	}
}
