// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// opened are the fields of the core's records that hold a struct of which each field has a row of
// its own. Any other field is a row.
var opened = []string{"diff", "retry", "whole"}

// TestEveryFieldOfTheRecordHasARow wants a row in ARCHITECTURE.md's record of a pod for each field
// of the core's records, and a field for each row. A row names a test or a script that fails
// without the field, or says that nearly all do.
func TestEveryFieldOfTheRecordHasARow(t *testing.T) {
	structs := make(map[string]*ast.StructType)
	files, _ := typed(t, filepath.Join(root, "pleg"))
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				structs[spec.Name.Name] = s
			}
			return true
		})
	}
	rows := recordRows(t)
	for _, record := range []string{"pod", "item"} {
		fields := leavesOf(structs, record, "")
		if len(fields) < 10 {
			t.Fatalf("%s has %d fields: the test has lost its object", record, len(fields))
		}
		for _, field := range fields {
			if _, ok := rows[record][field]; !ok {
				t.Errorf("ARCHITECTURE.md, the record of a pod: %s.%s has no row", record, field)
			}
		}
		for field, purpose := range rows[record] {
			if !slices.Contains(fields, field) {
				t.Errorf("ARCHITECTURE.md, the record of a pod: %s has no field %s", record, field)
			}
			if len(witnesses(purpose)) == 0 && !strings.Contains(purpose, "*") {
				t.Errorf("ARCHITECTURE.md, the record of a pod: %s.%s names no script that fails without it", record, field)
			}
		}
	}
}

// leavesOf returns the names of the fields of a struct, those of embedded structs among them.
func leavesOf(structs map[string]*ast.StructType, name, prefix string) (names []string) {
	for _, field := range structs[name].Fields.List {
		of := field.Type
		if pointer, ok := of.(*ast.StarExpr); ok {
			of = pointer.X
		}
		inner := ""
		if ident, ok := of.(*ast.Ident); ok && structs[ident.Name] != nil {
			inner = ident.Name
		}
		if len(field.Names) == 0 {
			names = append(names, leavesOf(structs, inner, prefix)...)
		}
		for _, n := range field.Names {
			if slices.Contains(opened, n.Name) {
				names = append(names, leavesOf(structs, inner, n.Name+".")...)
				continue
			}
			names = append(names, prefix+n.Name)
		}
	}
	return names
}

// recordRows returns what ARCHITECTURE.md says of each field, by record and field.
func recordRows(t *testing.T) map[string]map[string]string {
	t.Helper()
	_, page, _ := strings.Cut(string(read(t, filepath.Join(root, "ARCHITECTURE.md"))), "## The record of a pod\n")
	_, page, _ = strings.Cut(page, "```\n")
	page, _, _ = strings.Cut(page, "```\n")
	rows := make(map[string]map[string]string)
	var record string
	var fields []string
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		names, purpose, found := strings.Cut(line, "  ")
		switch {
		case !found:
			record = line
			rows[record] = make(map[string]string)
			continue
		case names != "": // else the row above goes on
			fields = strings.Split(names, ", ")
		}
		for _, field := range fields {
			rows[record][field] += purpose + "\n"
		}
	}
	return rows
}

// A witness is a script, or the number of one with its family, or a test.
var witness = regexp.MustCompile(`\b(Test[A-Z]\w*|[a-z]+(?:-[a-z0-9]+)+)\b`)

// witnesses returns the scripts and tests named behind the colons of a row.
func witnesses(row string) (names []string) {
	for i, part := range strings.Split(row, ": ") {
		if i > 0 {
			names = append(names, witness.FindAllString(part, -1)...)
		}
	}
	return names
}

// testFunction is a test in a Go file, or in a patch of the kubelet.
var testFunction = regexp.MustCompile(`(?m)^\+?func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)

// namedTest is a test in a document.
var namedTest = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)

// numbered is a script in a document, or the begin of its name: a family and a number.
var numbered = regexp.MustCompile(`\b([a-z]+(?:-[a-z]+)*)-[0-9]+[a-z0-9-]*`)

// TestNamedTestsAndScriptsExist wants each test and each script that the documents name, or the
// begin of its name.
func TestNamedTestsAndScriptsExist(t *testing.T) {
	tests, scripts, documents := namesOfTests(t)
	families := make(map[string]bool)
	for _, script := range scripts {
		if m := numbered.FindStringSubmatch(script); m != nil {
			families[m[1]] = true
		}
	}
	begins := func(names []string, name string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, name) })
	}
	isScript := func(name string) bool {
		return slices.Contains(scripts, name) || begins(scripts, name+"-")
	}
	named := 0
	for _, path := range documents {
		text := string(read(t, path))
		for _, name := range namedTest.FindAllString(text, -1) {
			named++
			if !begins(tests, name) {
				t.Errorf("%s names %s, which is no test", path, name)
			}
		}
		for _, m := range numbered.FindAllStringSubmatch(text, -1) {
			if !families[m[1]] {
				continue
			}
			named++
			if !isScript(m[0]) {
				t.Errorf("%s names %s, which is no script of internal/simulate/testdata", path, m[0])
			}
		}
	}
	for _, rows := range recordRows(t) {
		for field, purpose := range rows {
			for _, name := range witnesses(purpose) {
				if !strings.HasPrefix(name, "Test") && !isScript(name) {
					t.Errorf("ARCHITECTURE.md, the record of a pod: %s: %s is no script", field, name)
				}
			}
		}
	}
	if named < 200 || len(tests) < 1000 || len(scripts) < 300 {
		t.Errorf("%d names, %d tests, %d scripts: the test has lost its object", named, len(tests), len(scripts))
	}
}

// namesOfTests returns the names of all tests and scripts, and the paths of the documents that name
// them.
func namesOfTests(t *testing.T) (tests, scripts, documents []string) {
	t.Helper()
	eachFile(t, func(path string) {
		within, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(path)
		switch {
		case strings.HasSuffix(base, "_test.go"), strings.HasSuffix(base, ".patch"):
			for _, m := range testFunction.FindAllSubmatch(read(t, path), -1) {
				tests = append(tests, string(m[1]))
			}
		case strings.HasPrefix(within, "internal/simulate/testdata/"):
			if script, ok := strings.CutSuffix(base, ".txtar"); ok {
				scripts = append(scripts, script)
			}
		case strings.HasPrefix(within, "docs/") && strings.HasSuffix(base, ".md"),
			within == "ARCHITECTURE.md", within == "CONTRIBUTING.md":
			documents = append(documents, path)
		}
	})
	return tests, scripts, documents
}
