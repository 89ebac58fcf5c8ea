// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/embed"
)

// populators is a file of the volume populator, and its test.
const populators = "pkg/kubelet/volumemanager/populator/desired_state_of_world_populator"

const licence = "/*\nCopyright The Kubernetes Authors.\n*/\n"

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kubeletLines are the lines of kubelet.go that the patches need, in their order.
const kubeletLines = `package kubelet
	"k8s.io/kubernetes/pkg/kubelet/nodeshutdown"
	oomwatcher "k8s.io/kubernetes/pkg/kubelet/oom"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	plugincache "k8s.io/kubernetes/pkg/kubelet/pluginmanager/cache"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"

		klet.runtimeClassManager = runtimeclass.NewManager(kubeDeps.KubeClient)
	}

	// setup containerLogManager for CRI container runtime
	containerLogManager, err := logs.NewContainerLogManager(
		klet.runtimeService,
		kubeDeps.OSInterface,
		kubeCfg.ContainerLogMaxSize,
		int(kubeCfg.ContainerLogMaxFiles),

	runtimeCache, err := kubecontainer.NewRuntimeCache(klet.containerRuntime, runtimeCacheRefreshPeriod)
	if err != nil {
		return nil, err
	}

	}

	klet.runtimeState = newRuntimeState(maxWaitForContainerRuntime)
	klet.runtimeState.addHealthCheck("PLEG", klet.pleg.Healthy)
	containerLogManager logs.ContainerLogManager

	// Cached MachineInfo returned by cadvisor.
	machineInfoLock sync.RWMutex
`

// workersTest is changed by two patches, of which the second has workersTestImports.
const (
	workersTest        = "pkg/kubelet/pod_workers_test.go"
	workersTestImports = `	"context"
	"errors"
	"reflect"
	"strconv"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"
`
)

// before returns the lines of a file that a patch needs.
func before(patch, file string) string {
	var text strings.Builder
	its := false
	for line := range strings.Lines(patch) {
		switch {
		case strings.HasPrefix(line, "--- a/"):
			its = strings.TrimSpace(strings.TrimPrefix(line, "--- a/")) == file
		case its && (line[0] == ' ' || line[0] == '-'):
			text.WriteString(line[1:])
		}
	}
	return text.String()
}

