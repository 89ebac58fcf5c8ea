// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore && kubernetes1.36

package evented

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"

	"github.com/evented-pleg/evented-pleg/cache"
)

// The differences between the kubelets of the minor versions.

// Start starts the generator and returns. Only the first call does anything.
func (g *Generator) Start() { g.start(context.Background()) }

// RequestRelist has the pod read now, if the feature gate PLEGOnDemandRelist is on.
func (g *Generator) RequestRelist(podUID types.UID) {
	if podUID != "" && utilfeature.DefaultFeatureGate.Enabled(features.PLEGOnDemandRelist) {
		g.core.RequestRelist(cache.UID(podUID))
	}
}
