// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The numbers of the stats are invented, but plausible: a running container uses a few hundredths
// of a CPU by its ID, so its counters grow with time, and a constant amount of memory.

func u64(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

// nanoCores is a running container's CPU use.
func nanoCores(id string) uint64 { return 1_000_000 + hashOf(1, id)%50_000_000 }

func (rt *Runtime) cpu(c *container, now int64) *runtimeapi.CpuUsage {
	until, cores := now, nanoCores(c.id)
	if c.state != StateRunning {
		until = c.finishedAt
	}
	ran := time.Duration(max(0, until-c.startedAt))
	if c.startedAt == 0 {
		ran = 0
	}
	usage := &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: u64(uint64(ran.Seconds() * float64(cores)))}
	if c.state == StateRunning {
		usage.UsageNanoCores = u64(cores)
	}
	return usage
}

func memory(id string, now int64, alive bool) *runtimeapi.MemoryUsage {
	used := uint64(0)
	if alive {
		used = 1<<20 + hashOf(2, id)%(64<<20)
	}
	return &runtimeapi.MemoryUsage{
		Timestamp: now, WorkingSetBytes: u64(used), UsageBytes: u64(used + used/4), RssBytes: u64(used / 2),
		AvailableBytes: u64(0), PageFaults: u64(used / 4096), MajorPageFaults: u64(0),
	}
}

// containerStats builds the stats of a container. The caller holds the mutex.
func (rt *Runtime) containerStats(c *container) *runtimeapi.ContainerStats {
	var item runtimeapi.Container
	if err := proto.Unmarshal(c.appendItem(nil, c.state), &item); err != nil {
		item.Id = c.id
	}
	now := rt.stamp()
	alive := c.state == StateRunning
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: c.id, Metadata: item.Metadata, Labels: item.Labels, Annotations: item.Annotations},
		Cpu:        rt.cpu(c, now),
		Memory:     memory(c.id, now, alive),
		Swap:       &runtimeapi.SwapUsage{Timestamp: now, SwapAvailableBytes: u64(0), SwapUsageBytes: u64(0)},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: now, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/virtual"}, UsedBytes: u64(1 << 16), InodesUsed: u64(16),
		},
	}
}

// sandboxStats builds the stats of a sandbox and its containers. The caller holds the mutex.
func (rt *Runtime) sandboxStats(sb *sandbox) *runtimeapi.PodSandboxStats {
	var item runtimeapi.PodSandbox
	if err := proto.Unmarshal(sb.appendItem(nil, sb.state), &item); err != nil {
		item.Id = sb.id
	}
	now := rt.stamp()
	linux := &runtimeapi.LinuxPodSandboxStats{
		Memory: memory(sb.id, now, sb.state == StateReady),
		Network: &runtimeapi.NetworkUsage{Timestamp: now, DefaultInterface: &runtimeapi.NetworkInterfaceUsage{
			Name: "eth0", RxBytes: u64(hashOf(3, sb.id) % (1 << 30)), TxBytes: u64(hashOf(4, sb.id) % (1 << 30)), RxErrors: u64(0), TxErrors: u64(0),
		}},
		Process: &runtimeapi.ProcessUsage{Timestamp: now, ProcessCount: u64(uint64(1 + len(sb.containers)))},
	}
	own := linux.Memory
	var used, cores uint64
	for _, c := range sb.containers {
		st := rt.containerStats(c)
		used += st.Cpu.GetUsageCoreNanoSeconds().GetValue()
		cores += st.Cpu.GetUsageNanoCores().GetValue()
		if c.state == StateRunning {
			linux.Containers = append(linux.Containers, st)
			own.WorkingSetBytes.Value += st.Memory.WorkingSetBytes.Value
			own.UsageBytes.Value += st.Memory.UsageBytes.Value
			own.RssBytes.Value += st.Memory.RssBytes.Value
			own.PageFaults.Value += st.Memory.PageFaults.Value
		}
	}
	linux.Cpu = &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: u64(used), UsageNanoCores: u64(cores)}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: sb.id, Metadata: item.Metadata, Labels: item.Labels, Annotations: item.Annotations},
		Linux:      linux,
	}
}

// ContainerStats of a container.
func (s *service) ContainerStats(_ context.Context, req *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
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
func (s *service) ListContainerStats(_ context.Context, req *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	return &runtimeapi.ListContainerStatsResponse{Stats: s.listContainerStats(req.GetFilter())}, nil
}

// PodSandboxStats of a sandbox.
func (s *service) PodSandboxStats(_ context.Context, req *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
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
func (s *service) ListPodSandboxStats(_ context.Context, req *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: s.listSandboxStats(req.GetFilter())}, nil
}
