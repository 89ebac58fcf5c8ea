// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command kubelet-build builds kubelets from the module registry: for each nested module under embed/ the stock one of its Kubernetes version, with the
// release's own go.mod and nothing of ours, and the same with the module's kubelet.patch applied. It must be run in the repository's root.
//
//	go run ./test/kubelet/cmd/kubelet-build [-out build/kubelet] [-evented] [-with MODULE=VERSION] [kubelet136] [kubelet137] [kubelet138]
//
// The patched one is built from a copy of the Kubernetes module, since the module cache cannot be written to. -with takes a module at another version than
// the release names, for a release of which not all modules can be had.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/evented-pleg/evented-pleg/test/pristine"
)

const kubernetes = "k8s.io/kubernetes"

func main() {
	out := flag.String("out", "build/kubelet", "where binaries and copies go")
	evented := flag.Bool("evented", false, "only those with the patch")
	var with []string
	flag.Func("with", "`MODULE=VERSION`: take that module at that version, whatever the release names; may be repeated", func(v string) error {
		if module, version, ok := strings.Cut(v, "="); !ok || module == "" || version == "" {
			return fmt.Errorf("%q is not of the form MODULE=VERSION", v)
		}
		with = append(with, v)
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	names := flag.Args()
	if len(names) == 0 {
		names = []string{"kubelet136", "kubelet137"}
	}
	if err := run(ctx, *out, *evented, with, names); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet-build:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string, evented bool, with, names []string) error {
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		m := module{name: name, dir: filepath.Join(root, "embed", name), out: out, with: with}
		if err := m.build(ctx, evented); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// module is one nested module under embed/.
type module struct {
	name, dir, out string
	version, src   string // of k8s.io/kubernetes, and where the module cache has it
	with           []string
}

func (m *module) build(ctx context.Context, evented bool) error {
	if err := m.find(ctx); err != nil {
		return err
	}
	if !evented {
		if err := m.stock(ctx); err != nil {
			return err
		}
	}
	patched, err := m.patch(ctx)
	if err != nil {
		return err
	}
	modfile, err := m.modfile(patched)
	if err != nil {
		return err
	}
	return m.link(ctx, "evented", m.dir, modfile)
}

// stock builds the kubelet as released, with the versions that the release names.
func (m *module) stock(ctx context.Context) error {
	mod, sum, err := pristine.Module(m.src, strings.TrimPrefix(m.version, "v"))
	if err != nil {
		return err
	}
	modfile := filepath.Join(m.out, "stock-"+m.version+".mod")
	if err := errors.Join(os.WriteFile(modfile, mod, 0o644), os.WriteFile(strings.TrimSuffix(modfile, "mod")+"sum", sum, 0o644)); err != nil {
		return err
	}
	return m.link(ctx, "stock", m.src, modfile) // in the module cache, in which a build with a go.mod from elsewhere writes nothing
}

// find asks for the version of Kubernetes that the module requires, and downloads it if it must.
func (m *module) find(ctx context.Context) error {
	listed, err := output(ctx, m.dir, "go", "list", "-m", "-json", kubernetes)
	if err != nil {
		return err
	}
	var required struct{ Version string }
	if err := json.Unmarshal(listed, &required); err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	downloaded, err := output(ctx, m.dir, "go", "mod", "download", "-json", kubernetes)
	if err != nil {
		return err
	}
	var got struct{ Dir string }
	if err := json.Unmarshal(downloaded, &got); err != nil {
		return fmt.Errorf("go mod download: %w", err)
	}
	m.version, m.src = required.Version, got.Dir
	return nil
}

// link builds cmd/kubelet under the version's own number, as releases do, because the kubelet reports it and derives its gates from it. It builds with the
// same flags as the module's tests do, so that they share what the build cache holds.
func (m *module) link(ctx context.Context, kind, dir, modfile string) error {
	for _, w := range m.with {
		module, version, _ := strings.Cut(w, "=")
		if _, err := output(ctx, dir, "go", "mod", "edit", "-replace="+module+"="+module+"@"+version, modfile); err != nil {
			return err
		}
	}
	parts := strings.SplitN(strings.TrimPrefix(m.version, "v"), ".", 3)
	if len(parts) != 3 {
		return fmt.Errorf("version %q of %s is not of the form v1.2.3", m.version, kubernetes)
	}
	const pkg = "-X k8s.io/component-base/version."
	file := filepath.Join(m.out, "kubelet-"+m.version+"-"+kind)
	_, err := output(ctx, dir, "go", "build", "-mod=mod", "-modfile="+modfile, "-o", file, "-ldflags",
		"-s -w "+pkg+"gitVersion="+m.version+" "+pkg+"gitMajor="+parts[0]+" "+pkg+"gitMinor="+parts[1], kubernetes+"/cmd/kubelet")
	if err != nil {
		return err
	}
	fmt.Println(file)
	return nil
}

// patch returns a copy of the Kubernetes module with the patch applied, the one from before if neither version nor patch has changed.
func (m *module) patch(ctx context.Context) (string, error) {
	diff, err := os.ReadFile(filepath.Join(m.dir, "kubelet.patch"))
	if err != nil {
		return "", err
	}
	dir := filepath.Join(m.out, m.name+"-src")
	stamp := filepath.Join(dir, "applied.patch")
	want := append([]byte(m.version+"\n"), diff...)
	if have, err := os.ReadFile(stamp); err == nil && bytes.Equal(have, want) {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := copyModule(m.src, dir); err != nil {
		return "", fmt.Errorf("copy %s: %w", m.src, err)
	}
	cmd := exec.CommandContext(ctx, "git", "apply", "-p1", "-")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(diff)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+m.out) // else git takes the paths for those of the repository around it
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("apply kubelet.patch to %s %s: %w\n%s", kubernetes, m.version, err, said)
	}
	return dir, os.WriteFile(stamp, want, 0o644)
}

// copyModule copies what a build needs: no tests, no workspace files.
func copyModule(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case strings.HasSuffix(rel, "_test.go"), rel == "go.work", rel == "go.work.sum":
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}

// modfile writes a go.mod of the nested module in which Kubernetes is the patched copy.
func (m *module) modfile(patched string) (string, error) {
	file := filepath.Join(m.out, m.name+".mod")
	for _, ext := range []string{"mod", "sum"} {
		data, err := os.ReadFile(filepath.Join(m.dir, "go."+ext))
		if err != nil {
			return "", err
		}
		if ext == "mod" {
			data = append(data, "\nreplace "+kubernetes+" => "+patched+"\n"...)
		}
		if err := os.WriteFile(strings.TrimSuffix(file, "mod")+ext, data, 0o644); err != nil {
			return "", err
		}
	}
	return file, nil
}

// output runs a command in that directory.
func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}
