// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package embed holds what is the same for every kubelet that the evented PLEG is put into: claims
// from the kubelet's CRI client, reports through its recorder, metrics in its registry. The nested
// modules beside it, kubelet136, kubelet137 and kubelet138, are the adapters for one Kubernetes
// version each: they need that version of k8s.io/kubernetes, this package does not. What they have
// in common is written in kubelet136 and mirrored by go generate.
//
// # Model
//
// A generator inside a kubelet differs from a standalone one in its source only: it reads through
// the kubelet's runtime manager and keeps the kubelet's own PodStatus, so that the kubelet sees
// exactly what the stock PLEG would have shown it.
//
// # Concurrency
//
// Everything is safe for concurrent use. A stream owns one goroutine while it is ranged over, and
// none when that has ended.
//
// # Errors
//
// A stream ends with io.EOF, with an error that matches pleg.ErrNoEvents, or with the CRI client's
// error.
package embed

//go:generate go run ./internal/mirror
