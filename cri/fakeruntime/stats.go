// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The numbers of the stats are invented, but plausible: a running container uses a few hundredths
// of a CPU by its ID, so its counters grow with time, and a constant amount of memory.

func u64(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

func diskUsage(now int64, used uint64) *runtimeapi.FilesystemUsage {
	return &runtimeapi.FilesystemUsage{
		Timestamp:  now,
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/virtual"},
		UsedBytes:  u64(used),
		InodesUsed: u64(used / 4096),
	}
}

func cpuUsage(now int64, used, cores uint64) *runtimeapi.CpuUsage {
	return &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: u64(used), UsageNanoCores: u64(cores)}
}

func memoryUsage(now int64, used uint64) *runtimeapi.MemoryUsage {
	return &runtimeapi.MemoryUsage{
		Timestamp:       now,
		WorkingSetBytes: u64(used),
		UsageBytes:      u64(used),
		RssBytes:        u64(used),
		AvailableBytes:  u64(0),
		PageFaults:      u64(0),
		MajorPageFaults: u64(0),
	}
}

// containerStats builds the stats of a running container. The caller holds the mutex.
func (rt *Runtime) containerStats(c *container) *runtimeapi.ContainerStats {
	item := c.message()
	now := rt.stamp()
	cores := 1_000_000 + hashOf(1, c.id)%50_000_000
	bytes := 1<<20 + hashOf(2, c.id)%(64<<20)
	if c.state != StateRunning {
		cores = 0
		bytes = 0
	}
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id:          c.id,
			Metadata:    item.Metadata,
			Labels:      item.Labels,
			Annotations: item.Annotations,
		},
		Cpu: cpuUsage(
			now,
			uint64(time.Duration(max(0, now-c.startedAt)).Seconds()*float64(cores)),
			cores,
		),
		Memory:        memoryUsage(now, bytes),
		WritableLayer: diskUsage(now, 1<<16),
	}
}

// sandboxStats builds the stats of a sandbox and its running containers. The caller holds the
// mutex.
func (rt *Runtime) sandboxStats(sb *sandbox) *runtimeapi.PodSandboxStats {
	item := sb.message()
	now := rt.stamp()
	linux := &runtimeapi.LinuxPodSandboxStats{
		Cpu: cpuUsage(
			now,
			0,
			0,
		),
		Memory:  memoryUsage(now, 1<<20),
		Process: &runtimeapi.ProcessUsage{Timestamp: now, ProcessCount: u64(1)},
		Network: &runtimeapi.NetworkUsage{Timestamp: now, DefaultInterface: &runtimeapi.NetworkInterfaceUsage{
			Name: "eth0", RxBytes: u64(0), TxBytes: u64(0), RxErrors: u64(0), TxErrors: u64(0),
		}},
	}
	for _, c := range sb.containers {
		if c.state != StateRunning {
			continue
		}
		st := rt.containerStats(c)
		linux.Containers = append(linux.Containers, st)
		linux.Cpu.UsageCoreNanoSeconds.Value += st.Cpu.UsageCoreNanoSeconds.Value
		linux.Cpu.UsageNanoCores.Value += st.Cpu.UsageNanoCores.Value
		for _, bytes := range []*runtimeapi.UInt64Value{linux.Memory.WorkingSetBytes, linux.Memory.UsageBytes, linux.Memory.RssBytes} {
			bytes.Value += st.Memory.UsageBytes.Value
		}
		linux.Process.ProcessCount.Value++
	}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id:          sb.id,
			Metadata:    item.Metadata,
			Labels:      item.Labels,
			Annotations: item.Annotations,
		},
		Linux: linux,
	}
}

// ContainerStats of a container.
func (s *service) ContainerStats(
	_ context.Context,
	req *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	s.rt.lock()
	defer s.rt.mu.Unlock()
	c, err := s.rt.containerByID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatsResponse{Stats: s.rt.containerStats(c)}, nil
}

func (s *service) listContainerStats(f *runtimeapi.ContainerStatsFilter) []*runtimeapi.ContainerStats {
	rows := s.rt.findContainers(&runtimeapi.ContainerFilter{
		Id: f.GetId(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: f.GetLabelSelector(),
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	return statsOf(s.rt, rows, s.rt.containerStats)
}

// ListContainerStats lists the running containers.
func (s *service) ListContainerStats(
	_ context.Context,
	req *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	return &runtimeapi.ListContainerStatsResponse{Stats: s.listContainerStats(req.GetFilter())}, nil
}

// PodSandboxStats of a sandbox.
func (s *service) PodSandboxStats(
	_ context.Context,
	req *runtimeapi.PodSandboxStatsRequest,
) (*runtimeapi.PodSandboxStatsResponse, error) {
	s.rt.lock()
	defer s.rt.mu.Unlock()
	sb, err := s.rt.sandboxByID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: s.rt.sandboxStats(sb)}, nil
}

func (s *service) listSandboxStats(f *runtimeapi.PodSandboxStatsFilter) []*runtimeapi.PodSandboxStats {
	rows := s.rt.findSandboxes(&runtimeapi.PodSandboxFilter{
		Id: f.GetId(), LabelSelector: f.GetLabelSelector(), State: &runtimeapi.PodSandboxStateValue{},
	})
	return statsOf(s.rt, rows, s.rt.sandboxStats)
}

func statsOf[T listed, S any](rt *Runtime, rows []row[T], stats func(T) S) []S {
	rt.lock()
	defer rt.mu.Unlock()
	list := make([]S, len(rows))
	for i, r := range rows {
		list[i] = stats(r.item)
	}
	return list
}

// ListPodSandboxStats lists the ready sandboxes.
func (s *service) ListPodSandboxStats(
	_ context.Context,
	req *runtimeapi.ListPodSandboxStatsRequest,
) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: s.listSandboxStats(req.GetFilter())}, nil
}
