// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// Enabled reports whether the feature gate EventDrivenPLEG is on. The kubelet's configuration must
// have been applied before.
func Enabled() bool { return utilfeature.DefaultFeatureGate.Enabled(features.EventDrivenPLEG) }

// servesLists reports whether lists are answered from memory.
func servesLists() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.EventDrivenPLEGServeLists)
}
