// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func TestImagesAreValid(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "pleg-bench-v1.2.3-linux-arm64")
	if err := os.WriteFile(binary, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	licence := filepath.Join(dir, "LICENSE")
	if err := os.WriteFile(licence, []byte("a licence"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := release{
		program:  "pleg-bench",
		licences: []string{licence},
		version:  "v1.2.3",
		commit:   "abc",
		out:      dir,
		time:     time.Unix(1_700_000_000, 0).UTC(),
	}
	if err := r.write([]string{binary}); err != nil {
		t.Fatal(err)
	}
	unpacked := t.TempDir()
	archive := filepath.Join(dir, "pleg-bench-v1.2.3.oci.tar")
	if out, err := exec.Command("tar", "-xf", archive, "-C", unpacked).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	index, err := layout.ImageIndexFromPath(unpacked)
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
	if got := manifest.Manifests[0].Annotations["io.containerd.image.name"]; got != "ghcr.io/evented-pleg/pleg-bench:v1.2.3" {
		t.Errorf("the archive's image is named %q", got)
	}
	img, err := tarball.ImageFromPath(binary+".docker.tar", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	if names := files(t, img); !slices.Equal(names, []string{"pleg-bench", "tmp/", "licenses/", "licenses/LICENSE"}) {
		t.Errorf("the image has %q", names)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	revision := config.Config.Labels["org.opencontainers.image.revision"]
	if config.Config.User != "65532:65532" || config.Architecture != "arm64" ||
		!config.Created.Time.Equal(r.time) || revision != "abc" {
		t.Errorf("%+v", config)
	}
}

// files returns the names of the files of an image.
func files(t *testing.T, img v1.Image) (names []string) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()
		for in := tar.NewReader(content); ; {
			header, err := in.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, header.Name)
		}
	}
	return names
}
