// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet136

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// EventDrivenPLEG is the feature gate that puts this PLEG in the place of the stock one, which
// stays and runs when the gate is off, as by default. It belongs to this package, so that a fork's
// list of features needs no patch.
const EventDrivenPLEG featuregate.Feature = "EventDrivenPLEG"

// since is the version of the gate: the oldest minor that has an adapter, because the first alphas of
// a minor emulate the one before it, and refuse what is newer.
var since = version.MajorMinor(1, 36)

func init() {
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.AddVersioned(map[featuregate.Feature]featuregate.VersionedSpecs{
		EventDrivenPLEG: {{Version: since, Default: false, PreRelease: featuregate.Alpha}},
	}))
}

// Enabled says whether the gate is on. It must not be asked before the kubelet's configuration was
// applied.
func Enabled() bool { return utilfeature.DefaultFeatureGate.Enabled(EventDrivenPLEG) }
