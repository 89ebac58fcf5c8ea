// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package standalone runs a kubelet without an API server: static pods from a folder, on any CRI
// runtime, beside whatever else the machine does.
//
// # Model
//
// A [Node] is a folder with everything shared by kubelets of a node: manifests, root directory,
// logs, configuration. [Node.Start] starts a kubelet of any version, as often as needed. The
// kubelet lives in its own mount namespace, in which its required kernel settings read as wanted,
// /var/lib, /var/log and /var/cache are empty, and every other mount is read-only but the node's
// own folders and the cgroup named by Config.CgroupRoot (version 2: the cgroup namespace). It
// changes nothing of the machine, not even by mistake: a kubelet that finds an unknown container
// without a log path removes the files of its own working directory
// (github.com/kubernetes/kubernetes/issues/107717), which would be the machine's root.
//
// # Concurrency
//
// A Node and its Kubelet are for a single goroutine, except for the reading methods. A kubelet dies
// with its parent process.
//
// # Errors
//
// Start fails if the kubelet does not become healthy in time, with the last lines of its log.
package standalone
