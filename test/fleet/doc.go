// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package fleet tests deploy/, `pleg-bench fleet` and pleg-agent on a cluster of Kubernetes.
//
// # Model
//
// The tests with the tag e2e make the cluster on this machine: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler and Prometheus in a network of their own, and three nodes
// in namespaces of their own (package machine of test/kubelet), each with a kubelet on a runtime
// and a second runtime for the loads of `pleg-bench fleet run`: containerd on n1 and n2, CRI-O on
// n3. The programs come from the module registry and from Debian's packages; none is installed but
// conmon.
//
//	fleet.test (supervisor, and first process of the run's namespaces)
//	  └─ fleet.test (prepares: builds, packages, images)
//	       └─ fleet.test (tests, in the cluster's network)
//	            ├─ etcd, API server, controller manager, scheduler, Prometheus
//	            └─ node n1, n2, n3: first process of the node's namespaces
//	                 └─ fleet.test (node) ── proxy on the watched socket
//	                      ├─ kubelet ── runtime ── pods
//	                      └─ runtime beside
//
// The watch and the agent of each node read through a proxy (package internal/criproxy), which
// drops the events of exits on one node, and hangs its lists. TestTrouble puts a hostile runtime
// (package internal/hostile/runtime) between this proxy and the runtime. TestStored makes no
// cluster: it has a runtime of each kind beside an API server.
//
// # Requirements
//
// Root, cgroups of version 1, overlayfs, Go, a C compiler, ip, and Debian's package registry.
package fleet
