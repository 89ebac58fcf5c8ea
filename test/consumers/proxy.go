// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	mod "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	module = "github.com/evented-pleg/evented-pleg"
	// version is the one by which our modules name each other: that of the next release.
	version = "v0.1.0"
)

// publish writes every module of the last commit into a folder that serves as a module proxy, in
// the layout of https://go.dev/ref/mod#goproxy-protocol.
func publish(ctx context.Context, root, proxy string) error {
	cmd := exec.CommandContext(ctx, "git", "ls-tree", "-r", "--name-only", "HEAD")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git ls-tree: %w", err)
	}
	modules := 0
	for file := range strings.Lines(string(out)) {
		file = strings.TrimSpace(file)
		if filepath.Base(file) != "go.mod" {
			continue
		}
		if err := publishModule(ctx, root, filepath.Dir(file), proxy); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		modules++
	}
	if modules == 0 {
		return fmt.Errorf("the last commit of %s has no module", root)
	}
	return nil
}

// publishModule writes one module, the folder of which is named relative to the repository's.
func publishModule(ctx context.Context, root, dir, proxy string) error {
	cmd := exec.CommandContext(ctx, "git", "show", "HEAD:"+filepath.ToSlash(filepath.Join(dir, "go.mod")))
	cmd.Dir = root
	text, err := cmd.Output()
	if err != nil {
		return err
	}
	file, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return err
	}
	subdir := filepath.ToSlash(dir)
	if want := module + "/" + subdir; subdir == "." && file.Module.Mod.Path != module || subdir != "." && file.Module.Mod.Path != want {
		return fmt.Errorf("it names itself %s, which is not the path of its folder", file.Module.Mod.Path)
	}
	for _, r := range file.Require {
		if (r.Mod.Path == module || strings.HasPrefix(r.Mod.Path, module+"/")) && r.Mod.Version != version {
			return fmt.Errorf("it requires %s, and our modules go by %s", r.Mod, version)
		}
	}
	escaped, err := mod.EscapePath(file.Module.Mod.Path)
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
	for name, data := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info, version + ".mod": text} {
		if err := os.WriteFile(filepath.Join(to, name), data, 0o644); err != nil {
			return err
		}
	}
	archive, err := os.Create(filepath.Join(to, version+".zip"))
	if err != nil {
		return err
	}
	defer archive.Close()
	if subdir == "." {
		subdir = ""
	}
	if err := zip.CreateFromVCS(archive, mod.Version{Path: file.Module.Mod.Path, Version: version}, root, "HEAD", subdir); err != nil {
		return err
	}
	return archive.Close()
}
