// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unseen is a runtime with one container that runs as a process.
type unseen struct {
	collected
	info  string
	state runtimeapi.ContainerState // when asked for the process
	hangs bool                      // likewise
	asked *atomic.Int32
}

func (u unseen) ContainerStatus(
	ctx context.Context,
	request *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	if !request.GetVerbose() {
		return &runtimeapi.ContainerStatusResponse{}, nil
	}
	u.asked.Add(1)
	if u.hangs {
		<-ctx.Done()
	}
	return &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{State: u.state},
		Info:   map[string]string{"info": u.info},
	}, nil
}

// TestUnseenEnds: that a container runs by the runtime alone is said if nothing else tells of a
// process, and the runtime is asked about none of which a process is seen.
func TestUnseenEnds(t *testing.T) {
	const running, exited = runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	none := map[string]bool{}
	shim := map[string]Process{"s": {PID: 7, Name: "containerd-shim", State: "S"}}
	stopped := map[string]Process{"s": {PID: 7, Name: "containerd-shim", State: "T"}}
	for _, test := range []struct {
		name     string
		server   unseen
		host     HostFacts
		runs     []int
		asked    int32
		findings []string
		says     string
		hides    string
	}{
		{
			name:     "a process that is gone",
			server:   unseen{info: `{"pid": 4711}`, state: running},
			host:     HostFacts{Seen: true, Alive: none, Shims: shim},
			runs:     []int{1},
			asked:    1,
			findings: []string{"end-unseen"},
			says:     "runs by the runtime, and its process is gone",
			hides:    "monitor",
		},
		{
			name:     "its shim as well",
			server:   unseen{info: `{"pid": 4711}`, state: running},
			host:     HostFacts{Seen: true, Alive: none},
			asked:    1,
			findings: []string{"end-unseen"},
			says:     "its shim or monitor, which would have seen the end, is gone as well",
		},
		{
			name:   "a process in its cgroup",
			server: unseen{info: `{"pid": 4711}`, state: running},
			host:   HostFacts{Seen: true, Alive: map[string]bool{"c": true}},
		},
		{
			name:   "a virtual machine, whose process is in another cgroup",
			server: unseen{info: `{"pid": 4711}`, state: running},
			host:   HostFacts{Seen: true, Alive: none},
			runs:   []int{4711},
			asked:  1,
		},
		{
			name:   "an end that the runtime sees at last",
			server: unseen{info: `{"pid": 4711}`, state: exited},
			host:   HostFacts{Seen: true, Alive: none},
			asked:  1,
		},
		{
			name:   "a runtime that does not tell of processes",
			server: unseen{info: `{}`, state: running},
			host:   HostFacts{Seen: true, Alive: none},
			asked:  1,
		},
		{
			name:   "a process that no kernel has, as of the fake runtime",
			server: unseen{info: `{"pid": 4194305}`, state: running},
			host:   HostFacts{Seen: true, Alive: none},
			asked:  1,
		},
		{
			name:   "a runtime that tells nonsense",
			server: unseen{info: `[-1`, state: running},
			host:   HostFacts{Seen: true, Alive: none},
			asked:  1,
		},
		{
			name:   "no cgroups",
			server: unseen{info: `{"pid": 4711}`, state: running},
			host:   HostFacts{Seen: true},
		},
		{
			name:   "no processes",
			server: unseen{info: `{"pid": 4711}`, state: running},
			host:   HostFacts{Alive: none},
		},
		{
			name:   "a runtime that hangs when it is asked",
			server: unseen{hangs: true},
			host:   HostFacts{Seen: true, Alive: none},
			asked:  1,
		},
		{
			name:     "a stopped shim, which is named for that",
			server:   unseen{collected: collected{wrong: noMetrics}, info: `{"pid": 4711}`, state: running},
			host:     HostFacts{Seen: true, Alive: none, Shims: stopped},
			asked:    1,
			findings: []string{"item-hangs"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.server.period = "10s"
				test.server.asked = new(atomic.Int32)
				r := examine(t, sickness{
					server:  test.server,
					options: func(o *Options) { o.Host = &machine{facts: test.host, runs: test.runs} },
				})
				var ids []string
				for _, f := range r.Findings {
					if f.Grade == Ill {
						ids = append(ids, f.ID)
					}
				}
				said := fmt.Sprint(r.Findings)
				if !slices.Equal(ids, test.findings) || !strings.Contains(said, test.says) ||
					test.hides != "" && strings.Contains(said, test.hides) {
					t.Errorf("%v, want %v: %s", ids, test.findings, said)
				}
				if asked := test.server.asked.Load(); asked != test.asked {
					t.Errorf("asked %d times for a process, want %d", asked, test.asked)
				}
			})
		})
	}
}

// many is a runtime of which no process can be seen, as of virtual machines.
type many struct{ unseen }

func (many) ListContainers(
	context.Context,
	*runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	var all runtimeapi.ListContainersResponse
	for n := range 10 * mostUnended {
		all.Containers = append(all.Containers, &runtimeapi.Container{
			Id:           fmt.Sprint("c", n),
			PodSandboxId: "s",
			State:        runtimeapi.ContainerState_CONTAINER_RUNNING,
		})
	}
	return &all, nil
}

// TestUnseenEndsOfMany: where no process is seen the runtime is asked about a few containers alone.
func TestUnseenEndsOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := many{unseen{collected: collected{period: "10s"}, asked: new(atomic.Int32)}}
		r := examine(t, sickness{
			server:  server,
			options: func(o *Options) { o.Host = &machine{facts: HostFacts{Seen: true, Alive: map[string]bool{}}} },
		})
		if asked := server.asked.Load(); asked != mostUnended || r.Worth != Well {
			t.Errorf("%s, and asked %d times, want %d: %+v", r.Worth, asked, mostUnended, r.Findings)
		}
		counted := slices.ContainsFunc(r.Calls, func(c Call) bool {
			return c.Method == "ContainerStatus" && c.Count == 11*mostUnended
		})
		if !counted {
			t.Errorf("not all calls are counted: %+v", r.Calls)
		}
	})
}
