// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/image"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// shortDir returns a directory with a path short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "daemon-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// programs returns a set of programs with a workload alone.
func programs(t *testing.T) components.Set {
	t.Helper()
	dir := shortDir(t)
	set := components.Set{Dir: dir, RuncDir: dir, RuntimeDir: dir}
	if err := os.WriteFile(set.Workload(), []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	return set
}

func TestNewRefusesALongOrRelativeDirectory(t *testing.T) {
	for _, base := range []string{"relative", "/tmp/" + strings.Repeat("x", maxBase)} {
		if _, err := New(Config{Base: base}); err == nil {
			t.Errorf("New(%q) was not refused", base)
		}
	}
}

// TestConfigStaysUnderBase checks that every path in the configuration of every runtime is the
// daemon's own or a program's, and nothing is left unset.
func TestConfigStaysUnderBase(t *testing.T) {
	for _, runtime := range runtimes.All() {
		t.Run(runtime.Name, func(t *testing.T) {
			c := Config{Base: shortDir(t), Components: programs(t), Image: image.DefaultRef}
			c.Components.Runtime = runtime
			t.Setenv("PATH", c.Components.Dir)
			if err := os.WriteFile(filepath.Join(c.Components.Dir, "conmon"), nil, 0o755); err != nil {
				t.Fatal(err)
			}
			if _, err := New(c); err != nil {
				t.Fatal(err)
			}
			files, err := familyOf(runtime).files(c)
			if err != nil {
				t.Fatal(err)
			}
			var all strings.Builder
			for name, text := range files {
				all.WriteString(text)
				for number, line := range strings.Split(text, "\n") {
					_, value, ok := strings.Cut(line, "= ")
					if !ok {
						continue
					}
					path := strings.Trim(value, `[]'"`)
					if filepath.IsAbs(path) && path != image.Entrypoint && !strings.HasPrefix(path, c.Base+"/") && !strings.HasPrefix(path, c.Components.Dir+"/") {
						t.Errorf("%s, line %d: %s is outside the daemon's directory", name, number+1, path)
					}
				}
			}
			if !strings.Contains(all.String(), image.DefaultRef) || strings.Contains(all.String(), "<no value>") {
				t.Errorf("the workload image is not the sandbox image, or something is unset:\n%s", all.String())
			}
		})
	}
}

func TestCRIORefusesAnImageWithoutATag(t *testing.T) {
	c := Config{Base: shortDir(t), Components: programs(t), Image: "example.local/tool"}
	if err := (crio{}).pack(c); err == nil || !strings.Contains(err.Error(), c.Image) {
		t.Errorf("an image without a tag: %v, want an error that names the image", err)
	}
}
