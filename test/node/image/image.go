// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package image packs a static program into an OCI image without a registry: an archive for the
// import by a runtime's own tools, or a directory, from which CRI-O pulls.
//
// # Model
//
// The image has a single layer with a single file, /tool, and runs `/tool pause`. The same program
// gives the same image: times and owners are fixed.
//
// # Concurrency
//
// Functions without state.
package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// DefaultRef is the name under which the image is imported.
const DefaultRef = "example.local/tool:1"

// Entrypoint is the path of the program inside the image.
const Entrypoint = "/tool"

// PackLayout packs the program at path into a layout in the directory dir, which it makes.
func PackLayout(dir, path, ref string) error {
	img, err := imageOf(path)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return to.AppendImage(img, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": ref[strings.LastIndexByte(ref, ':')+1:], // for CRI-O
		"io.containerd.image.name":          ref,
	}))
}

// PackFile packs the program at path into an archive at out.
func PackFile(out, path, ref string) (err error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := PackLayout(dir, path, ref); err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return fmt.Errorf("image: write the archive: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	archive := tar.NewWriter(file)
	return errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close())
}

// imageOf returns the image of the program at path.
func imageOf(path string) (v1.Image, error) {
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	var content bytes.Buffer
	files := tar.NewWriter(&content)
	header := &tar.Header{Name: Entrypoint[1:], Mode: 0o755, Size: int64(len(program))}
	if err := files.WriteHeader(header); err != nil {
		return nil, err
	}
	_, err = files.Write(program)
	if err := errors.Join(err, files.Close()); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img, err := mutate.AppendLayers(mutate.ConfigMediaType(base, types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{
		Entrypoint: []string{Entrypoint}, Cmd: []string{"pause"}, Env: []string{"PATH=/"},
	}
	return mutate.ConfigFile(img, config)
}
