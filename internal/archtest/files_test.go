// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// eachFile calls f for every file of the repository that is kept.
func eachFile(t *testing.T, f func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || path == filepath.Join(root, "build")) {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() {
			f(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryGoFileNamesItsLicence(t *testing.T) {
	header := []byte("// SPDX-FileCopyrightText: The Evented PLEG Authors\n// SPDX-License-Identifier: Apache-2.0\n")
	files := 0
	eachFile(t, func(path string) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(text, header) && !bytes.Contains(text[:min(len(text), 200)], []byte("DO NOT EDIT")) {
			t.Errorf("%s does not begin with the two SPDX lines", path)
		}
	})
	if files == 0 {
		t.Fatal("no Go file found: is the test in its place?")
	}
}

// TestEveryPackageExplainsItself wants a package comment in every folder of Go code.
func TestEveryPackageExplainsItself(t *testing.T) {
	documented := make(map[string]bool)
	eachFile(t, func(path string) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testdata/") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(path)
		documented[dir] = documented[dir] || file.Doc != nil && !strings.Contains(file.Doc.Text(), "SPDX")
	})
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

// TestLinksInDocumentsLeadSomewhere checks the relative links of every document.
func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	eachFile(t, func(path string) {
		if !strings.HasSuffix(path, ".md") {
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(text), "](")[1:] {
			link, _, ok := strings.Cut(part, ")")
			if !ok || strings.Contains(link, "://") || strings.HasPrefix(link, "#") || strings.ContainsAny(link, " \n`<") {
				continue
			}
			link, _, _ = strings.Cut(link, "#")
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), link)); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, link)
			}
		}
	})
}
