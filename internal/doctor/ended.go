// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// A runtime may list a container as running whose process has ended, and for good: where the shim
// or the monitor that would have seen the end is gone, or the runtime was restarted in the middle
// of a stop (containerd/containerd#12600). No event tells of such an end, no list shows it, and
// kubelets wait for it. The processes of the node tell.
//
// Each of these could be wrong alone, so all must hold: both lists show the container running, no
// process had it in its cgroups at the begin of the examination and at its end, and the runtime,
// asked again after that, still says that it runs, as a process that is not there.

// mostUnended bounds the containers without a process in their cgroups about which the runtime is
// asked: those of a runtime of virtual machines have none.
const mostUnended = 20

// mostPID is the largest PID of a Linux kernel. The fake runtime, which has no processes, tells of
// larger ones.
const mostPID = 1 << 22

// unended looks for containers that only the runtime takes to run.
func (e *examiner) unended(ctx context.Context) {
	host := e.facts.Host
	if !host.Seen || host.Alive == nil {
		return
	}
	asked := 0
	for _, id := range slices.Sorted(maps.Keys(e.second)) {
		before := e.first[id]
		now := e.second[id]
		if now.Kind != "container" || !now.running() || !before.running() || host.Alive[id] {
			continue
		}
		if asked == mostUnended || e.enough() != "" {
			return
		}
		asked++
		pid, runs, err := e.process(ctx, id)
		if hung(err) {
			return
		}
		if runs && pid > 0 && pid <= mostPID && !e.options.Host.Runs(pid) {
			e.facts.Unended = append(e.facts.Unended, Unended{Item: now.Item, PID: pid})
		}
	}
}

// process asks the runtime for the process of a container, 0 if it does not tell, and whether the
// container runs.
func (e *examiner) process(ctx context.Context, id string) (pid int, runs bool, err error) {
	request := &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true}
	answer, _, err := try(ctx, e, "ContainerStatus", e.client.ContainerStatus, request)
	if err != nil {
		return 0, false, err
	}
	var info struct {
		PID int `json:"pid"`
	}
	_ = json.Unmarshal([]byte(answer.GetInfo()["info"]), &info) // without one, nothing is told
	return info.PID, answer.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING, nil
}

// endings are the findings about containers that only the runtime takes to run. What hangs as well
// is named for that.
func endings(f Facts) (list []Finding) {
	for _, u := range f.Unended {
		if slices.ContainsFunc(f.Items, func(i Item) bool { return i.ID == u.ID && f.hangs(i) }) {
			continue
		}
		finding := Finding{
			ID:       "end-unseen",
			Grade:    Ill,
			Sentence: fmt.Sprintf("%s runs by the runtime, and its process is gone", u.words()),
			Evidence: []string{fmt.Sprintf(
				"no process %d, and none in its cgroup for %s; ID %s",
				u.PID,
				bench.Seconds(f.Seconds),
				u.ID,
			)},
			Change: fmt.Sprintf("crictl stop %.13s; if it stays so, systemctl restart %s; %s", u.ID, f.service(), f.journal()),
		}
		_, kept := f.Host.Shims[f.keeper(u.Item)]
		if !kept {
			finding.Evidence = append(finding.Evidence, "its shim or monitor, which would have seen the end, is gone as well")
		}
		list = append(list, finding)
	}
	return several(list, "end-unseen", "more have ended unseen")
}
