// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package evented puts the evented PLEG into a kubelet: [Generator] is the kubelet's
// pleg.PodLifecycleEventGenerator and [Cache] its pod cache. The package and the patch of the
// kubelet, kubelet.patch, are installed into a tree of Kubernetes by embed/install of the project
// evented-pleg, which also upgrades and removes them.
//
// # Model
//
// Nothing is converted: the generator's type parameter is the kubelet's own PodStatus. Reads go
// through the kubelet's runtime manager (GetPods, GetPod, GetPodStatus), claims come from its CRI
// client (GetContainerEvents). A claim's payload yields phases only and never becomes a status:
// the conversion reads files of the pod, which may block the generator, and a pod worker asks for
// a read anyway.
//
// The feature gate EventDrivenPLEG, off by default, decides. Off, [Wrap] changes nothing and New
// is not called: the kubelet is the stock one. Upstream's own gate EventedPLEG must stay off,
// because it makes the runtime manager take statuses from the runtime's unordered snapshots.
//
// # Concurrency
//
// All methods are safe for concurrent use. Start starts three goroutines, which own everything
// else, and Stop ends them. The channel of Watch is never closed, because the kubelet's sync loop
// would read nil events from it.
//
// # Errors
//
// New reports every missing part. Later failures appear in Healthy, in the error beside a pod's
// status, in Events on the node and in metrics.
package evented
