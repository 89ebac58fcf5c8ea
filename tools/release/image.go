// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/evented-pleg/evented-pleg/internal/modproxy"
)

const repository = "ghcr.io/evented-pleg/pleg-bench"

// image writes one OCI archive for all platforms, and a docker archive for each.
func (r release) image(binaries []binary, work string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range binaries {
		img, err := r.imageOf(b)
		if err != nil {
			return err
		}
		platform := &v1.Platform{OS: b.os, Architecture: b.arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
		tag, err := name.NewTag(repository + ":" + r.version)
		if err != nil {
			return err
		}
		if err := tarball.WriteToFile(fmt.Sprintf("%s.docker.tar", b.file), tag, img); err != nil {
			return err
		}
	}
	dir := filepath.Join(work, "layout")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	ref := map[string]string{"org.opencontainers.image.ref.name": r.version}
	if err := path.AppendIndex(index, layout.WithAnnotations(ref)); err != nil {
		return err
	}
	return r.archiveLayout(dir)
}

// archiveLayout writes an OCI layout as one file, such as skopeo's oci-archive: and podman load
// take.
func (r release) archiveLayout(dir string) error {
	var files []file
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error { // in lexical order
		if err != nil || at == dir {
			return err
		}
		rel, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		if e.IsDir() {
			files = append(files, file{name: filepath.ToSlash(rel) + "/", mode: 0o755})
			return nil
		}
		data, err := os.ReadFile(at)
		files = append(files, file{filepath.ToSlash(rel), 0o644, data})
		return err
	})
	if err != nil {
		return err
	}
	data, err := archive(files, r.time)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, program+"-"+r.version+".oci.tar"), data, 0o644)
}

// imageOf returns an image of the program alone, which runs as nobody and may write to /tmp.
func (r release) imageOf(b binary) (v1.Image, error) {
	data, err := os.ReadFile(b.file)
	if err != nil {
		return nil, err
	}
	content, err := archive([]file{{program, 0o755, data}, {name: "tmp/", mode: 0o1777}}, r.time)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "release"}}); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = b.os, b.arch, v1.Time{Time: r.time}
	config.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/" + program},
		Labels: map[string]string{
			"org.opencontainers.image.title":    program,
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source":   "https://" + modproxy.Root,
		},
	}
	return mutate.ConfigFile(img, config)
}

// sbom writes the modules in the program, as the first of the binaries names them, in CycloneDX.
func (r release) sbom(binaries []binary) error {
	if len(binaries) == 0 {
		return nil
	}
	info, err := buildinfo.ReadFile(binaries[0].file)
	if err != nil {
		return err
	}
	component := func(path, version string) cdx.Component {
		url := fmt.Sprintf("pkg:golang/%s@%s", path, version)
		return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
	}
	main := component(info.Main.Path, r.version)
	main.Type = cdx.ComponentTypeApplication
	components := []cdx.Component{component("std", strings.TrimPrefix(info.GoVersion, "go"))}
	refs := []string{components[0].BOMRef}
	for _, dep := range info.Deps {
		components = append(components, component(dep.Path, dep.Version))
		refs = append(refs, components[len(components)-1].BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &main, Timestamp: r.time.Format("2006-01-02T15:04:05Z")}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	out, err := json.MarshalIndent(bom, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, program+"-"+r.version+".cdx.json"), append(out, '\n'), 0o644)
}
