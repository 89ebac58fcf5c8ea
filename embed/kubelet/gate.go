// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// Feature gates. They belong to this package, so that a fork's list of features needs no patch.
const (
	// EventDrivenPLEG replaces the stock PLEG by this PLEG. Off by default.
	EventDrivenPLEG featuregate.Feature = "EventDrivenPLEG"
	// EventDrivenPLEGServeLists answers the kubelet's lists, the runtime's version, and what the log
	// manager and the image collector ask of containers, from memory. On by default; without
	// EventDrivenPLEG it has no effect.
	EventDrivenPLEGServeLists featuregate.Feature = "EventDrivenPLEGServeLists"
	// EventDrivenPLEGReadByID reads the statuses of a pod's known containers without a list of the pod
	// before. On by default; without EventDrivenPLEG it has no effect.
	EventDrivenPLEGReadByID featuregate.Feature = "EventDrivenPLEGReadByID"
)

// since is the version of the gates: the oldest minor supported, because the first alphas of a
// minor emulate the minor before, and refuse newer gates.
var since = version.MajorMinor(1, 36)

func init() {
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.AddVersioned(map[featuregate.Feature]featuregate.VersionedSpecs{
		EventDrivenPLEG:           {{Version: since, Default: false, PreRelease: featuregate.Alpha}},
		EventDrivenPLEGServeLists: {{Version: since, Default: true, PreRelease: featuregate.Beta}},
		EventDrivenPLEGReadByID:   {{Version: since, Default: true, PreRelease: featuregate.Beta}},
	}))
}

// Enabled reports whether the gate is on. The kubelet's configuration must have been applied
// before.
func Enabled() bool { return utilfeature.DefaultFeatureGate.Enabled(EventDrivenPLEG) }