// newTree returns a tree with the lines that the patches need and a PLEG with these methods.
func newTree(t *testing.T, methods string) string {
	t.Helper()
	tree := t.TempDir()
	files := map[string]string{
		"go.mod":                              "module k8s.io/kubernetes\n",
		"hack/boilerplate/boilerplate.go.txt": licence,
		"pkg/kubelet/pleg/pleg.go":            "package pleg\n\ntype PodLifecycleEventGenerator interface {\n" + methods + "\n}\n",
	}
	for _, name := range patches {
		patch, err := fs.ReadFile(embed.Sources, "kubelet/"+name)
		check(t, err)
		for _, file := range patched(patch) {
			if _, ok := files[file]; !ok {
				files[file] = before(string(patch), file)
			}
		}
	}
	files[kubeletFile] = kubeletLines
	files[workersTest] = workersTestImports + files[workersTest]
	for name, text := range files {
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
	for methods, file := range map[string]string{methods136: "version136.go", methods137: "version137.go"} {
		tree := newTree(t, methods)
		before := contents(t, tree)
		check(t, install(t.Context(), tree, true))
		installed := contents(t, tree)
		patched := map[string]bool{
			kubeletFile:                      true,
			"pkg/features/kube_features.go":  true,
			"pkg/kubelet/metrics/metrics.go": true,
			"test/compatibility_lifecycle/reference/versioned_feature_list.yaml": true,
			"pkg/kubelet/kubelet_pods.go":                                        true,
			"pkg/kubelet/kubelet_volumes.go":                                     true,
			"pkg/kubelet/pod/pod_manager.go":                                     true,
			"pkg/kubelet/pod_workers.go":                                         true,
			workersTest:                                                          true,
			populators + ".go":                                                   true,
			populators + "_test.go":                                              true,
		}
		for name, text := range installed {
			switch inside := strings.HasPrefix(name, into+"/"); {
			case inside && strings.HasSuffix(name, ".go"):
				if !strings.HasPrefix(text, licence) || strings.Contains(text, `"`+module) ||
					strings.Contains(text, "//go:build ignore") {
					t.Errorf("%s is not rewritten: %.200s", name, text)
				}
			case !inside && !patched[name] && text != before[name]:
				t.Errorf("%s has changed", name)
			}
		}
		if _, ok := installed[into+"/"+file]; !ok || installed[into+"/internal/pleg/generator.go"] == "" {
			t.Errorf("%s or the core is missing", file)
		}
		for name := range patched {
			if installed[name] == before[name] {
				t.Errorf("%s is not patched", name)
			}
		}
		if !strings.Contains(installed[into+"/version.go"], "const Version = ") {
			t.Error("the version is missing")
		}
		stale := filepath.Join(tree, into, "internal/pleg/stale.go")
		check(t, os.WriteFile(stale, []byte("package pleg"), 0o644))
		check(t, install(t.Context(), tree, true))
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
	for name, test := range map[string]struct {
		methods, want string
		change        func(tree string)
	}{
		"1.35":          {methods136 + "\nSetPodWatchCondition(uid types.UID)", "supported minor", nil},
		"a later minor": {"Start(ctx context.Context, all bool)", "supported minor", nil},
		"other lines": {methods137, "does not fit", func(tree string) {
			os.WriteFile(filepath.Join(tree, "pkg/kubelet/kubelet.go"), []byte("package kubelet\n"), 0o644)
		}},
		"a file is gone": {methods137, "does not fit", func(tree string) {
			os.Remove(filepath.Join(tree, "pkg/kubelet/kubelet.go"))
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
			if err := install(t.Context(), tree, true); err == nil || !strings.Contains(err.Error(), test.want) {
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

// TestACommitThatFailsHalfway: a file that cannot be written is found when others have been, and
// all that was written is as before.
func TestACommitThatFailsHalfway(t *testing.T) {
	for _, installed := range []bool{false, true} {
		tree := newTree(t, methods137)
		if installed {
			check(t, install(t.Context(), tree, true))
		}
		files, s, err := prepare(tree)
		check(t, err)
		if installed {
			check(t, s.takeBack(t.Context()))
		}
		check(t, s.applyAll(t.Context(), files))
		check(t, s.write("new.go", []byte("package evented")))
		last := filepath.Join(tree, "test/compatibility_lifecycle/reference/versioned_feature_list.yaml")
		check(t, os.Remove(last))
		check(t, os.Mkdir(last, 0o755))
		before := contents(t, tree)
		if err := s.commit(); err == nil {
			t.Error("a folder was written")
		}
		s.close()
		after := contents(t, tree)
		for name := range before {
			if strings.Contains(name, "/.evented-") {
				delete(before, name)
			}
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("installed before: %v, and changed: %.2000s", installed, diff)
		}
	}
}

// TestWhatGitIsToldElsewhere: how git is set up on a machine changes nothing of what is installed.
func TestWhatGitIsToldElsewhere(t *testing.T) {
	tree := newTree(t, methods137)
	before := contents(t, tree)
	check(t, install(t.Context(), tree, true))
	want := contents(t, tree)
	home := t.TempDir()
	settings := "[core]\n\tautocrlf = true\n[apply]\n\twhitespace = error-all\n\tignorewhitespace = change\n"
	check(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(settings), 0o644))
	check(t, os.MkdirAll(filepath.Join(home, "git"), 0o755))
	check(t, os.WriteFile(filepath.Join(home, "git/attributes"), []byte("* text eol=crlf\n"), 0o644))
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(home, ".gitconfig"))
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "core.eol")
	t.Setenv("GIT_CONFIG_VALUE_0", "crlf")
	check(t, install(t.Context(), tree, true))
	if diff := cmp.Diff(want, contents(t, tree)); diff != "" {
		t.Errorf("another upgrade: %.2000s", diff)
	}
	check(t, uninstall(t.Context(), tree))
	if diff := cmp.Diff(before, contents(t, tree)); diff != "" {
		t.Errorf("left behind: %.2000s", diff)
	}
}

// TestAFailedUpgradeLeavesTheOldOne upgrades a tree whose patched lines have changed since, and a
// tree that the new patch no longer fits: both keep what they have.
func TestAFailedUpgradeLeavesTheOldOne(t *testing.T) {
	for name, test := range map[string]struct {
		want   string
		change func(text string) string
	}{
		"the patched lines have changed": {"by hand", func(text string) string {
			return strings.Replace(text, "evented.Wrap(podCache, ", "evented.Wrap(myCache, ", 1)
		}},
		"an older patch fits, today's does not": {"does not fit", func(text string) string { return text }},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t, methods137)
			check(t, install(t.Context(), tree, true))
			file := filepath.Join(tree, kubeletFile)
			text, err := os.ReadFile(file)
			check(t, err)
			check(t, os.WriteFile(file, []byte(test.change(string(text))), 0o644))
			if test.change(string(text)) == string(text) { // of another version, which changed less
				check(t, uninstall(t.Context(), tree))
				older := []byte(
					"--- a/go.mod\n+++ b/go.mod\n@@ -1,1 +1,2 @@\n module k8s.io/kubernetes\n+// patched\n",
				)
				check(t, os.MkdirAll(filepath.Join(tree, into), 0o755))
				check(t, os.WriteFile(filepath.Join(tree, into, patches[0]), older, 0o644))
				check(
					t,
					os.WriteFile(
						filepath.Join(tree, "go.mod"),
						[]byte("module k8s.io/kubernetes\n// patched\n"),
						0o644,
					),
				)
				check(t, os.WriteFile(file, []byte("package kubelet\n"), 0o644))
			}
			before := contents(t, tree)
			if err := install(t.Context(), tree, true); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want an error that says %q", err, test.want)
			}
			if diff := cmp.Diff(before, contents(t, tree)); diff != "" {
				t.Errorf("changed: %s", diff)
			}
		})
	}
}

