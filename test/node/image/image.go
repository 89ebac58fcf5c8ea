// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package image packs a static program into an image without a registry: docker's archive for the
// import by a runtime's own tools, or a directory in OCI's layout, from which CRI-O pulls.
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
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
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
	tag := ref[strings.LastIndexByte(ref, ':')+1:]
	return to.AppendImage(
		img,
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag}),
	)
}

// PackFile packs the program at path into an archive at out.
func PackFile(out, path, ref string) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	img, err := imageOf(path)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return tarball.WriteToFile(out, tag, img)
}

// imageOf returns the image of the program at path.
func imageOf(path string) (v1.Image, error) {
	layer, err := Layer(map[string]File{Entrypoint[1:]: {From: path}})
	if err != nil {
		return nil, err
	}
	return New(
		layer,
		v1.Config{Entrypoint: []string{Entrypoint}, Cmd: []string{"pause"}, Env: []string{"PATH=/"}},
	)
}

// File is a file in a layer: a copy, a link, a text, or else a folder.
type File struct {
	From, Link, Text string
	Mode             int64 // of a copy, text or link; 0: 0755
}

// Layer returns a layer of files by name. Runtimes make missing folders.
func Layer(files map[string]File) (v1.Layer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		data := []byte(nil)
		header := &tar.Header{Name: name, Mode: cmp.Or(f.Mode, 0o755)}
		var err error
		switch {
		case f.Link != "":
			header.Typeflag = tar.TypeSymlink
			header.Linkname = f.Link
		case f.Text != "":
			data = []byte(f.Text)
		case f.From != "":
			data, err = os.ReadFile(f.From)
		default:
			header.Typeflag = tar.TypeDir
			header.Mode = 0o1777
		}
		header.Size = int64(len(data))
		if err == nil {
			err = w.WriteHeader(header)
		}
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s in a layer: %w", name, err)
		}
	}
	err := w.Close()
	return static.NewLayer(out.Bytes(), types.OCIUncompressedLayer), err
}

// New returns an image of a layer, for Linux on this machine's architecture.
func New(layer v1.Layer, config v1.Config) (v1.Image, error) {
	base := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img, err := mutate.AppendLayers(mutate.ConfigMediaType(base, types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS = "linux"
	file.Architecture = runtime.GOARCH
	file.Config = config
	return mutate.ConfigFile(img, file)
}
