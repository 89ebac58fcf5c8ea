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
)

// TestPackFile: the archive is the layout, and the same program gives the same bytes.
func TestPackFile(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(in("tool"), []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := PackLayout(in("layout"), in("tool"), DefaultRef); err != nil {
		t.Fatal(err)
	}
	var before []byte
	for range 2 {
		if err := PackFile(in("out.tar"), in("tool"), DefaultRef); err != nil {
			t.Fatal(err)
		}
		archive, err := os.ReadFile(in("out.tar"))
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && !bytes.Equal(before, archive) {
			t.Error("the same program packed twice gives two archives")
		}
		before = archive
	}
	files := untar(t, before)
	for name, data := range files {
		if want, err := os.ReadFile(in("layout/" + name)); err != nil || !bytes.Equal(want, data) {
			t.Errorf("%s of the archive is not the layout's: %v", name, err)
		}
	}
	if len(files) != 5 {
		t.Errorf("the archive has %d files, want 5", len(files))
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

// TestPackLayout checks that every digest in the layout has its blob, down to the program.
func TestPackLayout(t *testing.T) {
	program := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(program, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "example.local", "tool")
	if err := PackLayout(dir, program, DefaultRef); err != nil {
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
	config := read(manifest.Config)
	for _, want := range []string{`"diff_ids":["sha256:` + digest(layer), `"Entrypoint":["` + Entrypoint + `"]`} {
		if !strings.Contains(string(config), want) {
			t.Errorf("the configuration lacks %s", want)
		}
	}
	if got := untar(t, layer)[Entrypoint[1:]]; string(got) != "a program" {
		t.Errorf("the layer holds %q, want the program", got)
	}
}
