// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestAPatchIsRefusedByALineThatDiffers(t *testing.T) {
	diff := []byte("--- a/x/f.go\n+++ b/x/f.go\n@@ -1,3 +1,4 @@\n one\n two\n+ours\n three\n")
	if got := targets(diff); !slices.Equal(got, []string{"x/f.go"}) {
		t.Errorf("targets: %q", got)
	}
	for text, takes := range map[string]bool{"one\ntwo\nthree\n": true, "one\ntwo\n3\n": false, "one\n2\nthree\n": false} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "x"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "x", "f.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := gitApply(t.Context(), dir, diff); (err == nil) != takes {
			t.Errorf("%q: %v, want it taken: %v", text, err, takes)
		}
	}
}

func TestEveryAdapterIsKnown(t *testing.T) {
	t.Chdir("../..")
	if err := everyAdapter(); err != nil {
		t.Error(err)
	}
}
