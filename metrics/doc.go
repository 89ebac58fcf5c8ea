// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package metrics serves the counts, times and state of a pod lifecycle event generator as
// Prometheus metrics of k8s.io/component-base.
//
// # Model
//
// A generator reports with short names ("relists", "latency"); this package owns the served form:
// metric names, help, stability, buckets and labels. There are two groups of names:
//
//   - the kubelet's own (kubelet_pleg_*, kubelet_evented_pleg_*, kubelet_running_*). A kubelet
//     registers these names itself, so a program whose registry has a kubelet's must leave them
//     out: see [Options]. Each has a twin under the prefix evented_pleg_, which is then served in
//     its place, so that nothing is measured in vain. A generator inside a kubelet does not need
//     this package: embed/kubelet feeds the kubelet's own metrics.
//   - this project's (evented_pleg_*), and kube_pod_missed_events and
//     kubelet_evented_pleg_notifications_received, which KEP-3386 asks for.
//
// Counters and histograms are pushed with [Metrics.Add] and [Metrics.Observe]. Gauges, and the
// counts of a CRI client, are pulled: a scrape asks the sources given to [Metrics.SetGauges], so
// the values are right even while a relist hangs. Values that no source yields are not served.
//
// [NewEvents] does the same for a recorder of Kubernetes Events (event_recorder_*).
//
// A registry has a single [Metrics], nothing is registered globally, and two generators in a
// process need two registries. A generator that takes over from one that has ended keeps the set,
// and SetGauges is called again. All names with their meaning are in docs/metrics.md.
//
// # Concurrency
//
// All methods may be called from anywhere at any time. Add and Observe take no lock of this package
// and do not block. The sources are called from the goroutine of a scrape, and from several of them
// if scrapes overlap.
//
// # Errors
//
// Only [New] and [NewEvents] fail: when there is no registry, or a name is taken in it. Reports of
// unknown names are ignored, as the generator's contract asks, because a newer generator may know
// more than an older set of metrics.
package metrics
