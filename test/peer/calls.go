// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/peer/agent"
)

// calls implements half of [agent.Churner]: pods are made, stopped and removed over a connection of
// their own, like by an agent beside its PLEG.
type calls struct {
	client runtimeapi.RuntimeServiceClient
	// calling receives each call, like [pleg.Generator.Calling]. It may be replaced before the first
	// call.
	calling func(pleg.OwnCall) (returned func(error, ...pleg.Item))
}

// newCalls connects to the runtime on the unix socket.
func newCalls(socket string) (*calls, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &calls{
		client:  runtimeapi.NewRuntimeServiceClient(conn),
		calling: func(pleg.OwnCall) func(error, ...pleg.Item) { return func(error, ...pleg.Item) {} },
	}, nil
}

// sandboxOf returns the configuration of a pod, labelled as a kubelet does.
func sandboxOf(uid, name string) *runtimeapi.PodSandboxConfig {
	annotations, _ := agent.Annotations()
	return &runtimeapi.PodSandboxConfig{
		Annotations: annotations,
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "churn", Uid: uid},
		Labels:      map[string]string{"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "churn"},
		Linux:       &runtimeapi.LinuxPodSandboxConfig{},
	}
}

// containerOf returns the configuration of a pod's container.
func containerOf(uid, name string, life time.Duration) *runtimeapi.ContainerConfig {
	_, annotations := agent.Annotations()
	annotations[fakeruntime.AnnotationLifetime] = life.String()
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Image:    &runtimeapi.ImageSpec{Image: fakeruntime.WorkloadImage},
		Labels: map[string]string{
			"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "churn", "io.kubernetes.container.name": "main",
		},
		Annotations: annotations,
	}
}

// Make implements [agent.Churner].
func (c *calls) Make(uid, name string, life time.Duration) (agent.Pod, error) {
	p, sandbox := agent.Pod{UID: uid}, sandboxOf(uid, name)
	ref := pleg.PodRef{UID: cache.UID(uid), Name: name, Namespace: "churn"}
	ctx := context.Background()
	err := c.tell(pleg.OwnCall{Pod: ref}, func() (pleg.Item, error) {
		r, err := c.client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox})
		p.Sandbox = r.GetPodSandboxId()
		return pleg.Item{ID: p.Sandbox, Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}, err
	})
	if err != nil {
		return p, err
	}
	err = c.tell(pleg.OwnCall{Pod: ref}, func() (pleg.Item, error) {
		r, err := c.client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: p.Sandbox, Config: containerOf(uid, name, life), SandboxConfig: sandbox})
		p.Container = r.GetContainerId()
		return pleg.Item{ID: p.Container, Kind: pleg.Container, Phase: pleg.PhaseCreated, Name: "main"}, err
	})
	if err != nil {
		return p, err
	}
	return p, c.tell(pleg.OwnCall{Pod: ref, ID: p.Container}, func() (pleg.Item, error) {
		_, err := c.client.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: p.Container})
		return pleg.Item{ID: p.Container, Kind: pleg.Container, Phase: pleg.PhaseRunning}, err
	})
}

// Stop implements [agent.Churner].
func (c *calls) Stop(p agent.Pod) error {
	return c.tell(pleg.OwnCall{ID: p.Sandbox}, func() (pleg.Item, error) {
		_, err := c.client.StopPodSandbox(context.Background(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.Sandbox})
		return pleg.Item{ID: p.Sandbox, Kind: pleg.Sandbox, Phase: pleg.PhaseExited}, err
	})
}

// Remove implements [agent.Churner].
func (c *calls) Remove(p agent.Pod) error {
	ctx := context.Background()
	return errors.Join(
		c.tell(pleg.OwnCall{ID: p.Container}, func() (pleg.Item, error) {
			_, err := c.client.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: p.Container})
			return pleg.Item{ID: p.Container, Kind: pleg.Container, Phase: pleg.PhaseRemoved}, err
		}),
		c.tell(pleg.OwnCall{ID: p.Sandbox}, func() (pleg.Item, error) {
			_, err := c.client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.Sandbox})
			return pleg.Item{ID: p.Sandbox, Kind: pleg.Sandbox, Phase: pleg.PhaseRemoved}, err
		}))
}

// tell makes a call and reports the call to calling.
func (c *calls) tell(own pleg.OwnCall, call func() (pleg.Item, error)) error {
	returned := c.calling(own)
	now, err := call()
	if err != nil {
		returned(err)
		return err
	}
	returned(nil, now)
	return nil
}
