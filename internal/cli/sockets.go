// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/evented-pleg/evented-pleg/internal/deadmount"
)

// RuntimeSockets are the usual sockets of kubelets' runtimes, the most usual first: containerd's,
// CRI-O's, cri-dockerd's, those of k3s and RKE2, of k0s and of MicroK8s.
var RuntimeSockets = []string{
	"/run/containerd/containerd.sock",
	"/run/crio/crio.sock",
	"/run/cri-dockerd.sock",
	"/run/k3s/containerd/containerd.sock",
	"/run/k0s/containerd.sock",
	"/var/snap/microk8s/common/run/containerd.sock",
}

// CheckEmptyEndpoint refuses an --endpoint that is given and empty: it is a shell's variable
// without a value, and another runtime would be taken. Variable is that of the environment which
// names the endpoint where the flag is left out.
func CheckEmptyEndpoint(flags *pflag.FlagSet, endpoint, variable string) error {
	if endpoint != "" || !flags.Changed("endpoint") {
		return nil
	}
	return Usagef("--endpoint is empty: name the runtime's socket, or leave the flag out for $%s and the usual sockets", variable)
}

// UsualEndpoint returns the endpoint of the first of the paths that is a socket. For want of one it
// is the first path at which this process may not look: who denies that is said when it is
// connected to. Else it is empty. A socket on a dead mount is none that can be used.
func UsualEndpoint(paths []string) string { return usualEndpoint(paths, os.Stat) }

func usualEndpoint(paths []string, stat func(string) (fs.FileInfo, error)) string {
	denied := ""
	for _, path := range paths {
		failed, answered := deadmount.Ask(path, func() error {
			info, err := stat(path)
			if err == nil && info.Mode().Type() != fs.ModeSocket {
				return fs.ErrInvalid
			}
			return err
		})
		switch {
		case !answered:
		case failed == nil:
			return "unix://" + path
		case denied == "" && errors.Is(failed, fs.ErrPermission):
			denied = "unix://" + path
		}
	}
	return denied
}

// CheckSocket refuses an endpoint at whose path something else than a socket is. A path at which
// nothing is, or nothing that can be looked at, may be that of a runtime which is not well.
func CheckSocket(endpoint string) error {
	path := strings.TrimPrefix(endpoint, "unix://")
	info, _ := deadmount.Ask(path, func() fs.FileInfo {
		is, err := os.Stat(path)
		if err != nil {
			return nil
		}
		return is
	})
	if info == nil || info.Mode().Type() == fs.ModeSocket {
		return nil
	}
	kind := "a special file"
	switch {
	case info.IsDir():
		kind = "a directory"
	case info.Mode().IsRegular():
		kind = "a regular file"
	}
	return Usagef("--endpoint: %s is %s, not a socket: name the runtime's socket", path, kind)
}

// CheckMount refuses an endpoint about whose path the kernel gives no answer. None is none.
func CheckMount(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	err := deadmount.Check(strings.TrimPrefix(endpoint, "unix://"))
	if err != nil {
		return fmt.Errorf("--endpoint: %w", err)
	}
	return nil
}
