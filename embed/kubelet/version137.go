// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore && kubernetes1.37

package evented

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cache"
)

// The differences between the kubelets of the minor versions.

// Start starts the generator, which runs until ctx ends and logs to its logger, and returns. Only
// the first call does anything.
func (g *Generator) Start(ctx context.Context) { g.start(ctx) }

// RequestRelist has the pod read now.
func (g *Generator) RequestRelist(_ klog.Logger, podUID types.UID) {
	if podUID != "" { // which would mean all
		g.core.RequestRelist(cache.UID(podUID))
	}
}
