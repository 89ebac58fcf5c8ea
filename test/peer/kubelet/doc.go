// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the kubelet's own PLEG as a driver for test/peer: its runtime manager, CRI
// client, pod cache, generic and evented PLEG, as in k8s.io/kubernetes, with the kubelet's settings
// and its metrics registered. Nothing is logged.
//
// Its test binary is built twice: with go.mod against v1.36.3, and with -modfile=v137.mod
// -tags=v137 against v1.37.1.
package kubelet
