// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ctrd

import (
	"strings"
	"text/template"
)

// configTemplate keeps all of containerd's state, sockets and mounts under one
// directory, so that two runtimes on one machine do not know of each other.
//
// restrict_oom_score_adj: without it a sandbox fails where CAP_SYS_RESOURCE is
// missing. socket_dir: without it shim sockets land in a system directory.
var configTemplate = template.Must(template.New("config.toml").Parse(`version = 3
root = '{{.Base}}/root'
state = '{{.Base}}/state'
imports = []
disabled_plugins = ['io.containerd.nri.v1.nri']

[grpc]
  address = '{{.Base}}/c.sock'

[ttrpc]
  address = '{{.Base}}/c.sock.ttrpc'

[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '{{.Image}}'

[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  enable_unprivileged_ports = false
  enable_unprivileged_icmp = false
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    runtime_path = '{{.Shim}}'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = '{{.Runc}}'
      Root = '{{.Base}}/runc'
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{{.Base}}/cni/bin']
    conf_dir = '{{.Base}}/cni/conf'

[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = '127.0.0.1'
  stream_server_port = '0'

[plugins.'io.containerd.internal.v1.opt']
  path = '{{.Base}}/opt'

[plugins.'io.containerd.shim.v1.manager']
  socket_dir = '{{.Base}}/s'
`))

func configFor(c Config) (string, error) {
	var out strings.Builder
	err := configTemplate.Execute(&out, map[string]string{
		"Base": c.Base, "Image": c.Image, "Shim": c.Components.Shim(), "Runc": c.Components.Runc(),
	})
	return out.String(), err
}
