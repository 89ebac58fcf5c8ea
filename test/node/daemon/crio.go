// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/image"
)

// crio is CRI-O. The image is an OCI layout in the directory of the image's name, found by CRI-O's
// own PullImage from its working directory: no registry, no other tool.
var crio = family{
	socket: "crio.sock", logs: "log",
	dirs:  "attach auth cdi cni/bin cni/conf conf.d exits hooks keys log ns pol.d root runroot tmp",
	files: "crio.conf registries.conf policy.json storage.conf",
	command: func(c Config) *exec.Cmd {
		cmd := exec.Command(
			c.Components.Program("crio"),
			"--config",
			filepath.Join(c.Base, "crio.conf"),
			"--config-dir",
			filepath.Join(c.Base, "conf.d"),
		)
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
