// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// workshop builds tests with all mutations, and runs them. It belongs to a single goroutine.
type workshop struct {
	root, dir string            // the module, and a directory that is removed afterwards
	overlay   map[string]string // the replaced files
	numbers   map[string]int    // by which mutations are chosen, by name, from 1
	built     map[string]bool   // binaries
	sound     map[string]bool   // stages that pass without any mutation
}

// newWorkshop writes the sources with all mutations into dir.
func newWorkshop(root, dir string) (*workshop, error) {
	w := &workshop{
		root:    root,
		dir:     dir,
		overlay: map[string]string{},
		numbers: map[string]int{},
		built:   map[string]bool{},
		sound:   map[string]bool{},
	}
	byFile := map[string]map[int]mutation{}
	for i, m := range allMutations() {
		if byFile[m.file] == nil {
			byFile[m.file] = map[int]mutation{}
		}
		byFile[m.file][i+1] = m
		w.numbers[m.name] = i + 1
	}
	var stale []error
	for file, muts := range byFile {
		src, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		text, pkg, err := switched(file, string(src), muts)
		stale = append(stale, err)
		if err := w.replace(file, text); err != nil {
			return nil, err
		}
		if err := w.replace(path.Join(path.Dir(file), "mutation__.go"), fmt.Sprintf(chooser, pkg)); err != nil {
			return nil, err
		}
	}
	return w, errors.Join(stale...)
}

// replace gives a file of the module, existing or not, another text.
func (w *workshop) replace(file, text string) error {
	as := filepath.Join(w.dir, strings.ReplaceAll(file, "/", "-"))
	w.overlay[filepath.Join(w.root, file)] = as
	return os.WriteFile(as, []byte(text), 0o644)
}

// notices reports whether the tests of a stage fail with a mutation, and returns their output. It
// is an error if they fail without any.
func (w *workshop) notices(ctx context.Context, m mutation, s stage) (out string, noticed bool, err error) {
	if key := fmt.Sprint(s); !w.sound[key] {
		out, failed, err := w.run(ctx, nil, s)
		if failed {
			err = fmt.Errorf("%s of %s fails without any mutation: mend that first\n%s", s.name, s.pkg, out)
		}
		if err != nil {
			return "", false, err
		}
		w.sound[key] = true
	}
	return w.run(ctx, &m, s)
}

// run runs a stage with a mutation in place, or without any if nil.
func (w *workshop) run(ctx context.Context, m *mutation, s stage) (out string, failed bool, err error) {
	binary, err := w.tests(ctx, s.pkg)
	if err != nil {
		return "", false, err
	}
	number := 0
	if m != nil {
		number = w.numbers[m.name]
	}
	cmd := exec.CommandContext(
		ctx,
		binary,
		append([]string{"-test.failfast", "-test.timeout=" + limit}, s.args...)...)
	cmd.Dir = filepath.Join(w.root, s.pkg)
	cmd.Env = append(os.Environ(), chosenBy+"="+strconv.Itoa(number))
	text, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && (ctx.Err() != nil || !exited) {
		return "", false, err
	}
	return string(text), err != nil, nil
}

// tests returns the test binary of a package, which is built if need be.
func (w *workshop) tests(ctx context.Context, pkg string) (binary string, err error) {
	binary = filepath.Join(w.dir, strings.ReplaceAll(filepath.Clean(pkg), "/", "-")+".test")
	if w.built[binary] {
		return binary, nil
	}
	if err := w.build(ctx, "test", "-c", "-vet=off", "-o="+binary, "./"+pkg); err != nil {
		return "", fmt.Errorf("the tests of %s do not build with mutations: %w", pkg, err)
	}
	w.built[binary] = true
	return binary, nil
}

// compiles returns an error unless all packages with mutations compile.
func (w *workshop) compiles(ctx context.Context) error {
	var pkgs []string
	for file := range w.overlay {
		pkg, err := filepath.Rel(w.root, filepath.Dir(file))
		if err != nil {
			return err
		}
		pkgs = append(pkgs, "./"+filepath.ToSlash(pkg))
	}
	slices.Sort(pkgs)
	return w.build(ctx, "build", slices.Compact(pkgs)...)
}

// build runs a go command of packages, which are built with the mutations.
func (w *workshop) build(ctx context.Context, command string, args ...string) error {
	spec, err := json.Marshal(map[string]map[string]string{"Replace": w.overlay})
	if err != nil {
		return err
	}
	file := filepath.Join(w.dir, "overlay.json")
	if err := os.WriteFile(file, spec, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{command, "-overlay=" + file}, args...)...)
	cmd.Dir = w.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
