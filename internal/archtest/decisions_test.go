// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// decisionNumber matches a reference to a decision by number: "ADR 7", "ADR [0007](…)",
// "docs/adr/0007".
var decisionNumber = regexp.MustCompile(`(?:ADRs? +\[?|docs/adr/)([0-9]+)`)

// decisions returns the path of each decision record by its number.
func decisions(t *testing.T) map[int]string {
	t.Helper()
	paths, err := filepath.Glob(root + "/docs/adr/[0-9]*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no decision records: %v", err)
	}
	byNumber := make(map[int]string)
	for _, path := range paths {
		digits, _, _ := strings.Cut(filepath.Base(path), "-")
		number, err := strconv.Atoi(digits)
		if err != nil || len(digits) != 4 {
			t.Errorf("%s does not begin with a number of four digits", path)
		}
		if other, ok := byNumber[number]; ok {
			t.Errorf("%s and %s have the same number", path, other)
		}
		byNumber[number] = path
	}
	return byNumber
}

// TestReferencesToDecisionsResolve checks every reference by number, in code, scripts and
// documents.
func TestReferencesToDecisionsResolve(t *testing.T) {
	byNumber := decisions(t)
	references := 0
	eachFile(t, func(path string) {
		switch filepath.Ext(path) {
		case ".go", ".md", ".sh", ".txtar", ".patch", ".yaml", "":
		default:
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range decisionNumber.FindAllSubmatch(text, -1) {
			references++
			number, err := strconv.Atoi(string(match[1]))
			if _, ok := byNumber[number]; err != nil || !ok {
				t.Errorf("%s refers to %q, and docs/adr has no such decision", path, match[0])
			}
		}
	})
	if references < 5 {
		t.Errorf("%d references found: does the pattern still match?", references)
	}
}

// TestDecisionsAreNumberedAndIndexed checks that numbers have no gap, that titles carry their
// number, and that the index lists the records in their order.
func TestDecisionsAreNumberedAndIndexed(t *testing.T) {
	byNumber := decisions(t)
	index, err := os.ReadFile(root + "/docs/adr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for number := 1; number <= len(byNumber); number++ {
		path, ok := byNumber[number]
		if !ok {
			t.Fatalf("docs/adr has %d records and none with the number %d", len(byNumber), number)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		title, _, _ := strings.Cut(string(text), "\n")
		title, ok = strings.CutPrefix(title, fmt.Sprintf("# %04d: ", number))
		if !ok {
			t.Errorf("%s does not begin with its number", path)
		}
		want = append(want, fmt.Sprintf("| [%04d](%s) | %s |", number, filepath.Base(path), title))
	}
	var got []string
	for line := range strings.Lines(string(index)) {
		if strings.HasPrefix(line, "| [0") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the index of docs/adr should be:\n%s", strings.Join(want, "\n"))
	}
}
