// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package image packs one static program into an OCI image layout without a registry: an archive
// for the import by a runtime's own tools, or a directory, from which CRI-O pulls.
//
// # Model
//
// One layer with one file, /tool, and a configuration that runs `/tool pause`. The same program
// gives the same bytes: times, owners and order are fixed, so the image's ID identifies the
// program.
//
// # Concurrency
//
// Functions without state.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// DefaultRef is the name under which the image is imported.
const DefaultRef = "example.local/tool:1"

// Entrypoint is the path of the program inside the image.
const Entrypoint = "/tool"

// configOf is the image's configuration.
func configOf(diffID string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"created":      epoch.Format(time.RFC3339),
		"config": map[string]any{
			"Entrypoint": []string{Entrypoint},
			"Cmd":        []string{"pause"},
			"Env":        []string{"PATH=/"},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + diffID}},
		"history": []map[string]string{{"created": epoch.Format(time.RFC3339), "created_by": "node-e2e"}},
	})
}

// layoutOf returns the files of a layout with the program at path.
func layoutOf(path, ref string) ([]file, error) {
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("image: read the program: %w", err)
	}
	layer, err := layerOf(program)
	if err != nil {
		return nil, err
	}
	config, err := configOf(digest(layer))
	if err != nil {
		return nil, err
	}
	const oci = "application/vnd.oci.image."
	blob := func(kind string, data []byte) map[string]any {
		return map[string]any{"mediaType": oci + kind, "digest": "sha256:" + digest(data), "size": len(data)}
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": oci + "manifest.v1+json",
		"config": blob("config.v1+json", config), "layers": []any{blob("layer.v1.tar", layer)},
	})
	if err != nil {
		return nil, err
	}
	tagged := blob("manifest.v1+json", manifest)
	tagged["annotations"] = map[string]string{ // CRI-O reads the first, containerd the second
		"org.opencontainers.image.ref.name": ref[strings.LastIndexByte(ref, ':')+1:], "io.containerd.image.name": ref,
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{tagged}})
	if err != nil {
		return nil, err
	}
	files := []file{{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", 0o644, index}}
	for _, data := range [][]byte{layer, config, manifest} {
		files = append(files, file{"blobs/sha256/" + digest(data), 0o644, data})
	}
	return files, nil
}

// PackFile packs the program at path into an archive at out.
func PackFile(out, path, ref string) error {
	files, err := layoutOf(path, ref)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := writeTar(&archive, files); err != nil {
		return err
	}
	if err := os.WriteFile(out, archive.Bytes(), 0o644); err != nil {
		return fmt.Errorf("image: write the archive: %w", err)
	}
	return nil
}

// PackLayout packs the program at path into a layout in the directory dir, which it makes.
func PackLayout(dir, path, ref string) error {
	files, err := layoutOf(path, ref)
	if err != nil {
		return err
	}
	for _, f := range files {
		name := filepath.Join(dir, f.name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, f.data, 0o644)); err != nil {
			return fmt.Errorf("image: %w", err)
		}
	}
	return nil
}

var epoch = time.Unix(0, 0).UTC()

type file struct {
	name string
	mode int64
	data []byte
}

func layerOf(program []byte) ([]byte, error) {
	var layer bytes.Buffer
	err := writeTar(&layer, []file{{Entrypoint[1:], 0o755, program}})
	return layer.Bytes(), err
}

func writeTar(w io.Writer, files []file) error {
	out := tar.NewWriter(w)
	for _, f := range files {
		header := &tar.Header{
			Name: f.name, Mode: f.mode, Size: int64(len(f.data)),
			ModTime: epoch, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
		}
		if err := out.WriteHeader(header); err != nil {
			return fmt.Errorf("image: %s: %w", f.name, err)
		}
		if _, err := out.Write(f.data); err != nil {
			return fmt.Errorf("image: %s: %w", f.name, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
