// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package components

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindRoot(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "test", "nested", "deep")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "go.mod"), "module "+Module+"\n\ngo 1.26.0\n")
	write(t, filepath.Join(root, "test", "nested", "go.mod"), "module example.com/nested\n")
	got, err := FindRoot(deep)
	if err != nil {
		t.Fatal(err)
	}
	if got != root {
		t.Errorf("FindRoot = %s, want %s: a nested module is not the root", got, root)
	}
	if _, err := FindRoot(t.TempDir()); err == nil || !strings.Contains(err.Error(), "run from the repository") {
		t.Errorf("FindRoot outside a checkout: error %v does not say what to do", err)
	}
}

func TestOnce(t *testing.T) {
	want := stamp{Module: "m", Version: "v1.0.0", Go: "go1.26.8", Platform: "linux/amd64"}
	other := want
	other.Go = "go1.26.7"
	tests := []struct {
		name  string
		stamp any
		leave string // a missing program
		built bool
	}{
		{name: "all there", stamp: want},
		{name: "no stamp", built: true},
		{name: "another Go release", stamp: other, built: true},
		{name: "a damaged stamp", stamp: "not a stamp", built: true},
		{name: "a program is missing", stamp: want, leave: "ctr", built: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := Set{RuntimeDir: t.TempDir()}
			for _, program := range set.foreign() {
				if filepath.Base(program) == tt.leave {
					continue
				}
				if err := os.WriteFile(program, nil, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(set.RuntimeDir, "stamp.json")
			if tt.stamp != nil {
				data, err := json.Marshal(tt.stamp)
				if err != nil {
					t.Fatal(err)
				}
				write(t, path, string(data))
			}
			built := false
			fails := func() error { built = true; return errors.New("no compiler") }
			if err := once(set.RuntimeDir, want, set.foreign(), fails); (err != nil) != tt.built || built != tt.built {
				t.Errorf("built: %v, with error %v, want %v", built, err, tt.built)
			}
			if !tt.built {
				return
			}
			// A failed build leaves no stamp; a successful build leaves a stamp, and is the last.
			if current(path, want, nil) {
				t.Error("the stamp of a build that failed says that it is done")
			}
			for range 2 {
				err := once(set.RuntimeDir, want, set.foreign(), func() error {
					for _, program := range set.foreign() {
						if err := os.WriteFile(program, nil, 0o755); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := once(set.RuntimeDir, want, set.foreign(), fails); err != nil {
				t.Error("what was built is built again")
			}
		})
	}
}

func TestUnknownRuntime(t *testing.T) {
	_, err := Build(t.Context(), Options{Root: t.TempDir(), Runtime: "docker"})
	if err == nil || !strings.Contains(err.Error(), `"docker"`) || !strings.Contains(err.Error(), "crio") {
		t.Errorf("Build of an unknown runtime: %v, want an error that lists the known ones", err)
	}
}

func TestBuildErrorNamesTheCommand(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("GOMODCACHE", t.TempDir())
	_, err := goBuild(t.Context(), t.TempDir(), "0", "", "example.invalid/no/such", "v0.0.1", ".")
	if err == nil {
		t.Fatal("the build of a module that does not exist succeeded")
	}
	for _, want := range []string{"example.invalid/no/such@v0.0.1", "hint: the module registry"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not contain %q:\n%v", want, err)
		}
	}
}

func TestTail(t *testing.T) {
	if got := tail("a\nb\nc\n", 2); got != "b\nc" {
		t.Errorf("tail = %q", got)
	}
	if got := tail("a", 5); got != "a" {
		t.Errorf("tail = %q", got)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
