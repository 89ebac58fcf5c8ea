// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet136

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// EventDrivenPLEG is the feature gate that replaces the stock PLEG by this PLEG. With the gate off,
// as by default, the stock PLEG runs. The gate belongs to this package, so that a fork's list of
// features needs no patch.
const EventDrivenPLEG featuregate.Feature = "EventDrivenPLEG"

// since is the version of the gate: the oldest minor with an adapter, because the first alphas of a
// minor emulate the minor before, and refuse newer gates.
var since = version.MajorMinor(1, 36)

func init() {
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.AddVersioned(map[featuregate.Feature]featuregate.VersionedSpecs{
		EventDrivenPLEG: {{Version: since, Default: false, PreRelease: featuregate.Alpha}},
	}))
}

// Enabled reports whether the gate is on. The kubelet's configuration must have been applied
// before.
func Enabled() bool { return utilfeature.DefaultFeatureGate.Enabled(EventDrivenPLEG) }
