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
	"text/template"

	"github.com/evented-pleg/evented-pleg/test/node/daemon"
	"github.com/evented-pleg/evented-pleg/test/node/image"
)

// base is the folder of a node's runtime.
const base = at + "/c"

// service is a runtime as a unit: its name and CRI socket, its command, and the function that
// writes its files.
type service struct {
	unit, socket string
	command      func(Config) []string
	configure    func(c Config, pause string) error
}

// handlers are the runtime handlers that the suite's RuntimeClasses name.
var handlers = []string{"runc", "test-handler"}

var containerd = service{
	unit: "containerd.service", socket: base + "/c.sock",
	command: func(c Config) []string {
		return []string{c.Runtime.Containerd(), "--config", base + "/config.toml"}
	},
	configure: func(c Config, pause string) error {
		var config strings.Builder
		err := containerdConfig.Execute(&config, map[string]any{
			"At": at, "Shim": c.Runtime.Shim(), "Runc": c.Runtime.Runc(), "Debs": c.Debs, "Pause": pause,
			"Handlers": handlers,
		})
		const hosts = base + "/certs.d/_default"
		return errors.Join(err, os.MkdirAll(hosts, 0o755),
			os.WriteFile(hosts+"/hosts.toml", []byte("[host.\"http://"+images+"\"]\n  capabilities = [\"pull\", \"resolve\"]\n"), 0o644),
			os.WriteFile(base+"/config.toml", []byte(config.String()), 0o644))
	},
}

// crio has the configuration of package daemon, with the images of the node's registry and the
// node's network.
var crio = service{
	unit: "crio.service", socket: base + "/crio.sock",
	command: func(c Config) []string {
		return []string{
			"env", "CONTAINERS_STORAGE_CONF=" + base + "/storage.conf", c.Runtime.CRIO(),
			"--config", base + "/crio.conf", "--config-dir", base + "/conf.d", "--registries-conf", base + "/registries.conf",
		}
	},
	configure: func(c Config, pause string) error {
		if _, err := daemon.New(daemon.Config{Base: base, Components: c.Runtime, Image: image.DefaultRef}); err != nil {
			return err
		}
		var config strings.Builder
		fmt.Fprintf(&config, `[crio.image]
default_transport = "docker://"
pause_image = %q
pause_command = "/pause"
[crio.network]
network_dir = %q
plugin_dirs = [%q]
`, pause, at+"/cni", c.Debs+"/usr/lib/cni")
		for _, handler := range handlers[1:] {
			fmt.Fprintf(&config, "[crio.runtime.runtimes.%s]\nruntime_path = %q\nruntime_root = %q\nmonitor_cgroup = \"pod\"\n",
				handler, c.Runtime.Runc(), base+"/runc")
		}
		registries := fmt.Sprintf("[[registry]]\nprefix = \"registry.k8s.io\"\nlocation = %q\ninsecure = true\n", images)
		return errors.Join(os.WriteFile(filepath.Join(base, "conf.d/10-suite.conf"), []byte(config.String()), 0o644),
			os.WriteFile(base+"/registries.conf", []byte(registries), 0o644))
	},
}

var containerdConfig = template.Must(template.New("config.toml").Parse(`version = 3
root = '{{.At}}/c/root'
state = '{{.At}}/c/state'
imports = []
disabled_plugins = ['io.containerd.nri.v1.nri']
[grpc]
  address = '{{.At}}/c/c.sock'
[ttrpc]
  address = '{{.At}}/c/c.sock.ttrpc'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = '{{.At}}/c/certs.d'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '{{.Pause}}'
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
{{- range $handler := .Handlers}}
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{{$handler}}]
    runtime_type = 'io.containerd.runc.v2'
    runtime_path = '{{$.Shim}}'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{{$handler}}.options]
      BinaryName = '{{$.Runc}}'
      Root = '{{$.At}}/c/runc'
{{- end}}
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{{.Debs}}/usr/lib/cni']
    conf_dir = '{{.At}}/cni'
[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = '127.0.0.1'
  stream_server_port = '0'
[plugins.'io.containerd.internal.v1.opt']
  path = '{{.At}}/c/opt'
[plugins.'io.containerd.shim.v1.manager']
  socket_dir = '{{.At}}/c/s'
`))
