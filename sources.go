// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventedpleg holds the sources of the packages of this module that become packages of a
// Kubernetes tree, for the installer embed/install, which has no repository beside it.
package eventedpleg

import "embed"

// Sources are the Go files of cache, pleg and cri/criphase, tests included.
//
//go:embed cache/*.go pleg/*.go cri/criphase/*.go
var Sources embed.FS
