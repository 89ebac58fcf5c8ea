// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"archive/tar"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// TestPush has each image in the registry by its tag, under an ID of its own.
func TestPush(t *testing.T) {
	data, err := layer(map[string]entry{
		"etc/passwd": {text: users}, "bin/sh": {link: "/bin/busybox"}, "tmp": {},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://")
	layers := map[string]v1.Layer{"busybox": static.NewLayer(data, types.OCIUncompressedLayer)}
	refs := []string{
		"registry.k8s.io/e2e/busybox:1", "registry.k8s.io/e2e/busybox:2", "k8s.gcr.io/nonroot:1",
	}
	if err := push(at, layers, refs); err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]bool)
	for _, ref := range refs {
		_, ref, _ = strings.Cut(ref, "/")
		tag, err := name.NewTag(at+"/"+ref, name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		img, err := remote.Image(tag)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil || (config.Config.User == "1234") != (ref == "nonroot:1") {
			t.Errorf("%s has the configuration %+v, %v", ref, config, err)
		}
		id, err := img.ConfigName()
		if ids[id.String()] || err != nil {
			t.Errorf("%s shares its image ID (%v): a status may name the wrong one", ref, err)
		}
		ids[id.String()] = true
		content := mutate.Extract(img)
		archive := tar.NewReader(content)
		var names []string
		for h, err := archive.Next(); err == nil; h, err = archive.Next() {
			names = append(names, h.Name)
		}
		_ = content.Close()
		if want := []string{"bin/sh", "etc/passwd", "tmp"}; !slices.Equal(names, want) {
			t.Errorf("%s holds %q, want %q", ref, names, want)
		}
	}
}

func TestReferences(t *testing.T) {
	tree := t.TempDir()
	file := filepath.Join(tree, manifestGo)
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`configs[Agnhost] = Config{list.PromoterE2eRegistry, "agnhost", "2.63.0"}
		configs[AgnhostPrivate] = Config{list.PrivateRegistry, "agnhost", "2.6"}
		configs[Perl] = Config{list.PromoterE2eRegistry, "perl", "5.26"}
		configs[Pause] = Config{list.GcRegistry, "pause", "3.10.2"}`)
	refs, err := references(tree)
	want := []string{"registry.k8s.io/e2e-test-images/agnhost:2.63.0", "registry.k8s.io/pause:3.10.2"}
	if err != nil || !slices.Equal(refs, want) || pauseOf(refs) != want[1] {
		t.Errorf("references are %q, %v, want %q", refs, err, want)
	}
	write("")
	if refs, err := references(tree); err == nil {
		t.Errorf("references of an empty list are %q", refs)
	}
}
