// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package modproxy makes a folder that serves the modules of this repository's last commit as a Go
// module proxy does, so that they can be used as strangers use a release.
package modproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	mod "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// Root is the path of the module in the repository's root.
const Root = "github.com/evented-pleg/evented-pleg"

// Module is a module of the last commit.
type Module struct {
	Path string
	Dir  string // relative to the root, with slashes; empty is the root
	// Needs are the modules of ours that it requires, with their versions.
	Needs []mod.Version

	text []byte // go.mod
}

// Ours reports whether a module is of this repository.
func Ours(path string) bool { return path == Root || strings.HasPrefix(path, Root+"/") }

// Modules returns the modules of the last commit, each after those that it requires.
func Modules(ctx context.Context, root string) (modules []Module, err error) {
	files, err := git(ctx, root, "ls-tree", "-r", "--name-only", "HEAD")
	if err != nil {
		return nil, err
	}
	for file := range strings.Lines(string(files)) {
		file = strings.TrimSpace(file)
		if path.Base(file) != "go.mod" {
			continue
		}
		m := Module{Dir: strings.TrimPrefix(path.Dir(file), ".")}
		if m.text, err = git(ctx, root, "show", "HEAD:"+file); err != nil {
			return nil, err
		}
		parsed, err := modfile.Parse(file, m.text, nil)
		if err != nil {
			return nil, err
		}
		if m.Path = parsed.Module.Mod.Path; m.Path != path.Join(Root, m.Dir) {
			return nil, fmt.Errorf("%s: the module's name %s is not the path of its folder", file, m.Path)
		}
		for _, r := range parsed.Require {
			if Ours(r.Mod.Path) {
				m.Needs = append(m.Needs, r.Mod)
			}
		}
		modules = append(modules, m)
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("the last commit of %s has no module", root)
	}
	return sorted(modules)
}

// sorted puts each module after those that it requires.
func sorted(modules []Module) (out []Module, err error) {
	done := map[string]bool{}
	for len(modules) > 0 {
		i := slices.IndexFunc(modules, func(m Module) bool {
			return !slices.ContainsFunc(m.Needs, func(n mod.Version) bool { return !done[n.Path] })
		})
		if i < 0 {
			return nil, fmt.Errorf("%s requires a module that is not there, or that requires it", modules[0].Path)
		}
		done[modules[i].Path] = true
		out = append(out, modules[i])
		modules = slices.Delete(modules, i, i+1)
	}
	return out, nil
}

// Publish writes the modules of the last commit into a folder, all with one version, in the layout
// of https://go.dev/ref/mod#goproxy-protocol.
func Publish(ctx context.Context, root, proxy, version string) error {
	modules, err := Modules(ctx, root)
	if err != nil {
		return err
	}
	for _, m := range modules {
		if err := m.publish(root, proxy, version); err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	return nil
}

func (m Module) publish(root, proxy, version string) error {
	for _, need := range m.Needs {
		if need.Version != version {
			return fmt.Errorf("it requires %s, and the version is %s", need, version)
		}
	}
	escaped, err := mod.EscapePath(m.Path)
	if err != nil {
		return err
	}
	to := filepath.Join(proxy, escaped, "@v")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info, version + ".mod": m.text} {
		if err := os.WriteFile(filepath.Join(to, name), data, 0o644); err != nil {
			return err
		}
	}
	archive, err := os.Create(filepath.Join(to, version+".zip"))
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := zip.CreateFromVCS(archive, mod.Version{Path: m.Path, Version: version}, root, "HEAD", m.Dir); err != nil {
		return err
	}
	return archive.Close()
}

// Environment returns that of go commands that take our modules from the proxy, and others from the
// downloads of this machine or from its own proxy. The module cache is cache's, since ours are no
// published versions.
func Environment(ctx context.Context, proxy, cache string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	values := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(values) != 2 {
		return nil, fmt.Errorf("go env: %q has %d lines, want 2", out, len(values))
	}
	return append(os.Environ(), "GOWORK=off", "GOMODCACHE="+cache, "GOFLAGS=-mod=mod -modcacherw -trimpath",
		"GOPROXY=file://"+proxy+",file://"+values[0]+"/cache/download,"+values[1], "GONOSUMDB="+Root+","+Root+"/*"), nil
}

// git returns what a git command prints.
func git(ctx context.Context, root string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	return out, nil
}
