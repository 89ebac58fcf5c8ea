// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	eventedpleg "github.com/evented-pleg/evented-pleg"
	"github.com/evented-pleg/evented-pleg/embed"
)

// origin is a folder of sources: its path in the repository, and its place in the carried files.
type origin struct {
	path    string
	carried fs.FS
	dir     string
}

// packed is a package for a kubelet.
type packed struct {
	from    origin
	to      string
	tests   string // patterns
	without string // patterns
	part    string // of the series
	// lists are patterns of the files that come with lists from memory, resting of those that come
	// with the housekeeping that rests.
	lists, resting string
}

// stays reports whether a file stays behind.
func (p *packed) stays(name string) bool {
	return matches(p.without, name) || strings.HasSuffix(name, "_test.go") && !matches(p.tests, name)
}

// packages are the packages of this project for a kubelet, with their folders in the tree and the
// tests to install: those with nothing but the tree's own dependencies. What only agents need stays
// behind.
var packages = []packed{
	{
		from: origin{"embed/kubelet", embed.Sources, "kubelet"}, to: "",
		tests: "*_test.go", part: partAdapter, lists: "served.go served_test.go", resting: "resting.go resting_test.go",
	},
	{
		from: origin{"embed", embed.Sources, "."}, to: "internal/embed",
		tests:   "toy_test.go calls_test.go starts_test.go recorder_test.go service_test.go life_test.go late_test.go",
		without: "sources.go series.go", part: partAdapter,
		lists: "service.go observer.go lists.go service_test.go life_test.go late_test.go",
	},
	{
		from: origin{"embed/ledger", embed.Sources, "ledger"}, to: "internal/ledger",
		tests: "*_test.go", part: partLedger,
	},
	{
		from: origin{"embed/changes", embed.Sources, "changes"}, to: "changes",
		tests: "*_test.go", part: partChanges,
	},
	{
		from: origin{"cri/criphase", eventedpleg.Sources, "cri/criphase"}, to: "internal/criphase",
		tests: "*_test.go", part: partAdapter,
	},
	{
		// Without the search of all states, which is for changes of the core.
		from: origin{"pleg", eventedpleg.Sources, "pleg"}, to: "internal/pleg",
		tests: "*_test.go", without: "prove_*", part: partCore,
	},
	{
		// Without the test that looks for leaked goroutines by a package that the tree lacks.
		from: origin{"cache", eventedpleg.Sources, "cache"}, to: "internal/cache",
		tests: "*_test.go", without: "bench_test.go", part: partCache,
	},
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
		return "", fmt.Errorf(
			"%s: the kubelet's PLEG is none of a supported minor (1.36, 1.37, 1.38): it has %s",
			file,
			shape,
		)
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
// a header wants none.
func boilerplate(tree string) []byte {
	text, _ := os.ReadFile(filepath.Join(tree, "hack/boilerplate/boilerplate.go.txt"))
	return text
}

// sources returns the files to write, by their names in into.
func sources(tag string, header []byte) (map[string]source, error) {
	files := make(map[string]source)
	for _, p := range packages {
		names, err := fs.Glob(p.from.carried, path.Join(p.from.dir, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			base := path.Base(name)
			if p.stays(base) {
				continue
			}
			text, err := fs.ReadFile(p.from.carried, name)
			if err != nil {
				return nil, err
			}
			if text, err = rewrite(text, tag, header); err != nil {
				return nil, fmt.Errorf("%s/%s: %w", p.from.path, base, err)
			}
			part := p.part
			if matches(p.lists, base) {
				part = partLists
			}
			if matches(p.resting, base) {
				part = partResting
			}
			if text != nil {
				files[path.Join(p.to, base)] = source{text, part}
			}
		}
	}
	for _, name := range patches {
		text, err := fs.ReadFile(embed.Sources, path.Join("kubelet", name))
		if err != nil {
			return nil, err
		}
		files[name] = source{text, ""}
	}
	stamp, err := rewrite(fmt.Appendf(nil, stampText, version()), tag, header)
	files["version.go"] = source{stamp, partAdapter}
	return files, err
}

// source is a file to write.
type source struct {
	text []byte
	part string // of the series; empty for what only an installation has
}

// stampText is the file that names the version of the sources.
const stampText = `// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package evented

// Version is the version of the project evented-pleg from which this package comes. What comments
// cite of the project, pages and decisions, is at https://github.com/evented-pleg/evented-pleg.
const Version = %q
`

// version returns the version of this program, and of the core if the core has another.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	own := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (own == "" || own == "(devel)") {
			own = s.Value
		}
	}
	own = cmp.Or(own, "(devel)")
	for _, dep := range info.Deps {
		if dep.Path == module && dep.Version != "" && dep.Version != "(devel)" && dep.Version != own {
			return own + ", core " + dep.Version
		}
	}
	return own
}

// matches reports whether any of some patterns matches a name.
func matches(patterns, name string) bool {
	return slices.ContainsFunc(
		strings.Fields(patterns),
		func(p string) bool { ok, _ := path.Match(p, name); return ok },
	)
}

// constraint keeps the adapter's files out of builds here, and names the minor of some.
var constraint = regexp.MustCompile(`(?m)^//go:build ignore(?: && (kubernetes\S+))?\n\n`)

// page is a page of this repository, cited in a comment.
var page = regexp.MustCompile(`docs/([\w./-]*\w)`)

// decision is a decision of docs/adr, cited in a comment.
var decision = regexp.MustCompile(`\bADR (\d+)\b`)

// rewrite returns a file as the tree wants it, or nil for a file of another minor.
func rewrite(text []byte, tag string, header []byte) ([]byte, error) {
	if m := constraint.FindSubmatch(text); m != nil {
		if minor := string(m[1]); minor != "" && minor != tag {
			return nil, nil
		}
		text = constraint.ReplaceAll(text, nil)
	}
	text = page.ReplaceAll(text, []byte("$1 of evented-pleg"))
	text = decision.ReplaceAll(text, []byte("decision $1 of evented-pleg"))
	for _, p := range packages[1:] {
		text = bytes.ReplaceAll(
			text,
			[]byte(`"`+module+"/"+p.from.path+`"`),
			[]byte(`"`+path.Join("k8s.io/kubernetes", into, p.to)+`"`),
		)
	}
	for _, absent := range []string{module, "github.com/prometheus/"} {
		if i := bytes.Index(text, []byte(`"`+absent)); i >= 0 {
			return nil, fmt.Errorf("imports %.80q, which the tree does not have or allow", text[i:])
		}
	}
	return format.Source(slices.Concat(header, []byte("\n"), text))
}
