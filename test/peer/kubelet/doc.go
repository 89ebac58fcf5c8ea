// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Kubelet is the kubelet's own PLEG as a program for test/peer: its runtime manager, CRI client, pod cache, generic and evented PLEG, as they are in
// k8s.io/kubernetes, with the settings that the kubelet gives them and with its metrics registered. Nothing is logged.
//
// It is built twice from this folder: with go.mod against v1.36.3, and with -modfile=v137.mod -tags=v137 against v1.37.1.
package main
