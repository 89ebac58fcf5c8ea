// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// packages are the folders of this repository for a kubelet, with their folders in the tree and the
// tests to install: those with nothing but the tree's own dependencies.
var packages = []struct {
	from, to string
	tests    string // a pattern
	without  []string
}{
	{"embed/kubelet", "", "*_test.go", nil},
	{"embed", "internal/embed", "service_test.go", nil},
	{"embed/ledger", "internal/ledger", "*_test.go", nil},
	{"pleg", "internal/pleg", "example_test.go", nil},
	{"cache", "internal/cache", "example_test.go waiter_test.go", nil},
	// No package of the tree may import Prometheus. The other file is of the recorder of Events.
	{"metrics", "internal/metrics", "", []string{"plain.go", "events.go"}},
}

// minors are the minors of Kubernetes by what tells them apart: the parameters of the methods Start
// and RequestRelist of the kubelet's PLEG. Each has its files in embed/kubelet, with a build tag.
var minors = map[string]string{
	"Start() RequestRelist(types.UID)":                             "kubernetes1.36",
	"Start(context.Context) RequestRelist(klog.Logger, types.UID)": "kubernetes1.37", // and 1.38
}

// minorOf returns the build tag of a tree's minor.
func minorOf(tree string) (tag string, err error) {
	file := filepath.Join(tree, "pkg/kubelet/pleg/pleg.go")
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		return "", fmt.Errorf("%s is no source tree of Kubernetes: %w", tree, err)
	}
	methods := make(map[string]string)
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == "PodLifecycleEventGenerator" {
			if i, ok := spec.Type.(*ast.InterfaceType); ok {
				for _, m := range i.Methods.List {
					if f, ok := m.Type.(*ast.FuncType); ok && len(m.Names) == 1 {
						methods[m.Names[0].Name] = parameters(f)
					}
				}
			}
		}
		return true
	})
	shape := fmt.Sprintf("Start(%s) RequestRelist(%s)", methods["Start"], methods["RequestRelist"])
	tag, ok := minors[shape]
	if _, watches := methods["SetPodWatchCondition"]; !ok || watches {
		return "", fmt.Errorf("%s: the kubelet's PLEG is none of a supported minor (1.36, 1.37, 1.38): it has %s", file, shape)
	}
	return tag, nil
}

// parameters returns the types of a function's parameters.
func parameters(f *ast.FuncType) string {
	var types []string
	for _, field := range f.Params.List {
		var text strings.Builder
		_ = format.Node(&text, token.NewFileSet(), field.Type)
		types = append(types, slices.Repeat([]string{text.String()}, max(1, len(field.Names)))...)
	}
	return strings.Join(types, ", ")
}

// boilerplate returns the licence header that a tree wants in each of its Go files. A tree without
// one wants none.
func boilerplate(tree string) []byte {
	text, _ := os.ReadFile(filepath.Join(tree, "hack/boilerplate/boilerplate.go.txt"))
	return text
}

// sources returns the files to write, by their names in into.
func sources(tag string, header []byte) (map[string][]byte, error) {
	files := make(map[string][]byte)
	for _, p := range packages {
		names, err := filepath.Glob(filepath.Join(p.from, "*.go"))
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("%s has no Go files: run it in the repository of %s", p.from, module)
		}
		for _, name := range names {
			base := filepath.Base(name)
			if slices.Contains(p.without, base) || strings.HasSuffix(base, "_test.go") && !matches(p.tests, base) {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			if text, err = rewrite(text, tag, header); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if text != nil {
				files[path.Join(p.to, base)] = text
			}
		}
	}
	patch, err := os.ReadFile(filepath.Join("embed/kubelet", applied))
	if err != nil {
		return nil, err
	}
	files[applied] = patch
	return files, nil
}

// matches reports whether one of some patterns matches a name.
func matches(patterns, name string) bool {
	return slices.ContainsFunc(strings.Fields(patterns), func(p string) bool { ok, _ := path.Match(p, name); return ok })
}

// constraint keeps the adapter's files out of builds here, and names the minor of some.
var constraint = regexp.MustCompile(`(?m)^//go:build ignore(?: && (kubernetes\S+))?\n\n`)

// rewrite returns a file as the tree wants it, or nil for a file of another minor.
func rewrite(text []byte, tag string, header []byte) ([]byte, error) {
	if m := constraint.FindSubmatch(text); m != nil {
		if minor := string(m[1]); minor != "" && minor != tag {
			return nil, nil
		}
		text = constraint.ReplaceAll(text, nil)
	}
	for _, p := range packages[1:] {
		text = bytes.ReplaceAll(text, []byte(`"`+module+"/"+p.from+`"`), []byte(`"`+path.Join("k8s.io/kubernetes", into, p.to)+`"`))
	}
	for _, absent := range []string{module, "github.com/prometheus/"} {
		if i := bytes.Index(text, []byte(`"`+absent)); i >= 0 {
			return nil, fmt.Errorf("imports %.80q, which the tree does not have or allow", text[i:])
		}
	}
	return format.Source(slices.Concat(header, []byte("\n"), text))
}
