// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/evented-pleg/evented-pleg/test/node/image"
)

// picture is what the images of a name are made of: a layer by its name, the program with
// arguments that no pod replaces, the rest of the command, and the user.
type picture struct {
	layer, entrypoint string
	command           []string
	user              string
}

// pictures are the images by the last element of their names, in every version. Nginx and ipc-utils
// are stand-ins, to be started, updated and deleted: two specs that look into nginx fail.
var pictures = map[string]picture{
	"agnhost":              {"agnhost", "/agnhost", []string{"pause"}, ""},
	"busybox":              {"busybox", "", []string{"sh"}, ""},
	"glibc-dns-testing":    {"agnhost", "", []string{"sh"}, ""},
	"ipc-utils":            {"busybox", "", []string{"sh"}, ""},
	"nginx":                {"agnhost", "/agnhost", []string{"netexec", "--http-port=80"}, ""},
	"nonewprivs":           {"nnp", "", []string{"nnp"}, ""},
	"nonroot":              {"busybox", "", []string{"sleep", "3600"}, "1234"},
	"pause":                {"pause", "/pause", nil, "65535:65535"},
	"sample-device-plugin": {"plugin", "/sampledeviceplugin", []string{"-alsologtostderr"}, ""},
}

const (
	users = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n" +
		"user-defined-in-image:x:1000:1000::/tmp:/bin/sh\n"
	groups = "root:x:0:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\n" +
		"group-defined-in-image:x:50000:user-defined-in-image\n"
)

// layersOf makes the layers from the suite's folder, the tree and the unpacked packages.
func layersOf(c Config) (map[string]v1.Layer, error) {
	busybox := filepath.Join(c.Debs, "forky/usr/bin/busybox")
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("upstream: busybox: %w", err)
	}
	base := map[string]image.File{
		// The older shell says what the suite expects, the newer one keeps variables such as data-1.
		"bin/sh":      {From: filepath.Join(c.Debs, "bin/busybox")},
		"usr/bin/sh":  {Link: "/bin/busybox"},
		"bin/busybox": {From: busybox},
		"bin/nmeter":  {From: c.Runtime.Workload()},
		"etc/passwd":  {Text: users},
		"etc/group":   {Text: groups},
		"root":        {},
		"tmp":         {},
		"uploads":     {},
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		if _, ok := base["bin/"+applet]; !ok {
			base["bin/"+applet] = image.File{Link: "/bin/busybox"}
		}
	}
	agnhost := maps.Clone(base)
	agnhost["agnhost"] = image.File{From: filepath.Join(c.Suite, "agnhost")}
	agnhost["agnhost-2"] = image.File{Link: "agnhost"}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		agnhost[name] = image.File{From: filepath.Join(c.Tree, "test/images/agnhost/porter", name)}
	}
	err = errors.Join(
		addDynamic(agnhost, "curl", "usr/bin/curl"),
		addDynamic(agnhost, "bash", "bin/bash"),
		addDynamic(agnhost, "hostname", "bin/hostname"),
	)
	nnp := maps.Clone(base)
	nnp["usr/local/bin/nnp"] = image.File{From: filepath.Join(c.Suite, "nnp"), Mode: 0o4755}
	layers := make(map[string]v1.Layer)
	for name, files := range map[string]map[string]image.File{
		"busybox": base, "agnhost": agnhost, "nnp": nnp,
		"pause":  {"pause": {From: filepath.Join(c.Suite, "pause")}},
		"plugin": {"sampledeviceplugin": {From: filepath.Join(c.Suite, "sampledeviceplugin")}, "tmp": {}},
	} {
		var wrong error
		layers[name], wrong = image.Layer(files)
		err = errors.Join(err, wrong)
	}
	return layers, err
}

// addDynamic adds a program of the machine with its shared libraries.
func addDynamic(files map[string]image.File, program, at string) error {
	file, err := exec.LookPath(program)
	if err != nil {
		return fmt.Errorf("upstream: the images need %s of this machine: %w", program, err)
	}
	files[at] = image.File{From: file}
	libraries, err := exec.Command("ldd", file).Output()
	for _, l := range regexp.MustCompile(`(/\S+) \(0x`).FindAllSubmatch(libraries, -1) {
		files[strings.TrimPrefix(string(l[1]), "/")] = image.File{From: string(l[1])}
	}
	return err
}

// push puts the images of the references into a registry, whatever theirs is.
func push(at string, layers map[string]v1.Layer, refs []string) error {
	for _, ref := range refs {
		_, repository, _ := strings.Cut(ref, "/")
		to, err := name.NewTag(at+"/"+repository, name.Insecure)
		if err != nil {
			return err
		}
		p := pictures[path.Base(to.RepositoryStr())]
		config := v1.Config{
			// Each reference has an image ID of its own, because a container's status names one of the
			// references of an ID, and specs compare names.
			Labels: map[string]string{"ref": ref}, Cmd: p.command, User: p.user,
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		}
		if p.entrypoint != "" {
			config.Entrypoint = []string{p.entrypoint}
		}
		img, err := image.New(layers[p.layer], config)
		if err != nil {
			return err
		}
		if err := remote.Write(to, img); err != nil {
			return fmt.Errorf("upstream: image %s: %w", ref, err)
		}
	}
	return nil
}

// In a tree: the list of the suite's images, and a manifest with another.
const (
	manifestGo = "test/utils/image/manifest.go"
	pluginYAML = "test/e2e/testing-manifests/sample-device-plugin/sample-device-plugin.yaml"
)

// references returns the suite's images that are here, from the tree.
func references(tree string) (refs []string, err error) {
	text, err := os.ReadFile(filepath.Join(tree, manifestGo))
	plugin, errPlugin := os.ReadFile(filepath.Join(tree, pluginYAML))
	if err := errors.Join(err, errPlugin); err != nil {
		return nil, err
	}
	registries := map[string]string{
		"PromoterE2eRegistry": "registry.k8s.io/e2e-test-images/", "GcRegistry": "registry.k8s.io/",
	}
	config := regexp.MustCompile(`= Config\{list\.(\w+), "([^"]+)", "([^"]+)"\}`)
	for _, m := range config.FindAllSubmatch(text, -1) {
		at := registries[string(m[1])]
		name := string(m[2])
		if _, ok := pictures[name]; ok && at != "" {
			refs = append(refs, at+name+":"+string(m[3]))
		}
	}
	if pauseOf(refs) == "" {
		return nil, fmt.Errorf("upstream: %s names no image of pause", manifestGo)
	}
	for _, m := range regexp.MustCompile(`image: (\S+)`).FindAllSubmatch(plugin, -1) {
		refs = append(refs, string(m[1]))
	}
	return append(refs, "docker.io/library/busybox:1.36"), nil // Kubelet Pods API of 1.36 names it
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
