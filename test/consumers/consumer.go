// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"

	"github.com/evented-pleg/evented-pleg/internal/modproxy"
)

// consumer is a program with dependencies of its own.
type consumer struct {
	name string
	// has is the requirements of its go.mod, path@version, and imports its imports before meeting
	// us.
	has, imports []string
	// ours are the consumed packages of ours.
	ours []string
	// readme: it is the agent of README.md, and built.
	readme bool
	// install is the program of ours to install instead.
	install string
}

// An agent of a node has the CRI. Kubernetes 1.35's needs gRPC 1.72.2.
var (
	agent        = []string{"k8s.io/client-go@v0.35.0", "k8s.io/cri-api@v0.35.0", "google.golang.org/grpc@v1.72.2"}
	agentImports = []string{"k8s.io/client-go/kubernetes", "k8s.io/cri-api/pkg/apis/runtime/v1", "google.golang.org/grpc"}
)

var consumers = []consumer{
	{name: "pleg+cache", has: agent, imports: agentImports, ours: []string{"pleg", "cache"}},
	{name: "cri", has: agent, imports: agentImports, ours: []string{"cri"}},
	{name: "metrics", has: append([]string{"k8s.io/component-base@v0.35.0"}, agent...), imports: append([]string{"k8s.io/component-base/metrics"}, agentImports...), ours: []string{"pleg", "metrics"}},
	{name: "events", has: agent, imports: agentImports, ours: []string{"events"}},
	{name: "controller-runtime", has: []string{"sigs.k8s.io/controller-runtime@v0.22.4"}, imports: []string{"sigs.k8s.io/controller-runtime"}, ours: []string{"events"}},
	{name: "readme", has: agent, imports: agentImports, ours: []string{"cache", "cri", "pleg"}, readme: true},
	{name: "go-install", install: "cmd/pleg-bench"},
}

// requirements are the modules of a program, by path.
type requirements map[string]string

func (r requirements) lines() []string {
	var lines []string
	for _, path := range slices.Sorted(maps.Keys(r)) {
		lines = append(lines, "\t"+path+" "+r[path])
	}
	return lines
}

// try makes the consumer, adds our packages, and compares. It returns the requirements then.
func (c *consumer) try(ctx context.Context, w *workshop) (after requirements, err error) {
	dir := filepath.Join(w.dir, c.name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	if c.install != "" {
		return nil, c.installed(ctx, w, dir)
	}
	settle := func() error { _, err := w.goCommand(ctx, dir, "mod", "tidy"); return err }
	if err := c.write(dir); err != nil {
		return nil, err
	}
	if err := settle(); err != nil {
		return nil, err
	}
	wanted, built, err := w.look(ctx, dir, ".")
	if err != nil {
		return nil, err
	}
	if err := c.writeOurs(ctx, filepath.Join(dir, "ours.go")); err != nil {
		return nil, err
	}
	for _, pkg := range c.packages() {
		if _, err := w.goCommand(ctx, dir, "get", pkg+"@"+version); err != nil {
			return nil, err
		}
	}
	if err := settle(); err != nil {
		return nil, err
	}
	after, builtAfter, err := w.look(ctx, dir, append([]string{"."}, c.packages()...)...)
	if err != nil {
		return nil, err
	}
	err = errors.Join(differences("go.mod", wanted, after), differences("what it is built with", built, builtAfter))
	if err == nil && (w.build || c.readme) {
		_, err = w.goCommand(ctx, dir, "build", "-o", os.DevNull, ".")
	}
	return after, err
}

func (c *consumer) packages() (paths []string) {
	for _, pkg := range c.ours {
		paths = append(paths, module+"/"+pkg)
	}
	return paths
}

// write makes the program without us.
func (c *consumer) write(dir string) error {
	var text strings.Builder
	text.WriteString("module example.com/consumer\n\ngo 1.26.0\n\n")
	for _, m := range c.has {
		fmt.Fprintf(&text, "require %s\n", strings.Replace(m, "@", " ", 1))
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text.String()), 0o644); err != nil {
		return err
	}
	return writeImports(filepath.Join(dir, "main.go"), c.imports)
}

// writeOurs makes the part of the program that uses ours.
func (c *consumer) writeOurs(ctx context.Context, file string) error {
	if !c.readme {
		return writeImports(file, c.packages())
	}
	root, err := repository(ctx)
	if err != nil {
		return err
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return err
	}
	_, code, begins := strings.Cut(string(readme), "```go\nfunc watch(")
	code, _, ends := strings.Cut(code, "```")
	if !begins || !ends {
		return errors.New("README.md has no agent: a block of Go that begins with func watch(")
	}
	imports := fmt.Sprintf("%q", slices.Concat([]string{"context", "fmt"}, c.packages()))
	text := "package main\n\nimport (\n" + strings.ReplaceAll(strings.Trim(imports, "[]"), " ", "\n") + "\n)\n\nvar _ = watch\n\nfunc watch(" + code
	return os.WriteFile(file, []byte(text), 0o644)
}

func writeImports(file string, packages []string) error {
	var text strings.Builder
	text.WriteString("package main\n\nimport (\n")
	for _, p := range packages {
		text.WriteString("\t_ \"" + p + "\"\n")
	}
	text.WriteString(")\n")
	if filepath.Base(file) == "main.go" {
		text.WriteString("\nfunc main() {}\n")
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}

// look returns the requirements of go.mod, and the modules that provide those packages. A replaced
// module goes by its replacement, since its version in go.mod is without effect.
func (w *workshop) look(ctx context.Context, dir string, packages ...string) (wanted, built requirements, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, nil, err
	}
	file, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return nil, nil, err
	}
	wanted, built = requirements{"go": file.Go.Version}, make(requirements)
	for _, r := range file.Require {
		wanted[r.Mod.Path] = r.Mod.Version
	}
	for _, r := range file.Replace {
		if _, there := wanted[r.Old.Path]; there && r.Old.Version == "" {
			wanted[r.Old.Path] = r.New.String()
		}
	}
	format := "{{with .Module}}{{.Path}} {{with .Replace}}{{.Path}}@{{.Version}}{{else}}{{.Version}}{{end}}{{end}}"
	out, err := w.goCommand(ctx, dir, append([]string{"list", "-deps", "-f", format}, packages...)...)
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(out) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		built[path] = version
	}
	return wanted, built, nil
}

// differences names the changes: other versions, and new modules of others.
func differences(what string, before, after requirements) error {
	var found []string
	for _, path := range slices.Sorted(maps.Keys(after)) {
		old, there := before[path]
		switch {
		case modproxy.Ours(path):
		case there && old != after[path]:
			found = append(found, fmt.Sprintf("%s from %s to %s", path, old, after[path]))
		case !there:
			found = append(found, fmt.Sprintf("%s %s added", path, after[path]))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d changed: %s", what, len(found), strings.Join(found, ", "))
}

// installed installs a program as its users do, and runs it.
func (c *consumer) installed(ctx context.Context, w *workshop, dir string) error {
	mine := *w
	mine.env = append(slices.Clone(w.env), "GOBIN="+dir)
	if _, err := mine.goCommand(ctx, dir, "install", module+"/"+c.install+"@"+version); err != nil {
		return err
	}
	return runs(ctx, filepath.Join(dir, filepath.Base(c.install)))
}
