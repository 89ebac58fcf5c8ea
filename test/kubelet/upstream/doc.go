// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package upstream runs the unmodified node e2e tests of a release of Kubernetes on several
// kubelets at the same time, each on a real containerd or CRI-O, and compares them spec by spec.
//
// # Model
//
// A column is a kubelet, a part a selection of specs, and a [Node] the run of a part on a column:
// mount, PID, network, UTS, IPC and cgroup namespaces of its own, with / read-only. In them
// [RunNode] sets up mounts, cgroups and network, and [RunSuite] starts a registry of images,
// the runtime and ginkgo. All nodes of a run have the same seed.
//
// No systemd is needed: the script units.sh, called systemd-run, systemctl, journalctl or sudo,
// plays that part. Images are made of the suite's own programs, Debian's busybox, and bash, curl
// and hostname of the machine; stand-ins are named in images.go.
//
// # Limits
//
// Root, and runc, busybox-static and containernetworking-plugins from apt. Specs that
// need D-Bus (the runtime stopped through systemd, graceful shutdown), NFS, GPUs, AppArmor or swap
// are not selected.
//
// # Concurrency
//
// Nodes share nothing writable.
//
// # Errors
//
// Failed specs are results. An error is a node without a report; its folder has the log.
package upstream
