// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
)

var stateOfPhase = map[pleg.Phase]bench.State{
	pleg.PhaseUnknown: bench.Unknown,
	pleg.PhaseCreated: bench.Created,
	pleg.PhaseRunning: bench.Running,
	pleg.PhaseExited:  bench.Exited,
	pleg.PhaseRemoved: bench.Removed,
}

var stateOfEvent = map[pleg.EventType]bench.State{
	pleg.ContainerStarted: bench.Running,
	pleg.ContainerDied:    bench.Exited,
	pleg.ContainerRemoved: bench.Removed,
	pleg.PodSync:          bench.Unknown,
}

// Show turns a status of the cache into its compared form.
func Show(uid cache.UID, status *cri.PodStatus, err error) bench.Pod {
	p := bench.Pod{UID: string(uid), IPs: status.IPs()}
	if err != nil {
		p.Err = err.Error()
	}
	for _, s := range status.Sandboxes() {
		p.Items = append(p.Items, bench.Item{ID: s.ID, Sandbox: true, State: stateOfPhase[s.Phase]})
	}
	for _, c := range status.Containers() {
		p.Items = append(p.Items, bench.Item{
			ID: c.ID, State: stateOfPhase[c.Phase], Name: c.Name,
			ExitCode: c.ExitCode, Reason: c.Reason, StartedAt: nanoseconds(c.StartedAt), FinishedAt: nanoseconds(c.FinishedAt),
		})
	}
	return p
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
