// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/evented-pleg/evented-pleg/embed"
)

// Enabled reports whether the feature gate EventDrivenPLEG is on. The kubelet's configuration must
// have been applied before.
func Enabled() bool { return utilfeature.DefaultFeatureGate.Enabled(features.EventDrivenPLEG) }

// Wrap returns the pod cache and the CRI client for the kubelet: with the gate off the arguments,
// with the gate on a [*Cache] and a client that tells the generator of the kubelet's own calls.
func Wrap(
	cache kubecontainer.Cache,
	client internalapi.RuntimeService,
) (kubecontainer.Cache, internalapi.RuntimeService) {
	if !Enabled() {
		return cache, client
	}
	return newCache(), embed.NewCalls(client)
}

// caller is a client returned by [Wrap].
type caller interface {
	TellCalls(embed.Calling)
	SandboxOf(id string) string
}
