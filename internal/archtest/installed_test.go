// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// installable matches the command by which a document has a program of ours installed, and names
// the program's folder.
var installable = regexp.MustCompile(`go install github\.com/evented-pleg/evented-pleg/(\S+)@`)

// TestProgramsOfDocumentsCanBeInstalled: `go install ...@version` refuses a program whose module
// has replace or exclude lines, and .ci/consumers installs each program as a user does.
func TestProgramsOfDocumentsCanBeInstalled(t *testing.T) {
	programs := make(map[string]bool)
	eachFile(t, func(file string) {
		if filepath.Ext(file) == ".md" {
			for _, m := range installable.FindAllSubmatch(read(t, file), -1) {
				programs[string(m[1])] = true
			}
		}
	})
	if len(programs) < 4 {
		t.Errorf("the documents install %v: is the test in its place?", programs)
	}
	consumers := string(read(t, root+"/.ci/consumers"))
	for _, program := range slices.Sorted(maps.Keys(programs)) {
		if !strings.Contains(consumers, `go install "$ours/`+program+`@$version"`) {
			t.Errorf("a document has %s installed, and .ci/consumers does not", program)
		}
		if n := replacements(t, moduleOf(t, program)); n > 0 {
			t.Errorf("a document has %s installed, which go refuses for %d lines of its go.mod", program, n)
		}
	}
}

// moduleOf returns the go.mod of a folder of the repository.
func moduleOf(t *testing.T, folder string) string {
	t.Helper()
	for ; ; folder = path.Dir(folder) {
		file := filepath.Join(root, folder, "go.mod")
		if _, err := os.Stat(file); err == nil {
			return file
		}
		if folder == "." {
			t.Fatal("no go.mod")
		}
	}
}

// replacements returns the number of a go.mod's replace and exclude lines.
func replacements(t *testing.T, file string) int {
	t.Helper()
	parsed, err := modfile.Parse(file, read(t, file), nil)
	if err != nil {
		t.Fatal(err)
	}
	return len(parsed.Replace) + len(parsed.Exclude)
}
