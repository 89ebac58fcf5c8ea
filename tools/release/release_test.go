// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// made makes the packages of a program of any content in a folder of the test.
func made(t *testing.T) release {
	t.Helper()
	r := release{version: "v1.2.0-rc.1", commit: strings.Repeat("a", 40), time: time.Unix(1_700_000_000, 0).UTC(), out: t.TempDir()}
	b := binary{os: "linux", arch: "arm64", file: filepath.Join(r.out, "program")}
	if err := os.WriteFile(b.file, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.debian(b, map[string][]byte{"pleg-bench.1": []byte("a page")}); err != nil {
		t.Fatal(err)
	}
	if err := r.image([]binary{b}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if err := r.checksums(); err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t *testing.T, r release, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.out, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// entries returns the files of a tar by name; it must end as a tar does.
func entries(t *testing.T, data []byte) map[string]string {
	t.Helper()
	if len(data) < 1024 || !bytes.Equal(data[len(data)-1024:], make([]byte, 1024)) {
		t.Error("the archive is cut off")
	}
	out := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = fmt.Sprintf("%o %s", h.Mode, content)
	}
}

func TestSameFilesTwice(t *testing.T) {
	t.Chdir(filepath.Join("..", "..")) // where LICENSE is, as below
	one, two := read(t, made(t), "SHA256SUMS"), read(t, made(t), "SHA256SUMS")
	if !bytes.Equal(one, two) || bytes.Count(one, []byte("\n")) != 4 {
		t.Errorf("%s\nand then\n%s", one, two)
	}
}

func TestDebian(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	deb := read(t, made(t), "pleg-bench_1.2.0~rc.1_arm64.deb")
	rest, ok := bytes.CutPrefix(deb, []byte("!<arch>\n"))
	if !ok {
		t.Fatal("not an archive")
	}
	var names []string
	members := map[string]map[string]string{}
	for len(rest) > 0 {
		name := strings.TrimSpace(string(rest[:16]))
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil {
			t.Fatal(err)
		}
		data := rest[60 : 60+size]
		rest = rest[60+size+size%2:]
		if names = append(names, name); !strings.HasSuffix(name, ".gz") {
			continue
		}
		unzip, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(unzip)
		if err != nil {
			t.Fatal(err)
		}
		members[name] = entries(t, content)
	}
	if want := []string{"debian-binary", "control.tar.gz", "data.tar.gz"}; !slices.Equal(names, want) {
		t.Errorf("members %q, want %q in this order", names, want)
	}
	if got := members["control.tar.gz"]["./control"]; !strings.Contains(got, "Version: 1.2.0~rc.1\nArchitecture: arm64\n") {
		t.Errorf("control: %s", got)
	}
	if got := members["data.tar.gz"]["./usr/bin/pleg-bench"]; got != "755 a program" {
		t.Errorf("the program: %q", got)
	}
}

func TestImage(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	r := made(t)
	dir := t.TempDir()
	for name, content := range entries(t, read(t, r, "pleg-bench-v1.2.0-rc.1.oci.tar")) {
		at := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			continue
		}
		_, content, _ = strings.Cut(content, " ")
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	img, err := tarball.ImageFromPath(filepath.Join(r.out, "program.docker.tar"), nil)
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
	if config.Config.User != "65532:65532" || config.Architecture != "arm64" || !config.Created.Time.Equal(r.time) ||
		config.Config.Labels["org.opencontainers.image.revision"] != r.commit {
		t.Errorf("%+v", config)
	}
}
