// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// picture is what the images of a name are made of: a layer by its name, the program with
// arguments that no pod replaces, the rest of the command, and the user.
type picture struct {
	layer, entrypoint string
	command           []string
	user              string
}

// pictures are the images by the last element of their names, in every version. Nginx and ipc-utils
// are stand-ins: the selected specs only start, update and delete them.
var pictures = map[string]picture{
	"agnhost":   {"agnhost", "/agnhost", []string{"pause"}, ""},
	"busybox":   {"busybox", "", []string{"sh"}, ""},
	"ipc-utils": {"busybox", "", []string{"sh"}, ""},
	"nginx":     {"agnhost", "/agnhost", []string{"netexec", "--http-port=80"}, ""},
	"nonroot":   {"busybox", "", []string{"sleep", "3600"}, "1234"},
	"pause":     {"pause", "/pause", nil, "65535:65535"},
}

// registry serves the images for any registry and tag. Each reference has an image ID of its own,
// because a container's status names one of the references of an ID, and specs compare names.
type registry struct {
	layers map[string][]byte

	mu    sync.Mutex
	blobs map[string][]byte // by digest; owned by the holder of mu
}

// entry is a file in a layer: a copy, a link, a text, or else a folder.
type entry struct{ file, link, text string }

const (
	users = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n" +
		"user-defined-in-image:x:1000:1000::/tmp:/bin/sh\n"
	groups = "root:x:0:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\n" +
		"group-defined-in-image:x:50000:user-defined-in-image\n"
)

// newRegistry makes the layers from the suite's folder, the tree and the unpacked packages.
func newRegistry(c Config) (*registry, error) {
	busybox := filepath.Join(c.Debs, "bin/busybox")
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("upstream: busybox: %w", err)
	}
	base := map[string]entry{
		"bin/busybox": {file: busybox}, "bin/nmeter": {file: c.Workload},
		"etc/passwd": {text: users}, "etc/group": {text: groups},
		"root": {}, "tmp": {}, "uploads": {},
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		if _, ok := base["bin/"+applet]; !ok {
			base["bin/"+applet] = entry{link: "/bin/busybox"}
		}
	}
	agnhost := maps.Clone(base)
	agnhost["agnhost"] = entry{file: filepath.Join(c.Suite, "agnhost")}
	agnhost["agnhost-2"] = entry{link: "agnhost"}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		agnhost[name] = entry{file: filepath.Join(c.Tree, "test/images/agnhost/porter", name)}
	}
	err = addDynamic(agnhost, "curl", "usr/bin/curl")
	err = errors.Join(err, addDynamic(agnhost, "bash", "bin/bash"))
	r := &registry{layers: make(map[string][]byte), blobs: make(map[string][]byte)}
	for name, files := range map[string]map[string]entry{
		"busybox": base, "agnhost": agnhost, "pause": {"pause": {file: filepath.Join(c.Suite, "pause")}},
	} {
		data, wrong := layer(files)
		r.layers[name], err = data, errors.Join(err, wrong)
	}
	return r, err
}

// addDynamic adds a program of the machine with its shared libraries.
func addDynamic(files map[string]entry, program, at string) error {
	file, err := exec.LookPath(program)
	if err != nil {
		return fmt.Errorf("upstream: the images need %s of this machine: %w", program, err)
	}
	files[at] = entry{file: file}
	libraries, err := exec.Command("ldd", file).Output()
	for _, l := range regexp.MustCompile(`(/\S+) \(0x`).FindAllSubmatch(libraries, -1) {
		files[strings.TrimPrefix(string(l[1]), "/")] = entry{file: string(l[1])}
	}
	return err
}

// layer returns an archive of the files. Containerd makes missing folders.
func layer(files map[string]entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		e, header, data := files[name], &tar.Header{Name: name, Mode: 0o755}, []byte(nil)
		var err error
		switch {
		case e.link != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
		case e.text != "":
			data = []byte(e.text)
		case e.file != "":
			data, err = os.ReadFile(e.file)
		default:
			header.Typeflag, header.Mode = tar.TypeDir, 0o1777
		}
		if header.Size = int64(len(data)); err == nil {
			err = w.WriteHeader(header)
		}
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			return nil, fmt.Errorf("upstream: %s in an image: %w", name, err)
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

const manifestType = "application/vnd.oci.image.manifest.v1+json"

// manifest makes the image of a reference and returns its manifest.
func (r *registry) manifest(name, tag string) ([]byte, error) {
	p, ok := pictures[path.Base(name)]
	if !ok {
		return nil, fmt.Errorf("no image %s", name)
	}
	config := map[string]any{
		"Cmd": p.command, "User": p.user, "Labels": map[string]string{"ref": name + ":" + tag},
		"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}
	if p.entrypoint != "" {
		config["Entrypoint"] = []string{p.entrypoint}
	}
	filesystem := map[string]any{"type": "layers", "diff_ids": []string{digest(r.layers[p.layer])}}
	image, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": config, "rootfs": filesystem,
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	blob := func(kind string, data []byte) map[string]any {
		r.blobs[digest(data)] = data
		kind = "application/vnd.oci.image." + kind
		return map[string]any{"mediaType": kind, "digest": digest(data), "size": len(data)}
	}
	data, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": blob("config.v1+json", image), "layers": []any{blob("layer.v1.tar", r.layers[p.layer])},
	})
	r.blobs[digest(data)] = data
	return data, err
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ServeHTTP serves /v2/NAME/manifests/TAG and /v2/NAME/{manifests,blobs}/DIGEST.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	if len(parts) < 4 {
		return // the question whether there is a registry
	}
	name, what, ref := path.Join(parts[1:len(parts)-2]...), parts[len(parts)-2], parts[len(parts)-1]
	r.mu.Lock()
	data, ok := r.blobs[ref]
	r.mu.Unlock()
	if !ok && what == "manifests" && !strings.HasPrefix(ref, "sha256:") {
		var err error
		data, err = r.manifest(name, ref)
		ok = err == nil
	}
	if !ok {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if what == "manifests" {
		w.Header().Set("Content-Type", manifestType)
	}
	w.Header().Set("Docker-Content-Digest", digest(data))
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
}

// manifestGo is the list of the suite's images in a tree.
const manifestGo = "test/utils/image/manifest.go"

// references returns the suite's images that are here, from the tree.
func references(tree string) (refs []string, err error) {
	text, err := os.ReadFile(filepath.Join(tree, manifestGo))
	if err != nil {
		return nil, err
	}
	registries := map[string]string{
		"PromoterE2eRegistry": "registry.k8s.io/e2e-test-images/", "GcRegistry": "registry.k8s.io/",
	}
	config := regexp.MustCompile(`= Config\{list\.(\w+), "([^"]+)", "([^"]+)"\}`)
	for _, m := range config.FindAllSubmatch(text, -1) {
		at, name := registries[string(m[1])], string(m[2])
		if _, ok := pictures[name]; ok && at != "" {
			refs = append(refs, at+name+":"+string(m[3]))
		}
	}
	if pauseOf(refs) == "" {
		return nil, fmt.Errorf("upstream: %s names no image of pause", manifestGo)
	}
	return refs, nil
}

// pauseOf returns the image of sandboxes.
func pauseOf(refs []string) string {
	for _, ref := range refs {
		if strings.Contains(ref, "/pause:") {
			return ref
		}
	}
	return ""
}
