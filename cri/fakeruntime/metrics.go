// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// MetricSet says which metrics ListMetricDescriptors describes and ListPodSandboxMetrics lists.
type MetricSet uint8

const (
	// MetricsUnimplemented: both calls answer Unimplemented (containerd before 2.2).
	MetricsUnimplemented MetricSet = iota
	// MetricsContainerd: 49 metrics, of the running containers of ready sandboxes, and of the
	// network of those with a network.
	MetricsContainerd
	// MetricsCRIO: the only metric of CRI-O without further configuration, of the containers that
	// have not ended.
	MetricsCRIO
)

// A metric is described by a profile's runtime. The values are invented, like those of the stats.
type metric struct {
	name, help string
	labels     []string // after those common to all metrics of the runtime
	// ofPod: a metric of the network, which belongs to a sandbox; any other belongs to a container.
	ofPod bool
	gauge bool
	// values are the values of a container or a sandbox: none, or a value for each set of its own
	// labels. Nil: none for all, as for metrics of a disk, which virtual containers never read.
	values func(*measured) []labelled
}

// measured is the subject of the listed metrics.
type measured struct {
	id        string
	now       int64 // the runtime's clock
	startedAt int64
	cpu       uint64 // nanoseconds
	memory    uint64 // bytes
	resources *runtimeapi.LinuxContainerResources
}

// labelled is a value with the values of the metric's own labels.
type labelled struct {
	labels []string
	value  uint64
}

// plain is a metric without labels of its own.
func plain(value func(*measured) uint64) func(*measured) []labelled {
	return func(m *measured) []labelled { return []labelled{{value: value(m)}} }
}

func always(value uint64) func(*measured) []labelled {
	return plain(func(*measured) uint64 { return value })
}

// cpuShare is a part of the CPU time, in seconds.
func cpuShare(parts uint64) func(*measured) []labelled {
	return plain(func(m *measured) uint64 { return m.cpu / parts / 1e9 })
}

// memoryShare is a part of the memory in use.
func memoryShare(parts uint64) func(*measured) []labelled {
	return plain(func(m *measured) uint64 { return m.memory / parts })
}

// ofRootFS is a metric of a container's only file system.
func ofRootFS(value uint64) func(*measured) []labelled {
	return func(*measured) []labelled { return []labelled{{[]string{"/"}, value}} }
}

// ofNetwork is a counter of a sandbox's only interface.
func ofNetwork(number uint64) func(*measured) []labelled {
	return func(m *measured) []labelled { return []labelled{{[]string{"eth0"}, hashOf(number, m.id) % (1 << 30)}} }
}

// limit is a resource of the container, if set.
func limit(of func(*runtimeapi.LinuxContainerResources) int64) func(*measured) []labelled {
	return func(m *measured) []labelled {
		if set := of(m.resources); set > 0 {
			return []labelled{{value: uint64(set)}}
		}
		return nil
	}
}

func lastSeen(m *measured) uint64 { return uint64(max(m.now, 0) / 1e9) }

// swapLimit is containerd's: it limits memory and swap together to the memory's limit by default.
func swapLimit(r *runtimeapi.LinuxContainerResources) int64 {
	return max(r.GetMemorySwapLimitInBytes(), r.GetMemoryLimitInBytes())
}

