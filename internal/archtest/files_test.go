// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// eachFile calls f for every tracked file of the repository.
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

// eachGoFile calls f for every Go file in some folders and below.
func eachGoFile(t *testing.T, folders []string, f func(path string, file parsed)) {
	t.Helper()
	eachFile(t, func(path string) {
		within, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		of := func(folder string) bool { return strings.HasPrefix(within, folder+"/") }
		if strings.HasSuffix(path, ".go") && slices.ContainsFunc(folders, of) {
			f(path, parse(t, path, read(t, path)))
		}
	})
}

// read returns the text of a file.
func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestNoLeftovers wants no file that a merge, a patch or an editor has left behind.
func TestNoLeftovers(t *testing.T) {
	eachFile(t, func(path string) {
		switch filepath.Ext(path) {
		case ".rej", ".orig", ".bak", ".swp":
			t.Errorf("%s is a leftover", path)
		}
		if strings.HasSuffix(path, "~") {
			t.Errorf("%s is a leftover", path)
		}
	})
}

func TestEveryGoFileNamesItsLicence(t *testing.T) {
	header := []byte(
		"// SPDX-FileCopyrightText: The Evented PLEG Authors\n// SPDX-License-Identifier: Apache-2.0\n",
	)
	files := 0
	eachFile(t, func(path string) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		files++
		text := read(t, path)
		if !bytes.HasPrefix(text, header) &&
			!bytes.Contains(text[:min(len(text), 200)], []byte("DO NOT EDIT")) {
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
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.Contains(path, "/testdata/") {
			return
		}
		file, err := parser.ParseFile(
			token.NewFileSet(),
			path,
			nil,
			parser.PackageClauseOnly|parser.ParseComments,
		)
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

// TestLinksInDocumentsLeadSomewhere checks the relative links of every document, and the headings
// in them and in the alerts' runbook links.
func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	links := 0
	check := func(path, target, anchor string) {
		links++
		if _, err := os.Stat(target); err != nil {
			t.Errorf("%s links to %s, which does not exist", path, target)
			return
		}
		if anchor != "" && strings.HasSuffix(target, ".md") && !slices.Contains(anchorsOf(t, target), anchor) {
			t.Errorf("%s links to #%s in %s, which has no such heading", path, anchor, target)
		}
	}
	eachFile(t, func(path string) {
		text := read(t, path)
		switch filepath.Ext(path) {
		case ".md":
			for _, part := range strings.Split(string(text), "](")[1:] {
				link, _, ok := strings.Cut(part, ")")
				if !ok || strings.Contains(link, "://") || strings.ContainsAny(link, " \n`<") {
					continue // not a link, or an external link
				}
				target, anchor, _ := strings.Cut(link, "#")
				if target == "" {
					check(path, path, anchor)
				} else {
					check(path, filepath.Join(filepath.Dir(path), target), anchor)
				}
			}
		case ".yaml":
			for _, part := range strings.Split(string(text), "runbook_url: ")[1:] {
				link, _, _ := strings.Cut(part, "\n")
				if _, file, ok := strings.Cut(link, "/blob/main/"); ok {
					target, anchor, _ := strings.Cut(file, "#")
					check(path, filepath.Join(root, target), anchor)
				}
			}
		}
	})
	if links < 100 {
		t.Errorf("%d links found: is this the repository's root?", links)
	}
}

// TestGoBlocksOfDocumentsAreTested wants each Go block of a document, line by line, in a test file:
// what a reader copies compiles, and runs.
func TestGoBlocksOfDocumentsAreTested(t *testing.T) {
	plain := func(text string) string { // without indentation and empty lines
		var lines []string
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "\n") + "\n"
	}
	var tests strings.Builder
	blocks := make(map[string][]string)
	eachFile(t, func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasSuffix(path, "_test.go"):
			tests.WriteString(plain(string(text)))
		case strings.HasSuffix(path, ".md"):
			blocks[path] = strings.Split(string(text), "```go\n")[1:]
		}
	})
	for path, all := range blocks {
		for i, block := range all {
			if block, _, ok := strings.Cut(block, "```"); !ok || !strings.Contains(tests.String(), plain(block)) {
				t.Errorf("%s: Go block %d stands in no test:\n%s", path, i+1, block)
			}
		}
	}
	if n := len(blocks[filepath.Join(root, "docs/agents.md")]); n != 3 {
		t.Errorf("%d Go blocks in docs/agents.md, want three: is this the repository's root?", n)
	}
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchorsOf returns the anchors of a document's headings, as GitHub makes them.
func anchorsOf(t *testing.T, path string) (anchors []string) {
	code := false
	for line := range strings.Lines(string(read(t, path))) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		title := strings.TrimLeft(line, "#")
		if code || title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		anchor := strings.ReplaceAll(
			notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""),
			" ",
			"-",
		)
		for n, first := 1, anchor; slices.Contains(anchors, anchor); n++ {
			anchor = fmt.Sprintf("%s-%d", first, n)
		}
		anchors = append(anchors, anchor)
	}
	return anchors
}
