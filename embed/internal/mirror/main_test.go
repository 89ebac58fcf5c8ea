// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const licence = "// SPDX-FileCopyrightText: The Evented PLEG Authors\n// SPDX-License-Identifier: Apache-2.0\n\n"

// TestMirrorIsUpToDate holds that the adapters' common files are what go generate makes of them.
func TestMirrorIsUpToDate(t *testing.T) {
	sources, err := filepath.Glob("../../" + from + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	mirrored := 0
	for _, path := range sources {
		name := filepath.Base(path)
		if name == "doc.go" || name == "version.go" || name == "version_test.go" {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := mirror(source)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile("../../" + to + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("embed/%s/%s: run go generate ./embed\n%s", to, name, diff)
		}
		mirrored++
	}
	if mirrored == 0 {
		t.Error("there is nothing to mirror")
	}
}

func TestRunMirrorsAndRemoves(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(from+"/a.go", licence+"package "+from+"\n")
	write(from+"/doc.go", licence+"package "+from+"\n")
	write(to+"/own.go", licence+"package "+to+"\n")
	write(to+"/gone.go", licence+mark+"\n\npackage "+to+"\n")
	if err := run(dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, to, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if diff := cmp.Diff([]string{"a.go", "own.go"}, files); diff != "" {
		t.Error(diff)
	}
	got, err := os.ReadFile(filepath.Join(dir, to, "a.go"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(licence+mark+"\n\npackage "+to+"\n", string(got)); diff != "" {
		t.Error(diff)
	}
	write(from+"/b.go", "package "+from+"\n")
	if run(dir) == nil {
		t.Error("a file without the licence was mirrored")
	}
}