// TestWhatIsNoRefusalAccusesNoTree: without git, and when the user gives up, nothing is known of
// the patched lines, so nobody is told to take them back by hand.
func TestWhatIsNoRefusalAccusesNoTree(t *testing.T) {
	pristine := newTree(t, methods137)
	installed := newTree(t, methods137)
	check(t, install(t.Context(), installed, true))
	for name, test := range map[string]struct {
		script string // in place of git; empty: there is none
		cancel bool
		want   string
	}{
		"no git":            {"", false, "git is needed"},
		"given up":          {"exit 0", true, context.Canceled.Error()},
		"git is killed":     {"kill -INT $$", false, "signal: interrupt"},
		"git has no memory": {"echo fatal: Out of memory >&2; exit 128", false, "Out of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.cancel {
				cancel()
			}
			programs := t.TempDir()
			if test.script != "" {
				script := []byte("#!/bin/sh\n" + test.script + "\n")
				check(t, os.WriteFile(filepath.Join(programs, "git"), script, 0o755))
			}
			t.Setenv("PATH", programs)
			for what, tree := range map[string]string{"install": pristine, "upgrade": installed, "remove": installed} {
				before := contents(t, tree)
				do := func() error { return install(ctx, tree, true) }
				if what == "remove" {
					do = func() error { return uninstall(ctx, tree) }
				}
				err := do()
				switch {
				case err == nil || !strings.Contains(err.Error(), test.want):
					t.Errorf("%s: %v, want an error that says %q", what, err, test.want)
				case strings.Contains(err.Error(), "by hand"), strings.Contains(err.Error(), "does not fit"):
					t.Errorf("%s accuses the tree: %v", what, err)
				}
				if diff := cmp.Diff(before, contents(t, tree)); diff != "" {
					t.Errorf("%s changed: %s", what, diff)
				}
			}
		})
	}
}

// TestSeries applies the patches of a series one after the other, and compares the tree with an
// installed one.
func TestSeries(t *testing.T) {
	tree, installed, out := newTree(t, methods137), newTree(t, methods137), t.TempDir()
	check(t, install(t.Context(), installed, true))
	before := contents(t, tree)
	var report bytes.Buffer
	check(t, writeSeries(t.Context(), tree, out, &report))
	if diff := cmp.Diff(before, contents(t, tree)); diff != "" {
		t.Fatalf("the series changed the tree: %s", diff)
	}
	for i, c := range commits {
		patch, err := os.ReadFile(filepath.Join(out, fmt.Sprintf("%04d-%s.patch", i+1, c.part)))
		check(t, err)
		cmd := exec.CommandContext(t.Context(), "git", "apply", "-p1", "-")
		cmd.Dir = tree
		cmd.Stdin = bytes.NewReader(patch)
		cmd.Env = append(os.Environ(), "GIT_DIR=/dev/null")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c.part, err, said)
		}
		if !strings.Contains(report.String(), c.part+".patch: ") {
			t.Errorf("%s is not reported: %s", c.part, &report)
		}
	}
	want := contents(t, installed)
	for _, name := range patches { // of an installation only
		delete(want, filepath.Join(into, name))
	}
	if diff := cmp.Diff(want, contents(t, tree)); diff != "" {
		t.Errorf("the series differs from an installation: %s", diff)
	}
}

