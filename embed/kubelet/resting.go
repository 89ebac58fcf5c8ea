// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/kubernetes/pkg/features"

	"github.com/evented-pleg/evented-pleg/embed"
	"github.com/evented-pleg/evented-pleg/embed/changes"
)

// RestingHousekeeping returns the rounds of the kubelet's housekeeping, by which it rests while
// neither what is given nor the runtime's lists have changed. It is nil with the feature gate
// EventDrivenHousekeeping off, and housekeeping never rests. While lists are not served from memory
// it does not rest either: nobody knows then whether they have changed.
func RestingHousekeeping(client internalapi.RuntimeService, counted ...any) *changes.Rounds {
	s, ok := client.(*embed.Service)
	if !ok || !utilfeature.DefaultFeatureGate.Enabled(features.EventDrivenHousekeeping) {
		return nil
	}
	sources := []changes.Source{s.Standing}
	for _, it := range counted {
		sources = append(sources, changes.Of(it))
	}
	return changes.NewRounds(changes.Longest, sources...)
}
