// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// abilities writes the features in Status of the runtime and its handlers, without the conditions,
// which depend on the machine's network.
func (r *recording) abilities() {
	answer, err := r.Status(r.ctx, &runtimeapi.StatusRequest{})
	r.called("status", err)
	handlers := slices.SortedFunc(slices.Values(answer.GetRuntimeHandlers()), func(a, b *runtimeapi.RuntimeHandler) int { return strings.Compare(a.Name, b.Name) })
	for _, h := range handlers {
		r.line("handler %q: recursive read-only mounts %v, user namespaces %v", h.Name, h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces())
	}
	f := answer.GetFeatures()
	r.line("features: policy of supplemental groups %v, user namespaces in the host's network %v, mount options %v",
		f.GetSupplementalGroupsPolicy(), f.GetUserNamespacesHostNetwork(), f.GetMountOptions())
}

// users writes the user of a container, by its request. Neither the image nor its containers have a
// file of users.
func (r *recording) users(pod *crikit.Pod) {
	id := func(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }
	groups := []int64{4000, 3000, 2000, 4000}
	for _, who := range []struct {
		name     string
		security *runtimeapi.LinuxContainerSecurityContext
	}{
		{"nobody-said", nil},
		{"user", &runtimeapi.LinuxContainerSecurityContext{RunAsUser: id(1000)}},
		{"user-and-group", &runtimeapi.LinuxContainerSecurityContext{RunAsUser: id(1000), RunAsGroup: id(2000)}},
		{"groups", &runtimeapi.LinuxContainerSecurityContext{SupplementalGroups: groups}},
		{"all", &runtimeapi.LinuxContainerSecurityContext{RunAsUser: id(1000), RunAsGroup: id(2500), SupplementalGroups: groups}},
		{"strict", &runtimeapi.LinuxContainerSecurityContext{
			RunAsUser: id(1000), RunAsGroup: id(2500), SupplementalGroups: groups,
			SupplementalGroupsPolicy: runtimeapi.SupplementalGroupsPolicy_Strict,
		}},
		{"group-alone", &runtimeapi.LinuxContainerSecurityContext{RunAsGroup: id(2000)}},
	} {
		id := r.create(pod, crikit.Spec{Name: who.name, Args: []string{"sleep", "1h"}, Security: who.security})
		if id == "" {
			continue
		}
		answer, err := r.ContainerStatus(r.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			r.called("status", err)
		}
		if user := answer.GetStatus().GetUser().GetLinux(); user == nil {
			r.line("%s: no user", who.name)
		} else {
			r.line("%s: user %d, group %d, supplemental groups %v", who.name, user.Uid, user.Gid, user.SupplementalGroups)
		}
		r.called("remove", r.Remove(r.ctx, id))
	}
}

// absentImage requests a container of an image without a pull.
func (r *recording) absentImage(pod *crikit.Pod) {
	const name = "example.local/never-pulled:1"
	answer, err := r.Images().ImageStatus(r.ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	r.called("image status", err)
	r.line("there is one: %v", answer.GetImage() != nil)
	r.create(pod, crikit.Spec{Name: "without-image", Image: name, Args: []string{"sleep", "1h"}})
}

// byDevice are the metrics with a value for each disk read by the container.
var byDevice = []string{
	"container_blkio_device_usage_total", "container_fs_reads_bytes_total", "container_fs_reads_total",
	"container_fs_writes_bytes_total", "container_fs_writes_total",
}

// metrics writes the metrics there are, and those of the pod and its containers, with their labels,
// without values and without values of the machine's disks.
func (r *recording) metrics(pod *crikit.Pod) {
	described, err := r.ListMetricDescriptors(r.ctx, &runtimeapi.ListMetricDescriptorsRequest{})
	r.called("descriptors", err)
	keys := map[string][]string{}
	var rows []metricRow
	for _, d := range described.GetDescriptors() {
		keys[d.Name] = d.LabelKeys
		rows = append(rows, metricRow{name: d.Name, labels: d.LabelKeys})
	}
	r.tellMetrics("metrics", rows)
	list, err := r.ListPodSandboxMetrics(r.ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
	r.called("metrics of all pods", err)
	for _, p := range list.GetPodMetrics() {
		if p.PodSandboxId != pod.SandboxID {
			continue
		}
		r.tellMetrics("of the sandbox", r.metricRows(p.Metrics, keys))
		byName := map[string][]*runtimeapi.Metric{}
		for _, c := range p.ContainerMetrics {
			byName[r.nameOf(c.ContainerId)] = c.Metrics
		}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			r.tellMetrics("of "+name, r.metricRows(byName[name], keys))
		}
	}
}

// A metricRow is a metric in a transcript.
type metricRow struct {
	name   string
	labels []string
}

// metricRows are somebody's metrics, each with its kind and its labels, by the keys of its
// descriptor.
func (r *recording) metricRows(metrics []*runtimeapi.Metric, keys map[string][]string) []metricRow {
	var rows []metricRow
	for _, m := range metrics {
		if slices.Contains(byDevice, m.Name) {
			continue
		}
		row := metricRow{name: fmt.Sprintf("%s %v", m.Name, m.MetricType)}
		for i, value := range m.LabelValues {
			key := "without a key"
			if i < len(keys[m.Name]) {
				key = keys[m.Name][i]
			}
			row.labels = append(row.labels, fmt.Sprintf("%s=%q", key, r.nameless(value)))
		}
		rows = append(rows, row)
	}
	return rows
}

// nameless replaces the parts that vary between runtimes.
func (r *recording) nameless(value string) string {
	value = strings.ReplaceAll(value, r.Namespace, "NAMESPACE")
	value = strings.ReplaceAll(value, r.Options.Image, "IMAGE")
	for id, name := range r.names {
		value = strings.ReplaceAll(value, id, "ID of "+name)
	}
	return value
}

// tellMetrics writes metrics sorted, and their common labels once.
func (r *recording) tellMetrics(whose string, rows []metricRow) {
	if len(rows) == 0 {
		r.line("%s: none", whose)
		return
	}
	common := slices.DeleteFunc(slices.Clone(rows[0].labels), func(label string) bool {
		return slices.ContainsFunc(rows, func(row metricRow) bool { return !slices.Contains(row.labels, label) })
	})
	var lines []string
	for _, row := range rows {
		own := slices.DeleteFunc(slices.Clone(row.labels), func(label string) bool { return slices.Contains(common, label) })
		lines = append(lines, strings.Join(append([]string{row.name}, own...), " "))
	}
	slices.Sort(lines)
	r.line("%s: %d with %s", whose, len(rows), strings.Join(common, " "))
	for _, line := range lines {
		r.line("%s: %s", whose, line)
	}
}
