// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPack(t *testing.T) {
	program := []byte("a program")
	var archive bytes.Buffer
	if err := Pack(&archive, program, DefaultRef); err != nil {
		t.Fatal(err)
	}
	files := untar(t, archive.Bytes())

	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest) != 1 || len(manifest[0].Layers) != 1 {
		t.Fatalf("manifest %+v: want one image of one layer", manifest)
	}
	if diff := cmp.Diff([]string{DefaultRef}, manifest[0].RepoTags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	config, ok := files[manifest[0].Config]
	if !ok || manifest[0].Config != digest(config)+".json" {
		t.Fatalf("the configuration %q is not in the archive under its digest", manifest[0].Config)
	}
	layer := files[manifest[0].Layers[0]]
	var parsed struct {
		Config struct{ Entrypoint, Cmd []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(config, &parsed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"sha256:" + digest(layer)}, parsed.RootFS.DiffIDs); diff != "" {
		t.Errorf("diff_ids do not match the layer (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{Entrypoint}, parsed.Config.Entrypoint); diff != "" {
		t.Errorf("entrypoint (-want +got):\n%s", diff)
	}
	if got := untar(t, layer)[Entrypoint[1:]]; !bytes.Equal(got, program) {
		t.Errorf("the layer holds %q, want the program", got)
	}
}

func TestPackIsReproducible(t *testing.T) {
	var one, two bytes.Buffer
	for _, w := range []io.Writer{&one, &two} {
		if err := Pack(w, []byte("x"), DefaultRef); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("the same program packed twice gives two archives")
	}
}

func TestPackFileNamesAMissingProgram(t *testing.T) {
	err := PackFile(t.TempDir()+"/out.tar", t.TempDir()+"/absent", DefaultRef)
	if err == nil {
		t.Fatal("packed a program that does not exist")
	}
}

func untar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPackLayout: every digest that the layout names is that of a blob which is there, down to the
// program.
func TestPackLayout(t *testing.T) {
	program := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(program, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "example.local", "tool")
	if err := PackLayout(dir, program, "1"); err != nil {
		t.Fatal(err)
	}
	type described struct {
		Digest      string
		Size        int
		Annotations map[string]string
	}
	read := func(d described) []byte {
		data, err := os.ReadFile(filepath.Join(dir, "blobs", "sha256", strings.TrimPrefix(d.Digest, "sha256:")))
		if err != nil {
			t.Fatal(err)
		}
		if len(data) != d.Size || "sha256:"+digest(data) != d.Digest {
			t.Errorf("the blob %s is not what its descriptor says", d.Digest)
		}
		return data
	}
	index, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var top struct{ Manifests []described }
	if err := json.Unmarshal(index, &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index %s, %v: want one manifest", index, err)
	}
	if tag := top.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; tag != "1" {
		t.Errorf("the manifest's tag is %q", tag)
	}
	var manifest struct {
		Config described
		Layers []described
	}
	if err := json.Unmarshal(read(top.Manifests[0]), &manifest); err != nil || len(manifest.Layers) != 1 {
		t.Fatalf("manifest %+v, %v: want one layer", manifest, err)
	}
	layer := read(manifest.Layers[0])
	if config := read(manifest.Config); !bytes.Contains(config, []byte(digest(layer))) {
		t.Error("the configuration does not name the layer")
	}
	if got := untar(t, layer)[Entrypoint[1:]]; string(got) != "a program" {
		t.Errorf("the layer holds %q, want the program", got)
	}
}
