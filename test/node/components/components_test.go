// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package components

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "built")
	want := stamp{Module: "m", Version: "v1.0.0", Go: "go1.26.8", Platform: "linux/amd64"}
	other := want
	other.Go = "go1.26.7"
	var compiler error
	builds := 0
	build := func() error { builds++; return compiler }
	for i, step := range []struct {
		source   stamp
		compiler error
		builds   int
	}{
		{want, errors.New("no compiler"), 1}, // leaves no stamp
		{want, nil, 2},
		{want, nil, 2},
		{other, nil, 3},
	} {
		compiler = step.compiler
		if err := once(dir, step.source, build); err != step.compiler || builds != step.builds {
			t.Errorf("step %d: %d builds, want %d; %v", i, builds, step.builds, err)
		}
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