var containerdMetrics = []metric{
	{name: "container_blkio_device_usage_total", help: "Bytes moved to and from a disk.", labels: []string{"device", "major", "minor", "operation"}},
	{name: "container_cpu_cfs_periods_total", help: "Periods of the CPU quota.", values: always(0)},
	{name: "container_cpu_cfs_throttled_periods_total", help: "Periods of the CPU quota that were cut short.", values: always(0)},
	{name: "container_cpu_cfs_throttled_seconds_total", help: "Seconds spent waiting for the CPU quota.", values: always(0)},
	{name: "container_cpu_system_seconds_total", help: "CPU time of the kernel, in seconds.", values: cpuShare(4)},
	{name: "container_cpu_usage_seconds_total", help: "CPU time, in seconds.", values: cpuShare(1)},
	{name: "container_cpu_user_seconds_total", help: "CPU time of the programs, in seconds.", values: cpuShare(2)},
	{name: "container_file_descriptors", help: "Open files.", gauge: true, values: always(8)},
	{name: "container_fs_inodes_free", help: "Free inodes.", labels: []string{"device"}, gauge: true, values: ofRootFS(1 << 20)},
	{name: "container_fs_inodes_total", help: "Inodes.", labels: []string{"device"}, gauge: true, values: ofRootFS(1 << 21)},
	{name: "container_fs_limit_bytes", help: "Size of the file system.", labels: []string{"device"}, gauge: true, values: ofRootFS(1 << 34)},
	{name: "container_fs_reads_bytes_total", help: "Bytes read from a disk.", labels: []string{"device"}},
	{name: "container_fs_reads_total", help: "Reads of a disk.", labels: []string{"device"}},
	{name: "container_fs_usage_bytes", help: "Bytes in use of the file system.", labels: []string{"device"}, gauge: true, values: ofRootFS(1 << 16)},
	{name: "container_fs_writes_bytes_total", help: "Bytes written to a disk.", labels: []string{"device"}},
	{name: "container_fs_writes_total", help: "Writes to a disk.", labels: []string{"device"}},
	{name: "container_last_seen", help: "When the runtime last saw the container, in seconds since 1970.", gauge: true, values: plain(lastSeen)},
	{name: "container_memory_cache", help: "Bytes of page cache.", gauge: true, values: memoryShare(4)},
	{name: "container_memory_failcnt", help: "How often the memory limit was met.", values: always(0)},
	{
		name: "container_memory_failures_total", help: "Page faults.", labels: []string{"failure_type", "scope"},
		values: func(m *measured) []labelled {
			return []labelled{{[]string{"pgfault", "container"}, m.memory / 4096}, {[]string{"pgmajfault", "container"}, 0}}
		},
	},
	{name: "container_memory_kernel_usage", help: "Bytes of kernel memory.", gauge: true, values: memoryShare(64)},
	{name: "container_memory_mapped_file", help: "Bytes of mapped files.", gauge: true, values: memoryShare(16)},
	{name: "container_memory_max_usage_bytes", help: "The most bytes that were in use.", gauge: true, values: memoryShare(1)},
	{name: "container_memory_rss", help: "Bytes of anonymous memory.", gauge: true, values: memoryShare(2)},
	{name: "container_memory_swap", help: "Bytes of swap.", gauge: true, values: always(0)},
	{name: "container_memory_total_active_file_bytes", help: "Bytes of files in active use.", gauge: true, values: memoryShare(8)},
	{name: "container_memory_total_inactive_file_bytes", help: "Bytes of files not in active use.", gauge: true, values: memoryShare(8)},
	{name: "container_memory_usage_bytes", help: "Bytes in use, caches among them.", gauge: true, values: memoryShare(1)},
	{name: "container_memory_working_set_bytes", help: "Bytes in use that cannot be taken back.", gauge: true, values: memoryShare(1)},
	{name: "container_network_receive_bytes_total", help: "Bytes received.", labels: []string{"interface"}, ofPod: true, values: ofNetwork(3)},
	{name: "container_network_receive_errors_total", help: "Errors while receiving.", labels: []string{"interface"}, ofPod: true, values: ofNetwork(5)},
	{name: "container_network_receive_packets_dropped_total", help: "Received packets dropped.", labels: []string{"interface"}, ofPod: true, values: ofNetwork(6)},
	{name: "container_network_receive_packets_total", help: "Packets received.", labels: []string{"interface"}, ofPod: true, values: ofNetwork(7)},
	{name: "container_network_transmit_bytes_total", help: "Bytes sent.", labels: []string{"interface"}, ofPod: true, values: ofNetwork(4)},
	{name: "container_network_transmit_errors_total", help: "Errors while sending.", labels: []string{"interface"}, ofPod: true, values: ofNetwork(8)},
	{name: "container_network_transmit_packets_dropped_total", help: "Packets dropped while sending.", labels: []string{"interface"}, ofPod: true, values: ofNetwork(9)},
	{name: "container_network_transmit_packets_total", help: "Packets sent.", labels: []string{"interface"}, ofPod: true, values: ofNetwork(10)},
	{name: "container_oom_events_total", help: "Processes killed for want of memory.", values: always(0)},
	{name: "container_processes", help: "Processes.", gauge: true, values: always(1)},
	{name: "container_sockets", help: "Open sockets.", gauge: true, values: always(0)},
	{name: "container_spec_cpu_period", help: "Period of the CPU quota, in microseconds.", gauge: true, values: limit((*runtimeapi.LinuxContainerResources).GetCpuPeriod)},
	{name: "container_spec_cpu_shares", help: "CPU shares.", gauge: true, values: limit((*runtimeapi.LinuxContainerResources).GetCpuShares)},
	{name: "container_spec_memory_limit_bytes", help: "Memory limit.", gauge: true, values: limit((*runtimeapi.LinuxContainerResources).GetMemoryLimitInBytes)},
	{name: "container_spec_memory_reservation_limit_bytes", help: "Memory that is reserved."},
	{name: "container_spec_memory_swap_limit_bytes", help: "Limit of memory and swap together.", gauge: true, values: limit(swapLimit)},
	{
		name: "container_start_time_seconds", help: "When the container was started, in seconds since 1970.", gauge: true,
		values: plain(func(m *measured) uint64 { return uint64(max(m.startedAt, 0) / 1e9) }),
	},
	{name: "container_threads", help: "Threads.", gauge: true, values: always(4)},
	{name: "container_threads_max", help: "Limit of threads.", gauge: true, values: always(1 << 15)},
	{name: "container_ulimits_soft", help: "Soft limits of the first process, where some are set.", labels: []string{"ulimit"}},
}

