// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package upstream

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evented-pleg/evented-pleg/test/node/daemon"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// base is the folder of a node's runtime.
const base = at + "/c"

// service is a runtime as a unit: its name and CRI socket, where cAdvisor looks for the socket, the
// command, and the text that goes to the end of files of the configuration of package daemon.
type service struct {
	name, socket, usual string
	command             []string
	more                map[string]string
}

// handler is the runtime handler that the suite's RuntimeClasses name.
const handler = "test-handler"

// serviceOf returns the runtime, with the node's registry of images and runc as another handler.
func serviceOf(c Config) service {
	runc := c.Runtime.Runc()
	if c.Runtime.Runtime.Family == runtimes.CRIO {
		var registries strings.Builder
		registries.WriteString("unqualified-search-registries = [\"docker.io\"]\n")
		for _, prefix := range []string{"docker.io", "registry.k8s.io"} {
			fmt.Fprintf(
				&registries,
				"[[registry]]\nprefix = %q\nlocation = %q\ninsecure = true\n",
				prefix,
				images,
			)
		}
		return service{
			name: "crio", socket: base + "/crio.sock", usual: "/run/crio/crio.sock",
			command: []string{
				"env",
				"CONTAINERS_STORAGE_CONF=" + base + "/storage.conf",
				c.Runtime.Program("crio"),
				"--config",
				base + "/crio.conf",
				"--config-dir",
				base + "/conf.d",
				"--registries-conf",
				base + "/suite.conf",
			},
			more: map[string]string{
				"suite.conf": registries.String(),
				"conf.d/10-suite.conf": fmt.Sprintf(`[crio.image]
default_transport = "docker://"
pause_command = "/pause"
[crio.runtime.runtimes.%s]
runtime_path = %q
runtime_root = %q
monitor_cgroup = "pod"
`, handler, runc, base+"/runc"),
			},
		}
	}
	return service{
		name: "containerd", socket: base + "/c.sock", usual: "/run/containerd/containerd.sock",
		command: []string{c.Runtime.Program("containerd"), "--config", base + "/config.toml"},
		more: map[string]string{
			"certs.d/_default/hosts.toml": "[host.\"http://" + images + "\"]\n  capabilities = [\"pull\", \"resolve\"]\n",
			"config.toml": fmt.Sprintf(`
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '%s'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.%s]
  runtime_type = 'io.containerd.runc.v2'
  runtime_path = '%s'
  options = { BinaryName = '%s', Root = '%s' }
`, base+"/certs.d", handler, c.Runtime.Program("containerd-shim-runc-v2"), runc, base+"/runc"),
		},
	}
}

// configure writes the runtime's files.
func (s service) configure(c Config, pause string) error {
	if _, err := daemon.New(daemon.Config{Base: base, Components: c.Runtime, Image: pause}); err != nil {
		return err
	}
	plugins, err := filepath.Glob(filepath.Join(c.Debs, "usr/lib/cni/*"))
	for _, plugin := range plugins {
		err = errors.Join(err, os.Symlink(plugin, filepath.Join(base, "cni/bin", filepath.Base(plugin))))
	}
	err = errors.Join(err, os.MkdirAll(filepath.Dir(s.usual), 0o755), os.Symlink(s.socket, s.usual))
	err = errors.Join(err, os.WriteFile(base+"/cni/conf/10-e2e.conflist", []byte(cniConfig), 0o644))
	for name, text := range s.more {
		file := filepath.Join(base, name)
		old, _ := os.ReadFile(file) // or the file is new
		err = errors.Join(
			err,
			os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, append(old, text...), 0o644),
		)
	}
	return err
}

const cniConfig = `{"cniVersion": "1.0.0", "name": "e2e", "plugins": [{
  "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
  "ipam": {
    "type": "host-local", "dataDir": "` + base + `/ipam",
    "ranges": [[{"subnet": "10.100.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]
  }
}]}
`
