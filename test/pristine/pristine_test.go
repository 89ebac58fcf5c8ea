// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pristine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

const released = `module k8s.io/kubernetes

go 1.26.0

require (
	example.com/a v1.2.3
	k8s.io/api v0.0.0
	k8s.io/sample-controller v0.0.0
)

replace (
	example.com/a => example.com/fork v1.0.0
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/sample-controller => ./staging/src/k8s.io/sample-controller
)
`

func TestModule(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": released, "go.sum": "the sums\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for release, published := range map[string]string{"1.36.3": "v0.36.3", "1.38.0-alpha.0": "v0.38.0-alpha.0"} {
		mod, sum, err := Module(dir, release)
		if err != nil {
			t.Fatal(err)
		}
		file, err := modfile.Parse("go.mod", mod, nil)
		if err != nil {
			t.Fatal(err)
		}
		var has []string
		for _, r := range file.Require {
			has = append(has, r.Mod.String())
		}
		for _, r := range file.Replace {
			has = append(has, r.Old.String()+"=>"+r.New.String())
		}
		want := "example.com/a@v1.2.3 k8s.io/api@v0.0.0 example.com/a=>example.com/fork@v1.0.0 k8s.io/api=>k8s.io/api@" + published
		if got := strings.Join(has, " "); got != want || string(sum) != "the sums\n" {
			t.Errorf("%s: %s; sums %q; want %s", release, got, sum, want)
		}
	}
	if _, _, err := Module(dir, "v1.36.3"); err == nil || !strings.Contains(err.Error(), `"v1.36.3"`) {
		t.Errorf("a release with a v: %v", err)
	}
}
