// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/doc"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// withoutExample are the libraries that nobody imports from here.
var withoutExample = []string{
	"embed/install", // a command
	"embed/kubelet", // a package of a Kubernetes tree
}

// TestLibrariesHaveExamples wants a runnable example, with output, in each library.
func TestLibrariesHaveExamples(t *testing.T) {
	for _, folder := range append([]string{"events/eventstest"}, libraries...) {
		paths, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var files []*ast.File
		for _, path := range paths {
			files = append(files, parse(t, path, read(t, path)).file)
		}
		runnable := slices.ContainsFunc(
			doc.Examples(files...),
			func(e *doc.Example) bool { return strings.TrimSpace(e.Output) != "" },
		)
		if runnable == slices.Contains(withoutExample, folder) {
			t.Errorf("%s has a runnable example: %v", folder, runnable)
		}
	}
}
