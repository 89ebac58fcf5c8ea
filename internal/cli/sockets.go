// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cli

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
