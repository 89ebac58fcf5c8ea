// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// composed are the quotes that the programs make of several texts, with these texts.
var composed = map[string][]string{
	"a read of a pod has not been answered":         {"a %s has not been answered for %s", "read of a pod"},
	"pods differ between the cache and the runtime": {"pods differ", " between the cache and the runtime"},
	"events not confirmed":                          {"%s not confirmed"},
}

// quote is what a page quotes: a text between two asterisks.
var quote = regexp.MustCompile(`(?:^|[^*\w])\*([^* \n][^*\n]*[^* \n])\*`)

// TestQuotesAreSaid wants each message that docs/troubleshooting.md quotes in the texts of the
// code: whoever looks for a message on the page finds it. An ellipsis stands for what differs.
func TestQuotesAreSaid(t *testing.T) {
	said := textsOf(t)
	quotes := 0
	for line := range strings.Lines(string(read(t, filepath.Join(root, "docs", "troubleshooting.md")))) {
		if strings.HasPrefix(line, "    ") {
			continue // of what another program prints
		}
		for _, found := range quote.FindAllStringSubmatch(line, -1) {
			quotes++
			parts := composed[found[1]]
			if parts == nil {
				parts = strings.Split(found[1], "…")
			}
			for _, part := range parts {
				if !strings.Contains(said, strings.TrimSpace(part)) {
					t.Errorf("no code says %q, which docs/troubleshooting.md quotes in %q", part, found[1])
				}
			}
		}
	}
	if quotes < 60 {
		t.Errorf("%d quotes found, want many: has the page another form?", quotes)
	}
}

// textsOf returns all texts of the code, tests left out. A text in several parts is one.
func textsOf(t *testing.T) string {
	var texts strings.Builder
	eachFile(t, func(path string) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, isExpression := n.(ast.Expr)
			if !isExpression {
				return true
			}
			text, isText := textOf(e)
			if isText {
				texts.WriteString(text + "\n")
			}
			return !isText
		})
	})
	return texts.String()
}

// textOf returns the text of an expression: of a constant text, or of a sum with such.
func textOf(e ast.Expr) (text string, isText bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		left, leftIs := textOf(e.X)
		right, rightIs := textOf(e.Y)
		return left + right, leftIs || rightIs
	}
	return "", false
}
