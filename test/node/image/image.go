// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package image packs one static program into an image: a docker archive, the
// form in which every runtime's own tools import an image without a registry, or
// an OCI layout, a directory from which CRI-O pulls as from a registry.
//
// # Model
//
// One layer with one file, /tool, and a configuration that runs `/tool pause`.
// The same program gives the same bytes: times, owners and order are fixed, so
// that the image's ID says which program is in it.
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
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
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

// Pack writes the archive of the program to w.
func Pack(w io.Writer, program []byte, ref string) error {
	layer, err := layerOf(program)
	if err != nil {
		return err
	}
	config, err := configOf(digest(layer))
	if err != nil {
		return err
	}
	configName := digest(config) + ".json"
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": []string{ref}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	return writeTar(w, []file{
		{configName, 0o644, config},
		{"layer.tar", 0o644, layer},
		{"manifest.json", 0o644, manifest},
	})
}

// PackFile packs the program at path into an archive at out.
func PackFile(out, path, ref string) error {
	program, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("image: read the program: %w", err)
	}
	var archive bytes.Buffer
	if err := Pack(&archive, program, ref); err != nil {
		return err
	}
	if err := os.WriteFile(out, archive.Bytes(), 0o644); err != nil {
		return fmt.Errorf("image: write the archive: %w", err)
	}
	return nil
}

// PackLayout packs the program at path into an OCI layout in the directory dir, which it makes,
// under a tag.
func PackLayout(dir, path, tag string) error {
	program, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("image: read the program: %w", err)
	}
	layer, err := layerOf(program)
	if err != nil {
		return err
	}
	config, err := configOf(digest(layer))
	if err != nil {
		return err
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
		return err
	}
	tagged := blob("manifest.v1+json", manifest)
	tagged["annotations"] = map[string]string{"org.opencontainers.image.ref.name": tag}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{tagged}})
	if err != nil {
		return err
	}
	blobs := filepath.Join(dir, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	for name, data := range map[string][]byte{
		filepath.Join(blobs, digest(layer)): layer, filepath.Join(blobs, digest(config)): config, filepath.Join(blobs, digest(manifest)): manifest,
		filepath.Join(dir, "index.json"): index, filepath.Join(dir, "oci-layout"): []byte(`{"imageLayoutVersion":"1.0.0"}`),
	} {
		if err := os.WriteFile(name, data, 0o644); err != nil {
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
