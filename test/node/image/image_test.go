// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestPack checks that the layout is valid, and that the same program gives the same image.
func TestPack(t *testing.T) {
	program := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(program, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	var digests [2]string
	for i := range digests {
		dir := filepath.Join(t.TempDir(), "example.local", "tool")
		if err := PackLayout(dir, program, DefaultRef); err != nil {
			t.Fatal(err)
		}
		index, err := layout.ImageIndexFromPath(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Error(err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		digests[i] = manifest.Manifests[0].Digest.String()
		if tag := manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; tag != "1" {
			t.Errorf("the manifest's tag is %q", tag)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("the same program packed twice gives %q", digests)
	}
	if err := PackFile(filepath.Join(t.TempDir(), "out.tar"), program+".absent", DefaultRef); err == nil {
		t.Error("packed a program that does not exist")
	}
}
