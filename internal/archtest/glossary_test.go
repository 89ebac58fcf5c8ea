// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestGlossaryHasTheTerms wants each term of the package doc of pleg in the glossary, and each
// package that the glossary names in its place.
func TestGlossaryHasTheTerms(t *testing.T) {
	glossary := string(read(t, filepath.Join(root, "docs", "glossary.md")))
	var words []string
	for row := range strings.Lines(glossary) {
		if cells := strings.Split(row, "|"); len(cells) > 3 {
			word := strings.ReplaceAll(strings.TrimSpace(cells[1]), "*", "")
			words = append(words, strings.Split(word, ", ")...)
		}
	}
	terms := termsOf(t, string(read(t, filepath.Join(root, "pleg", "doc.go"))))
	for _, term := range terms {
		if !slices.Contains(words, term) {
			t.Errorf("docs/glossary.md has no row for %q, a term of pleg/doc.go", term)
		}
	}
	for _, folder := range libraries {
		if !slices.Contains(withoutExample, folder) && folder != "metrics" &&
			!strings.Contains(glossary, "`"+folder+"`") {
			t.Errorf("docs/glossary.md has no word of %s", folder)
		}
	}
}

// term is the begin of an entry of a package doc: its terms, before the colon.
var term = regexp.MustCompile(`(?m)^//   - ([\w ,]+): `)

// termsOf returns the terms of a package doc, which are under the heading Terms.
func termsOf(t *testing.T, text string) (terms []string) {
	t.Helper()
	_, text, _ = strings.Cut(text, "// # Terms\n")
	text, _, _ = strings.Cut(text, "\n// # ")
	for _, m := range term.FindAllStringSubmatch(text, -1) {
		terms = append(terms, strings.Split(m[1], ", ")...)
	}
	if len(terms) < 15 {
		t.Fatalf("%d terms found in pleg/doc.go: has the test lost its object?", len(terms))
	}
	return terms
}
