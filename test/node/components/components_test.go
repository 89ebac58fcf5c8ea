// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package components

import (
	"encoding/json"
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

func TestCurrent(t *testing.T) {
	want := wantStamp("go1.26.8")
	tests := []struct {
		name  string
		stamp any
		leave string // a program that is missing
		want  bool
	}{
		{name: "all there", stamp: want, want: true},
		{name: "no stamp"},
		{name: "another Go release", stamp: wantStamp("go1.26.7")},
		{name: "a damaged stamp", stamp: "not a stamp"},
		{name: "a program is missing", stamp: want, leave: "runc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := Set{Dir: t.TempDir()}
			for _, program := range []string{set.Containerd(), set.Shim(), set.Ctr(), set.Runc()} {
				if filepath.Base(program) == tt.leave {
					continue
				}
				if err := os.WriteFile(program, nil, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(set.Dir, "stamp.json")
			if tt.stamp != nil {
				data, err := json.Marshal(tt.stamp)
				if err != nil {
					t.Fatal(err)
				}
				write(t, path, string(data))
			}
			if got := set.current(path, want); got != tt.want {
				t.Errorf("current = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestInstallErrorNamesTheCommand(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("GOMODCACHE", t.TempDir())
	err := Set{Dir: t.TempDir()}.install(t.Context(), "0", "v0.0.1", "example.invalid/no/such")
	if err == nil {
		t.Fatal("install of a module that does not exist succeeded")
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
