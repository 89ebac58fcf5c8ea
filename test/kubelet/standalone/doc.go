// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package standalone runs a kubelet without an API server: static pods from a folder, on any CRI
// runtime, beside whatever else the machine does.
//
// # Model
//
// A [Node] is a folder with everything that kubelets of one node share: manifests, root directory,
// logs, configuration. [Node.Start] starts a kubelet on it, as often as needed, of any version. The
// kubelet lives in a mount namespace of its own, in which the kernel settings that it insists on
// read as it wants them, /var/lib and /var/log are empty, and every other mount is read-only but
// the node's own folders and the cgroup that Config.CgroupRoot names. It changes nothing of the
// machine, not even by mistake: a kubelet that finds a container that it does not know and that has
// no log path removes the files of its own working directory
// (github.com/kubernetes/kubernetes/issues/107717), which would be the machine's root.
//
// # Concurrency
//
// A Node and its Kubelet are for one goroutine, but for the reading methods. A kubelet dies with
// the process that started it.
//
// # Errors
//
// Start fails if the kubelet does not become healthy in time, with the last lines of its log.
package standalone
