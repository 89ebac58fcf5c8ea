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

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/image"
)

// crio is CRI-O. The image is an OCI layout in the directory of the image's name, found by CRI-O's
// own PullImage from its working directory: no registry, no other tool.
var crio = family{
	socket: "crio.sock", logs: "log",
	dirs:  "attach auth cdi cni/bin cni/conf conf.d exits hooks keys log ns pol.d root runroot tmp",
	files: crioFiles,
	command: func(c Config) *exec.Cmd {
		cmd := exec.Command(c.Components.Program("crio"), "--config", filepath.Join(c.Base, "crio.conf"), "--config-dir", filepath.Join(c.Base, "conf.d"))
		cmd.Env = []string{
			"CONTAINER_REGISTRIES_CONF=" + filepath.Join(c.Base, "registries.conf"),
			"CONTAINERS_STORAGE_CONF=" + filepath.Join(c.Base, "storage.conf"),
			"TMPDIR=" + filepath.Join(c.Base, "tmp"),
		}
		return cmd
	},
	pack: func(c Config) error {
		name, _, _ := strings.Cut(c.Image, ":")
		return image.PackLayout(filepath.Join(c.Base, name), c.Components.Workload(), c.Image)
	},
	load: func(ctx context.Context, c Config) error {
		client, err := crikit.Dial(crikit.Options{Endpoint: "unix://" + filepath.Join(c.Base, "crio.sock")})
		if err != nil {
			return err
		}
		defer client.Close()
		_, err = client.Images().PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: c.Image}})
		return err
	},
}

func crioFiles(c Config) (map[string]string, error) {
	conmon, err := components.Conmon()
	if err != nil {
		return nil, err
	}
	files := map[string]string{
		"registries.conf": "unqualified-search-registries = []\n",
		"policy.json":     `{"default": [{"type": "insecureAcceptAnything"}]}` + "\n",
		"storage.conf": fmt.Sprintf("[storage]\ndriver = %q\ngraphroot = %q\nrunroot = %q\n", "overlay",
			filepath.Join(c.Base, "root"), filepath.Join(c.Base, "runroot")),
	}
	var out strings.Builder
	err = crioTemplate.Execute(&out, map[string]any{
		"Base": c.Base, "Image": c.Image, "Entrypoint": image.Entrypoint, "Pinns": c.Components.Program("pinns"), "Runc": c.Components.Runc(), "Conmon": conmon,
		"Events": c.Components.Runtime.Traits.Events,
	})
	files["crio.conf"] = out.String()
	return files, err
}

// crioTemplate keeps all of CRI-O's state, sockets and mounts under a directory.
//
// drop_infra_ctr stays at its default: a pod gets a process of its own only with a shared PID
// namespace. conmon_cgroup "pod": cgroupfs accepts nothing else. disable_hostport_mapping: the
// mapping needs iptables or nftables, and our pods have the host's network.
var crioTemplate = template.Must(template.New("crio.conf").Parse(`[crio]
root = "{{.Base}}/root"
runroot = "{{.Base}}/runroot"
storage_driver = "overlay"
storage_option = []
log_dir = "{{.Base}}/log"
version_file = "{{.Base}}/version"
version_file_persist = ""
clean_shutdown_file = "{{.Base}}/clean.shutdown"
internal_wipe = false

[crio.api]
listen = "{{.Base}}/crio.sock"
stream_address = "127.0.0.1"
stream_port = "0"

[crio.runtime]
enable_pod_events = {{.Events}}
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
default_runtime = "runc"
container_exits_dir = "{{.Base}}/exits"
container_attach_socket_dir = "{{.Base}}/attach"
namespaces_dir = "{{.Base}}/ns"
pinns_path = "{{.Pinns}}"
hooks_dir = ["{{.Base}}/hooks"]
cdi_spec_dirs = ["{{.Base}}/cdi"]
decryption_keys_path = "{{.Base}}/keys"
irqbalance_config_file = ""
irqbalance_config_restore_file = "disable"
apparmor_profile = "unconfined"
disable_hostport_mapping = true

[crio.runtime.runtimes.runc]
runtime_path = "{{.Runc}}"
runtime_type = "oci"
runtime_root = "{{.Base}}/runc"
monitor_path = "{{.Conmon}}"
monitor_cgroup = "pod"

[crio.image]
default_transport = "oci:"
namespaced_auth_dir = "{{.Base}}/auth"
pause_image = "{{.Image}}"
pause_command = "{{.Entrypoint}}"
signature_policy = "{{.Base}}/policy.json"
signature_policy_dir = "{{.Base}}/pol.d"
big_files_temporary_dir = "{{.Base}}/tmp"

[crio.network]
network_dir = "{{.Base}}/cni/conf"
plugin_dirs = ["{{.Base}}/cni/bin"]

[crio.metrics]
enable_metrics = false

[crio.nri]
enable_nri = false
`))