var crioMetrics = []metric{
	{name: "container_last_seen", help: "When the runtime last saw the container, in seconds since 1970.", gauge: true, values: plain(lastSeen)},
}

// list returns the metrics of the set and their common labels.
func (s MetricSet) list() (metrics []metric, labels []string) {
	switch s {
	case MetricsContainerd:
		return containerdMetrics, []string{"pod", "namespace", "container", "id", "image"}
	case MetricsCRIO:
		return crioMetrics, []string{"id", "name", "image", "namespace", "pod", "container"}
	}
	return nil, nil
}

// noMetrics is the answer of a runtime without metrics.
func noMetrics(method string) error {
	return status.Errorf(codes.Unimplemented, "method %s not implemented", method)
}

// ListMetricDescriptors describes the metrics of the profile's runtime.
func (s *service) ListMetricDescriptors(context.Context, *runtimeapi.ListMetricDescriptorsRequest) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	set := s.rt.cfg.Profile.Metrics
	if set == MetricsUnimplemented {
		return nil, noMetrics("ListMetricDescriptors")
	}
	metrics, base := set.list()
	var out []*runtimeapi.MetricDescriptor
	for _, m := range metrics {
		out = append(out, &runtimeapi.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: slices.Concat(base, m.labels)})
	}
	return &runtimeapi.ListMetricDescriptorsResponse{Descriptors: out}, nil
}

// listMetrics lists the metrics of the pods.
func (s *service) listMetrics() []*runtimeapi.PodSandboxMetrics {
	rt := s.rt
	rows := rt.findSandboxes(nil)
	rt.lock()
	defer rt.mu.Unlock()
	set := rt.cfg.Profile.Metrics
	out := make([]*runtimeapi.PodSandboxMetrics, 0, len(rows))
	now := rt.stamp()
	for _, r := range rows {
		sb := r.item
		if set == MetricsContainerd && sb.state != StateReady {
			continue
		}
		pod := &runtimeapi.PodSandboxMetrics{PodSandboxId: sb.id}
		if set == MetricsContainerd && !sb.hostNetwork {
			pod.Metrics = set.of(&measured{id: sb.id, now: now}, true, []string{sb.name, sb.namespace, "", sb.id, ""})
		}
		for _, c := range sb.containers {
			if c.state != StateRunning && (set != MetricsCRIO || c.state == StateExited) {
				continue
			}
			pod.ContainerMetrics = append(pod.ContainerMetrics, &runtimeapi.ContainerMetrics{
				ContainerId: c.id, Metrics: set.of(rt.measure(c, now), false, set.labelsOf(c)),
			})
		}
		out = append(out, pod)
	}
	return out
}

// measure takes the measure of a container. The caller holds the mutex.
func (rt *Runtime) measure(c *container, now int64) *measured {
	m := &measured{
		id: c.id, now: now, startedAt: c.startedAt, cpu: rt.cpu(c, now).GetUsageCoreNanoSeconds().GetValue(),
		memory: memory(c.id, now, true).GetUsageBytes().GetValue(),
	}
	var st runtimeapi.ContainerStatus
	if proto.Unmarshal(c.resources, &st) == nil {
		m.resources = st.GetResources().GetLinux()
	}
	return m
}

// labelsOf are the label values common to all metrics of a container.
func (s MetricSet) labelsOf(c *container) []string {
	if s == MetricsCRIO {
		name := fmt.Sprintf("k8s_%s_%s_%s_%s_%d", c.name, c.sb.name, c.sb.namespace, c.sb.uid, c.attempt)
		return []string{c.id, name, c.userImage, c.sb.namespace, c.sb.name, c.name}
	}
	return []string{c.sb.name, c.sb.namespace, c.name, c.id, c.userImage}
}

// of are the metrics of a sandbox or a container.
func (s MetricSet) of(whose *measured, pod bool, labels []string) []*runtimeapi.Metric {
	metrics, _ := s.list()
	var out []*runtimeapi.Metric
	for _, m := range metrics {
		if m.values == nil || m.ofPod != pod {
			continue
		}
		kind := runtimeapi.MetricType_COUNTER
		if m.gauge {
			kind = runtimeapi.MetricType_GAUGE
		}
		for _, v := range m.values(whose) {
			out = append(out, &runtimeapi.Metric{
				Name: m.name, Timestamp: whose.now, MetricType: kind, LabelValues: slices.Concat(labels, v.labels), Value: u64(v.value),
			})
		}
	}
	return out
}

// ListPodSandboxMetrics lists the pods' values of the metrics described by ListMetricDescriptors.
func (s *service) ListPodSandboxMetrics(context.Context, *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	if s.rt.cfg.Profile.Metrics == MetricsUnimplemented {
		return nil, noMetrics("ListPodSandboxMetrics")
	}
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: s.listMetrics()}, nil
}
