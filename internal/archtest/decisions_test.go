// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
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

// decisions returns the paths of the decision records, which are numbered without a gap.
func decisions(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(root + "/docs/adr/[0-9]*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no decision records: %v", err)
	}
	for i, path := range paths {
		if want := fmt.Sprintf("%04d-", i+1); !strings.HasPrefix(filepath.Base(path), want) {
			t.Fatalf("%s does not begin with %s", path, want)
		}
	}
	return paths
}

// TestReferencesToDecisionsResolve checks every reference by number, in code, scripts and
// documents.
func TestReferencesToDecisionsResolve(t *testing.T) {
	records, references := len(decisions(t)), 0
	eachFile(t, func(path string) {
		switch filepath.Ext(path) {
		case ".go", ".md", ".sh", ".txtar", ".patch", ".yaml", "":
		default:
			return
		}
		for _, match := range decisionNumber.FindAllSubmatch(read(t, path), -1) {
			references++
			number, err := strconv.Atoi(string(match[1]))
			if err != nil || number < 1 || number > records {
				t.Errorf("%s refers to %q, and docs/adr has no such decision", path, match[0])
			}
		}
	})
	if references < 5 {
		t.Errorf("%d references found: does the pattern still match?", references)
	}
}

// TestDecisionsAreIndexed checks that titles carry the numbers of their records, and that the index
// lists the records in their order.
func TestDecisionsAreIndexed(t *testing.T) {
	var want, got []string
	for i, path := range decisions(t) {
		title, _, _ := strings.Cut(string(read(t, path)), "\n")
		title, ok := strings.CutPrefix(title, fmt.Sprintf("# %04d: ", i+1))
		if !ok {
			t.Errorf("%s does not begin with its number", path)
		}
		want = append(want, fmt.Sprintf("| [%04d](%s) | %s |", i+1, filepath.Base(path), title))
	}
	for line := range strings.Lines(string(read(t, root+"/docs/adr/README.md"))) {
		if strings.HasPrefix(line, "| [0") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the index of docs/adr should be:\n%s", strings.Join(want, "\n"))
	}
}
