// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package components names the programs to build: go build k8s.io/kubernetes/cmd/kube-apiserver,
// and ./etcd.
package components

import _ "k8s.io/kubernetes/cmd/kube-apiserver/app"
