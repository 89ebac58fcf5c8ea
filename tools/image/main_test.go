// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

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
	r := release{version: "v1.2.3", commit: "abc", out: dir, time: time.Unix(1_700_000_000, 0).UTC()}
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
	img, err := tarball.ImageFromPath(binary+".docker.tar", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Error(err)
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
