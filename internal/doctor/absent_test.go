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
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// blind is a runtime whose lists show nothing: of sandboxes, of containers, or of both. It has as
// many containers as IDs, which its statuses and events name.
type blind struct {
	collected
	// from is the first list that shows nothing.
	from             int32
	pods, containers bool
	// gone: statuses do not know the containers either. told: events name the containers.
	gone, told  bool
	ids         []string
	podLists    *atomic.Int32
	manyLists   *atomic.Int32
	statusCalls *atomic.Int32
}

func blindTo(b blind) blind {
	b.collected.period = "10s"
	b.ids = []string{"c"}
	b.podLists = new(atomic.Int32)
	b.manyLists = new(atomic.Int32)
	b.statusCalls = new(atomic.Int32)
	return b
}

func (b blind) ListPodSandbox(
	ctx context.Context,
	request *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	if b.podLists.Add(1) >= b.from && b.pods {
		return &runtimeapi.ListPodSandboxResponse{}, nil
	}
	return b.collected.ListPodSandbox(ctx, request)
}

func (b blind) ListContainers(
	context.Context,
	*runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	list := new(runtimeapi.ListContainersResponse)
	if b.manyLists.Add(1) >= b.from && b.containers {
		return list, nil
	}
	for _, id := range b.ids {
		list.Containers = append(list.Containers, &runtimeapi.Container{
			Id:           id,
			PodSandboxId: "s",
			State:        runtimeapi.ContainerState_CONTAINER_RUNNING,
		})
	}
	return list, nil
}

func (b blind) ContainerStatus(
	context.Context,
	*runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	b.statusCalls.Add(1)
	if b.gone && b.manyLists.Load() > 1 {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: "c"}}, nil
}

func (b blind) PodSandboxStatus(
	context.Context,
	*runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	if b.gone && b.manyLists.Load() > 1 {
		return nil, status.Error(codes.NotFound, "no such sandbox")
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: "s"}}, nil
}

func (b blind) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest,
	stream runtimeapi.RuntimeService_GetContainerEventsServer,
) error {
	pod := &runtimeapi.PodSandboxStatus{
		Id:       "s",
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop"},
	}
	for _, id := range b.ids {
		if !b.told {
			break
		}
		err := stream.Send(&runtimeapi.ContainerEventResponse{
			ContainerId:        id,
			ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
			CreatedAt:          time.Now().UnixNano(),
			PodSandboxStatus:   pod,
		})
		if err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

// TestListsThatShowNothing: lists that lack what statuses or events name are at fault, and not the
// event stream, which had nothing to tell.
func TestListsThatShowNothing(t *testing.T) {
	t.Parallel()
	many := make([]string, 1000)
	for n := range many {
		many[n] = fmt.Sprintf("c%03d", n)
	}
	unheard := func(o *Options) { o.NoEvents = true }
	for _, test := range []struct {
		name     string
		server   blind
		ids      []string
		options  func(*Options)
		findings []string
		says     string
	}{
		{name: "well", server: blindTo(blind{from: 9}), findings: nil},
		{
			name:     "everything from the second list on",
			server:   blindTo(blind{from: 2, pods: true, containers: true}),
			findings: []string{"lists-differ"},
			says:     "the runtime lists nothing, and 2 items are there",
		},
		{
			name:     "more than is asked for",
			server:   blindTo(blind{from: 2, pods: true, containers: true}),
			ids:      many,
			findings: []string{"lists-differ"},
			says:     "the runtime lists nothing, and at least 20 items are there",
		},
		{
			name:     "the containers",
			server:   blindTo(blind{from: 2, containers: true}),
			findings: []string{"lists-differ"},
			says:     "a list lacked 1 item that was there",
		},
		{
			name:     "the sandboxes",
			server:   blindTo(blind{from: 2, pods: true}),
			findings: []string{"lists-differ"},
			says:     "sandbox of pod shop/web s",
		},
		{
			name:     "everything, and nobody listens",
			server:   blindTo(blind{from: 2, pods: true, containers: true}),
			options:  unheard,
			findings: []string{"lists-differ", "events-skipped"},
			says:     "the runtime lists nothing",
		},
		{
			name:     "all lists, and events name a container",
			server:   blindTo(blind{from: 1, pods: true, containers: true, told: true}),
			findings: []string{"lists-differ"},
			says:     "a container of pod shop/web c",
		},
		{
			name:     "all lists, and it has gone since",
			server:   blindTo(blind{from: 1, pods: true, containers: true, told: true, gone: true}),
			findings: []string{"lists-empty"},
		},
		{
			name:     "it has gone, and the stream is silent",
			server:   blindTo(blind{from: 2, pods: true, containers: true, gone: true}),
			findings: []string{"events-silent"},
			says:     "carries nothing: no event of 1 container",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if test.ids != nil {
					test.server.ids = test.ids
				}
				r := examine(t, sickness{server: test.server, options: test.options})
				var ids []string
				for _, f := range r.Findings {
					ids = append(ids, f.ID)
				}
				if !slices.Equal(ids, test.findings) || !strings.Contains(fmt.Sprint(r.Findings), test.says) {
					t.Errorf("want %v, %q: %+v", test.findings, test.says, r.Findings)
				}
				if n := int(test.server.statusCalls.Load()); n > len(test.server.ids)+mostAbsent {
					t.Errorf("%d statuses were asked for", n)
				}
			})
		})
	}
}

// TestRuntimeWithoutPods: a runtime that lists nothing is not called well without a word.
func TestRuntimeWithoutPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := examine(t, sickness{})
		said := fmt.Sprint(r.Document())
		for _, want := range []string{"WELL: the runtime answers, and lists nothing", "--container-runtime-endpoint"} {
			if r.Worth != Well || !strings.Contains(said, want) {
				t.Errorf("%s: %q is not in %s", r.Worth, want, said)
			}
		}
		if line := r.Line(80); line != "the container runtime answers, and lists no pod and no container" {
			t.Errorf("in a line: %s", line)
		}
	})
}

// TestStreamThatNothingTried: while nothing changes, an open stream proves nothing, and the verdict
// does not cover it.
func TestStreamThatNothingTried(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		churn   bool
		options func(*Options)
		unseen  bool
	}{
		{name: "nothing changes", unseen: true},
		{name: "containers come and go", churn: true},
		{name: "a watch judges it", options: func(o *Options) { o.JudgedBy = "the watch judges it" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := examine(t, sickness{population: ten, churn: test.churn, options: test.options})
				if got := unseenOf(r, "events"); got != "" != test.unseen {
					t.Errorf("the event stream was not looked at: %q", got)
				}
			})
		})
	}
}
