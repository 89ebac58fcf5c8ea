// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const licence = "/*\nCopyright The Kubernetes Authors.\n*/\n"

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newTree returns a tree with the lines that the patch needs and a PLEG with these methods.
func newTree(t *testing.T, methods string) string {
	t.Helper()
	patch, err := os.ReadFile(filepath.Join("embed/kubelet", applied))
	check(t, err)
	var kubelet strings.Builder
	for line := range strings.Lines(string(patch)) {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "---") {
			kubelet.WriteString(line[1:])
		}
	}
	tree := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                              "module k8s.io/kubernetes\n",
		"hack/boilerplate/boilerplate.go.txt": licence,
		"pkg/kubelet/kubelet.go":              kubelet.String(),
		"pkg/kubelet/pleg/pleg.go":            "package pleg\n\ntype PodLifecycleEventGenerator interface {\n" + methods + "\n}\n",
	} {
		file := filepath.Join(tree, name)
		check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return tree
}

// contents returns a tree's files.
func contents(t *testing.T, tree string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.Walk(tree, func(file string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		all[strings.TrimPrefix(file, tree+"/")] = string(text)
		return err
	})
	check(t, err)
	return all
}

const (
	methods136 = "Start()\nRequestRelist(podUID types.UID)"
	methods137 = "Start(ctx context.Context)\nRequestRelist(logger klog.Logger, podUID types.UID)"
)

func TestInstallUpgradeRemove(t *testing.T) {
	t.Chdir("../..")
	for methods, file := range map[string]string{methods136: "version136.go", methods137: "version137.go"} {
		tree := newTree(t, methods)
		before := contents(t, tree)
		check(t, install(t.Context(), tree))
		installed := contents(t, tree)
		for name, text := range installed {
			switch inside := strings.HasPrefix(name, into+"/"); {
			case inside && strings.HasSuffix(name, ".go"):
				if !strings.HasPrefix(text, licence) || strings.Contains(text, `"`+module) || strings.Contains(text, "//go:build ignore") {
					t.Errorf("%s is not rewritten: %.200s", name, text)
				}
			case !inside && name != "pkg/kubelet/kubelet.go" && text != before[name]:
				t.Errorf("%s has changed", name)
			}
		}
		if _, ok := installed[into+"/"+file]; !ok || installed[into+"/internal/pleg/generator.go"] == "" {
			t.Errorf("%s or the core is missing", file)
		}
		if !strings.Contains(installed["pkg/kubelet/kubelet.go"], "evented.New(") {
			t.Error("the kubelet is not patched")
		}
		stale := filepath.Join(tree, into, "internal/pleg/stale.go")
		check(t, os.WriteFile(stale, []byte("package pleg"), 0o644))
		check(t, install(t.Context(), tree))
		if diff := cmp.Diff(installed, contents(t, tree)); diff != "" {
			t.Errorf("an upgrade to the same differs from the first installation: %s", diff)
		}
		check(t, uninstall(t.Context(), tree))
		if diff := cmp.Diff(before, contents(t, tree)); diff != "" {
			t.Errorf("left behind: %s", diff)
		}
	}
}

func TestRefusesWithoutChangingTheTree(t *testing.T) {
	t.Chdir("../..")
	for name, test := range map[string]struct {
		methods, want string
		change        func(tree string)
	}{
		"1.35":          {methods136 + "\nSetPodWatchCondition(uid types.UID)", "supported minor", nil},
		"a later minor": {"Start(ctx context.Context, all bool)", "supported minor", nil},
		"other lines": {methods137, "does not fit", func(tree string) {
			os.WriteFile(filepath.Join(tree, "pkg/kubelet/kubelet.go"), []byte("package kubelet\n"), 0o644)
		}},
		"no tree":        {methods137, "no source tree", func(tree string) { os.Remove(filepath.Join(tree, "pkg/kubelet/pleg/pleg.go")) }},
		"somebody's own": {methods137, "not from here", func(tree string) { os.MkdirAll(filepath.Join(tree, into), 0o755) }},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t, test.methods)
			if test.change != nil {
				test.change(tree)
			}
			before := contents(t, tree)
			if err := install(t.Context(), tree); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want an error that says %q", err, test.want)
			}
			if diff := cmp.Diff(before, contents(t, tree)); diff != "" {
				t.Errorf("changed: %s", diff)
			}
			if err := uninstall(t.Context(), tree); err == nil {
				t.Error("removed what is not there")
			}
		})
	}
}
