// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/evented-pleg/evented-pleg/embed"
)

// lived is a runtime with the pod p, whose sandbox s and container c the kubelet's calls change.
type lived struct {
	internalapi.RuntimeService
	*fakeEvents

	node *node
	// tell sends an event of a call: before the call is answered, later, twice, or never.
	tell               func(r *lived, e *runtimeapi.ContainerEventResponse)
	sandbox, container *kubecontainer.Container // nil: there is none
}

// show makes what there is the runtime's content, and tells an event about it.
func (r *lived) show(id string, what runtimeapi.ContainerEventType) {
	p := pod("p")
	if r.sandbox != nil {
		p.Sandboxes = []*kubecontainer.Container{r.sandbox}
	}
	if r.container != nil {
		r.container.PodSandboxID = "s"
		p.Containers = []*kubecontainer.Container{r.container}
	}
	if r.sandbox == nil && r.container == nil {
		r.node.runtime.show()
	} else {
		r.node.runtime.show(p)
	}
	r.tell(r, event(id, what))
}

func (r *lived) RunPodSandbox(context.Context, *runtimeapi.PodSandboxConfig, string) (string, error) {
	r.sandbox = container("s", running)
	r.show("s", runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return "s", nil
}

func (r *lived) CreateContainer(
	context.Context,
	string,
	*runtimeapi.ContainerConfig,
	*runtimeapi.PodSandboxConfig,
) (string, error) {
	r.container = container("c", created)
	r.show("c", runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return "c", nil
}

func (r *lived) StartContainer(context.Context, string) error {
	r.container = container("c", running)
	r.show("c", runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return nil
}

func (r *lived) StopContainer(context.Context, string, int64) error {
	r.container = container("c", exited)
	r.show("c", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return nil
}

func (r *lived) RemoveContainer(context.Context, string) error {
	r.container = nil
	r.show("c", runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

func (r *lived) StopPodSandbox(context.Context, string) error {
	r.sandbox = container("s", exited)
	r.show("s", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return nil
}

func (r *lived) RemovePodSandbox(context.Context, string) error {
	r.sandbox = nil
	r.show("s", runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

// GetContainerEvents is that of the events.
func (r *lived) GetContainerEvents(
	ctx context.Context,
	to chan *runtimeapi.ContainerEventResponse,
	established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	return r.fakeEvents.GetContainerEvents(ctx, to, established)
}

// TestALifeByOwnCalls plays a pod that the kubelet makes, stops and removes by calls of its own, on
// runtimes whose events come before the answers, after them, twice, or not at all. Each change is
// told once, within half a second, and no event counts as missed: the answers are known. A sandbox
// without a container waits for one, for five times the relist period at most (ADR 60).
func TestALifeByOwnCalls(t *testing.T) {
	now := func(r *lived, e *runtimeapi.ContainerEventResponse) { r.feed <- e }
	later := func(r *lived, e *runtimeapi.ContainerEventResponse) {
		go func() {
			time.Sleep(100 * time.Millisecond)
			r.feed <- e
		}()
	}
	for name, tell := range map[string]func(*lived, *runtimeapi.ContainerEventResponse){
		"before the answer": now,
		"after the answer":  later,
		"twice":             func(r *lived, e *runtimeapi.ContainerEventResponse) { now(r, e); later(r, e) },
		"never":             func(*lived, *runtimeapi.ContainerEventResponse) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runtime := &lived{fakeEvents: newFakeEvents(), tell: tell}
				client := embed.NewCalls(runtime)
				n := newNodeOf(t, runtime.fakeEvents, client)
				runtime.node = n
				n.runtime.forgets = true
				n.started()
				ctx := t.Context()
				uid := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "p"}}
				for _, step := range []struct {
					call func() error
					want []string
				}{
					{
						func() error {
							_, err := client.RunPodSandbox(ctx, uid, "")
							time.Sleep(5 * time.Second)
							return err
						},
						[]string{"p s Started"},
					},
					{func() error { _, err := client.CreateContainer(ctx, "s", nil, uid); return err }, nil},
					{func() error { return client.StartContainer(ctx, "c") }, []string{"p c Started"}},
					{func() error { return client.StopContainer(ctx, "c", 0) }, []string{"p c Died"}},
					{func() error { return client.RemoveContainer(ctx, "c") }, []string{"p c Removed"}},
					{func() error { return client.StopPodSandbox(ctx, "s") }, []string{"p s Died"}},
					{func() error { return client.RemovePodSandbox(ctx, "s") }, []string{"p s Removed"}},
				} {
					if err := step.call(); err != nil {
						t.Fatal(err)
					}
					time.Sleep(500 * time.Millisecond)
					n.expect(step.want...)
				}
				if s := n.pleg.core.Stats(); s.Missed+s.MissedCreations+s.MissedRemovals != 0 {
					t.Errorf("events count as missed: %+v", s)
				}
			})
		})
	}
}
