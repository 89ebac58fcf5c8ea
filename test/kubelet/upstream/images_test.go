// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRegistry pulls an image by tag, as containerd does: its manifest, and the blobs named there.
func TestRegistry(t *testing.T) {
	data, err := layer(map[string]entry{
		"etc/passwd": {text: users}, "bin/sh": {link: "/bin/busybox"}, "tmp": {},
	})
	if err != nil {
		t.Fatal(err)
	}
	layers := map[string][]byte{"busybox": data}
	server := httptest.NewServer(&registry{layers: layers, blobs: make(map[string][]byte)})
	defer server.Close()
	get := func(path string) []byte {
		t.Helper()
		response, err := http.Get(server.URL + path + "?ns=registry.k8s.io")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, response.Status, err)
		}
		if got := response.Header.Get("Docker-Content-Digest"); path != "/v2/" && got != digest(body) {
			t.Errorf("%s: digest %s of %s", path, got, digest(body))
		}
		return body
	}
	get("/v2/")
	configs := make(map[string]bool)
	for _, tag := range []string{"1", "2"} {
		var manifest struct {
			Config struct{ Digest string }
			Layers []struct{ Digest string }
		}
		text := get("/v2/e2e-test-images/busybox/manifests/" + tag)
		if err := json.Unmarshal(text, &manifest); err != nil {
			t.Fatal(err)
		}
		get("/v2/e2e-test-images/busybox/manifests/" + digest(text))
		get("/v2/e2e-test-images/busybox/blobs/" + manifest.Config.Digest)
		configs[manifest.Config.Digest] = true
		blob := get("/v2/e2e-test-images/busybox/blobs/" + manifest.Layers[0].Digest)
		archive := tar.NewReader(bytes.NewReader(blob))
		var names []string
		for h, err := archive.Next(); err == nil; h, err = archive.Next() {
			names = append(names, h.Name)
		}
		if want := []string{"bin/sh", "etc/passwd", "tmp"}; !slices.Equal(names, want) {
			t.Errorf("the layer holds %q, want %q", names, want)
		}
	}
	if len(configs) != 2 {
		t.Error("two tags share an image ID: a status may name the wrong one")
	}
	for _, missing := range []string{"/v2/e2e-test-images/perl/manifests/1", "/v2/x/blobs/sha256:0"} {
		response, err := http.Get(server.URL + missing)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s, want not found", missing, response.Status)
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
