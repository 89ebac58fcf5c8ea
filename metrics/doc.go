// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package metrics serves what a pod lifecycle event generator counts, times and knows as Prometheus
// metrics of k8s.io/component-base.
//
// # Model
//
// A generator reports with short names ("relists", "latency"); this package owns what the outside
// sees: metric names, help, stability, buckets and labels. There are two groups of names:
//
//   - the kubelet's own (kubelet_pleg_*, kubelet_evented_pleg_*, kubelet_running_*). A kubelet
//     registers them itself, so that a generator inside a kubelet must leave them out: see
//     [Options]. Each of them has a twin under the prefix evented_pleg_, which is served in its
//     place then, so that nothing is measured in vain.
//   - this project's (evented_pleg_*), and kube_pod_missed_events and
//     evented_pleg_notifications_received, which KEP-3386 asks for.
//
// Counters and histograms are pushed with [Metrics.Add] and [Metrics.Observe]. Gauges, and the
// counts of a CRI client, are pulled: a scrape asks the sources that [Metrics.SetGauges] was given,
// so that they are right even while a relist hangs. What no source yields is not served.
//
// [NewEvents] does the same for a recorder of Kubernetes Events (event_recorder_*).
//
// There is one [Metrics] a registry, nothing is registered globally, and two generators in one
// process need two registries. All names with their meaning are in docs/metrics.md.
//
// # Concurrency
//
// All methods may be called from anywhere at any time. Add and Observe take no lock of this package
// and do not block. The sources are called from the goroutine of a scrape, and from several of them
// if scrapes overlap.
//
// # Errors
//
// Only [New] and [NewEvents] fail: when one of the names is taken in the registry. Reports of names
// that are not known are ignored, as the generator's contract asks, because a newer generator may
// know more than an older set of metrics.
package metrics
