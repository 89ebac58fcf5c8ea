// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/image"
)

var containerd = family{
	socket: "c.sock", dirs: "cni/bin cni/conf s", files: "config.toml",
	command: func(c Config) *exec.Cmd {
		return exec.Command(
			c.Components.Program("containerd"),
			"--config",
			filepath.Join(c.Base, "config.toml"),
		)
	},
	pack: func(c Config) error { return image.PackFile(c.Base+"/image.tar", c.Components.Workload(), c.Image) },
	load: func(ctx context.Context, c Config) error {
		return Import(ctx, c.Components, "unix://"+c.Base+"/c.sock", c.Base+"/image.tar")
	},
}

// Import loads an image archive into the CRI's namespace of a running containerd, of any origin.
func Import(ctx context.Context, set components.Set, endpoint, archive string) error {
	args := []string{
		"-a",
		strings.TrimPrefix(endpoint, "unix://"),
		"--connect-timeout",
		"2s",
		"-n",
		"k8s.io",
		"images",
		"import",
		"--local",
		"--snapshotter",
		"overlayfs",
	}
	out, err := exec.CommandContext(ctx, set.Program("ctr"), append(args, archive)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import the workload image: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
