// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/pflag"

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
