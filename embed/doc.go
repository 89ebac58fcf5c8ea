// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package embed holds the parts of the evented PLEG common to all kubelets: claims from the
// kubelet's CRI client, reports through its recorder, metrics in its registry. The folder kubelet
// has the adapter, which needs k8s.io/kubernetes: build constraints keep the adapter out of every
// build here. The command install puts the adapter and the packages behind it, this one too, into
// a source tree of Kubernetes, where they are built and tested.
//
// # Model
//
// A generator inside a kubelet differs from a standalone generator only in its source: reads go
// through the kubelet's runtime manager and keep the kubelet's own PodStatus, so the kubelet sees
// exactly the statuses of the stock PLEG.
//
// # Concurrency
//
// Everything is safe for concurrent use. A stream owns a single goroutine while ranged over, and
// none afterwards.
//
// # Errors
//
// A stream ends with io.EOF, with an error that matches pleg.ErrNoEvents, or with the CRI client's
// error.
package embed
