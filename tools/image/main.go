// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command image packs static binaries, named NAME-VERSION-linux-ARCHITECTURE, into a container
// image: an OCI archive for all architectures, and a docker archive for each. The archives depend
// on the arguments alone. The script release calls it.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// registry holds the images, each by the name of its program.
const registry = "ghcr.io/evented-pleg/"

// release is what the images of a release share.
type release struct {
	program, version, commit, out string
	time                          time.Time
	// licences are files for /licenses, the program's own and those of the modules in it.
	licences []string
}

// name is that of the image, by which a runtime knows it.
func (r release) name() string { return registry + r.program + ":" + r.version }

func main() {
	var r release
	flag.StringVar(&r.program, "program", "pleg-bench", "name of the program")
	flag.StringVar(&r.version, "version", "", "version of the release")
	flag.StringVar(&r.commit, "commit", "", "commit of the release")
	flag.StringVar(&r.out, "out", ".", "folder for the archives")
	seconds := flag.Int64("time", 0, "Unix time of every file")
	flag.Func("licence", "file for /licenses; may be repeated", func(file string) error {
		r.licences = append(r.licences, file)
		return nil
	})
	flag.Parse()
	r.time = time.Unix(*seconds, 0).UTC()
	if err := r.write(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func (r release) write(binaries []string) error {
	tag, err := name.NewTag(r.name())
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, file := range binaries {
		platform := &v1.Platform{OS: "linux", Architecture: file[strings.LastIndexByte(file, '-')+1:]}
		img, err := r.image(file, platform)
		if err != nil {
			return err
		}
		descriptor := v1.Descriptor{Platform: platform}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: descriptor})
		if err := tarball.WriteToFile(file+".docker.tar", tag, img); err != nil {
			return err
		}
	}
	return r.archive(index)
}

// image returns an image of the program alone, which runs as nobody and may write to /tmp.
func (r release) image(file string, platform *v1.Platform) (v1.Image, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	out := tar.NewWriter(&content)
	if err := r.add(out, r.program, 0o755, data); err != nil {
		return nil, err
	}
	if err := r.add(out, "tmp/", 0o1777, nil); err != nil {
		return nil, err
	}
	if len(r.licences) > 0 {
		if err := r.add(out, "licenses/", 0o755, nil); err != nil {
			return nil, err
		}
	}
	for _, file := range r.licences {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := r.add(out, "licenses/"+filepath.Base(file), 0o644, text); err != nil {
			return nil, err
		}
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.time}
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img, err = mutate.Append(mutate.ConfigMediaType(img, types.OCIConfigJSON), mutate.Addendum{
		Layer: layer, History: v1.History{Created: created, CreatedBy: "release"},
	})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS = platform.OS
	config.Architecture = platform.Architecture
	config.Created = created
	config.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/" + r.program},
		Labels: map[string]string{
			"org.opencontainers.image.title":    r.program,
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source":   "https://github.com/evented-pleg/evented-pleg",
		},
	}
	return mutate.ConfigFile(img, config)
}

// archive writes an OCI layout as a file, for skopeo's oci-archive:, podman load and ctr images
// import. The last takes the image's name from containerd's annotation.
func (r release) archive(index v1.ImageIndex) error {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	ref := map[string]string{
		"org.opencontainers.image.ref.name": r.version,
		"io.containerd.image.name":          r.name(),
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(ref)); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(r.out, r.program+"-"+r.version+".oci.tar"))
	if err != nil {
		return err
	}
	out := tar.NewWriter(file)
	files := os.DirFS(dir)
	err = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error { // sorted
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return r.add(out, name, 0o644, data)
	})
	return errors.Join(err, out.Close(), file.Close())
}

// add adds a file. A name with a slash at its end is a folder.
func (r release) add(out *tar.Writer, name string, mode int64, data []byte) error {
	err := out.WriteHeader(&tar.Header{
		Name:    name,
		Mode:    mode,
		Size:    int64(len(data)),
		ModTime: r.time,
		Format:  tar.FormatUSTAR,
	})
	if err == nil {
		_, err = out.Write(data)
	}
	return err
}
