// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"golang.org/x/mod/semver"

	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/image"
)

var containerd = family{
	socket: "c.sock", dirs: "cni/bin cni/conf s",
	command: func(c Config) *exec.Cmd {
		return exec.Command(c.Components.Program("containerd"), "--config", filepath.Join(c.Base, "config.toml"))
	},
	files: containerdFiles,
	pack:  func(c Config) error { return image.PackFile(c.Base+"/image.tar", c.Components.Workload(), c.Image) },
	load: func(ctx context.Context, c Config) error {
		return Import(ctx, c.Components, "unix://"+c.Base+"/c.sock", c.Base+"/image.tar")
	},
}

// Import loads an image archive into the CRI's namespace of a running containerd, of any origin.
func Import(ctx context.Context, set components.Set, endpoint, archive string) error {
	args := []string{
		"-a", strings.TrimPrefix(endpoint, "unix://"), "--connect-timeout", "2s", "-n", "k8s.io", "images", "import", "--local", "--snapshotter", "overlayfs",
	}
	out, err := exec.CommandContext(ctx, set.Program("ctr"), append(args, archive)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import the workload image: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func containerdFiles(c Config) (map[string]string, error) {
	before := func(version string) bool { return semver.Compare(c.Components.Runtime.Version, version) < 0 }
	cri := "io.containerd.cri.v1.runtime"
	if before("v2.0.0") {
		cri = "io.containerd.grpc.v1.cri"
	}
	var out strings.Builder
	err := configTemplate.Execute(&out, map[string]any{
		"Base": c.Base, "Image": c.Image, "Shim": c.Components.Program("containerd-shim-runc-v2"), "Runc": c.Components.Runc(),
		"One": before("v2.0.0"), "CRI": cri,
		"BinDirs": !before("v2.1.0"), "SocketDir": !before("v2.3.0"),
	})
	return map[string]string{"config.toml": out.String()}, err
}

// configTemplate keeps all of containerd's state, sockets and mounts under a directory, so that two
// runtimes on a machine are independent. In containerd 1.7 one plugin holds what three hold since.
//
// restrict_oom_score_adj: without it a sandbox fails where CAP_SYS_RESOURCE is missing. socket_dir:
// before 2.3, without this field, shim sockets lie in a system directory, each removed with its
// shim.
var configTemplate = template.Must(template.New("config.toml").Parse(`version = {{if .One}}2{{else}}3{{end}}
root = '{{.Base}}/root'
state = '{{.Base}}/state'
imports = []
disabled_plugins = ['io.containerd.nri.v1.nri']

[grpc]
  address = '{{.Base}}/c.sock'

[ttrpc]
  address = '{{.Base}}/c.sock.ttrpc'

{{- if not .One}}

[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '{{.Image}}'
{{- if .SocketDir}}

[plugins.'io.containerd.shim.v1.manager']
  socket_dir = '{{.Base}}/s'
{{- end}}

[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = '127.0.0.1'
  stream_server_port = '0'
{{- end}}

[plugins.'{{.CRI}}']
{{- if .One}}
  sandbox_image = '{{.Image}}'
  stream_server_address = '127.0.0.1'
  stream_server_port = '0'
{{- end}}
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
{{- if .One}}
  [plugins.'{{.CRI}}'.containerd]
    snapshotter = 'overlayfs'
{{- end}}
  [plugins.'{{.CRI}}'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    runtime_path = '{{.Shim}}'
    [plugins.'{{.CRI}}'.containerd.runtimes.runc.options]
      BinaryName = '{{.Runc}}'
      Root = '{{.Base}}/runc'
  [plugins.'{{.CRI}}'.cni]
    {{if .BinDirs}}bin_dirs = ['{{.Base}}/cni/bin']{{else}}bin_dir = '{{.Base}}/cni/bin'{{end}}
    conf_dir = '{{.Base}}/cni/conf'

[plugins.'io.containerd.internal.v1.opt']
  path = '{{.Base}}/opt'
`))