// TestSeriesBesideOtherPatches: a series is applied by the names of its folder. Another version may
// have written other names there, and the same names are written anew.
func TestSeriesBesideOtherPatches(t *testing.T) {
	tree, out := newTree(t, methods137), t.TempDir()
	check(t, writeSeries(t.Context(), tree, out, &bytes.Buffer{}))
	check(t, writeSeries(t.Context(), tree, out, &bytes.Buffer{}))
	check(t, os.WriteFile(filepath.Join(out, "0010-metrics.patch"), []byte("of another version"), 0o644))
	first := filepath.Join(out, "0001-cache.patch")
	check(t, os.WriteFile(first, nil, 0o644))
	err := writeSeries(t.Context(), tree, out, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "0010-metrics.patch") {
		t.Errorf("%v, want an error with the name of the other patch", err)
	}
	if text, err := os.ReadFile(first); err != nil || len(text) > 0 {
		t.Errorf("a patch was written: %d bytes, %v", len(text), err)
	}
}

// TestTheGeneratorAlone checks that nothing of lists from memory comes along, and that they can be
// added and taken away.
func TestTheGeneratorAlone(t *testing.T) {
	tree := newTree(t, methods137)
	before := contents(t, tree)
	check(t, run(t.Context(), []string{"-kubernetes", tree, "-generator"}, &bytes.Buffer{}))
	alone := contents(t, tree)
	for name, text := range alone {
		if strings.Contains(name, "ledger") || strings.Contains(text, "ServeLists") ||
			strings.Contains(name, "changes") || strings.Contains(text, "VolumePopulator ") || strings.Contains(text, "Resting") {
			t.Errorf("%s is of lists from memory, or of loops that rest", name)
		}
	}
	if alone[into+"/generator.go"] == "" {
		t.Error("the generator is missing")
	}
	check(t, install(t.Context(), tree, true))
	if all := contents(t, tree); !strings.Contains(all[kubeletFile], "ServeLists") || all[into+"/served.go"] == "" {
		t.Error("lists from memory were not added")
	}
	check(t, install(t.Context(), tree, false))
	if diff := cmp.Diff(alone, contents(t, tree)); diff != "" {
		t.Errorf("lists from memory were not taken away: %s", diff)
	}
	check(t, uninstall(t.Context(), tree))
	if diff := cmp.Diff(before, contents(t, tree)); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
}

// TestPlacesInTheDocument wants each call that the patches add to the kubelet in the table of
// docs/embed.md.
func TestPlacesInTheDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/embed.md")
	check(t, err)
	_, table, _ := strings.Cut(string(page), "| place in `kubelet.go` |")
	table, _, _ = strings.Cut(table, "\n\n")
	for name, least := range map[string]int{"kubelet.patch": 3, "lists.patch": 3, "housekeeping.patch": 1} {
		patch, err := os.ReadFile("../kubelet/" + name)
		check(t, err)
		calls := regexp.MustCompile(`(?m)^\+.*\bevented\.[A-Z]\w+\(.*$`).FindAllString(string(patch), -1)
		for _, line := range calls {
			for _, call := range regexp.MustCompile(`\bevented\.[A-Z]\w+\(`).FindAllString(line, -1) {
				row := regexp.MustCompile("(?m)^\\| `" + name + "`: .*`" + strings.TrimSuffix(call, "(") + "`")
				if !row.MatchString(table) {
					t.Errorf("the table has no row of %s with %s", name, call)
				}
			}
		}
		if len(calls) < least {
			t.Errorf("%s adds %d calls: is the test in its place?", name, len(calls))
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"tree"}, {"-nothing"}, {"-kubernetes", "x", "-remove", "-series", "y"}} {
		if err := run(t.Context(), args, &bytes.Buffer{}); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want an error of the usage", args, err)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-version"}, &out); err != nil || len(out.String()) < 2 {
		t.Errorf("the version: %q, %v", &out, err)
	}
}
