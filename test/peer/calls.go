// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/peer/agent"
)

// calls implements half of [agent.Churner]: pods are made, stopped and removed over a connection of
// their own, like by an agent beside its PLEG.
type calls struct {
	client *crikit.Client
	// calling receives each call, like [pleg.Generator.Calling]. It may be replaced before the first
	// call.
	calling func(pleg.OwnCall) (returned func(error, ...pleg.Item))
}

const namespace = "churn"

// newCalls connects to the runtime on the unix socket.
func newCalls(socket string) (*calls, error) {
	annotations, _ := agent.Annotations()
	client, err := crikit.Dial(crikit.Options{
		Endpoint: "unix://" + socket, Namespace: namespace, Image: fakeruntime.WorkloadImage, Annotations: annotations,
	})
	untold := func(pleg.OwnCall) func(error, ...pleg.Item) { return func(error, ...pleg.Item) {} }
	return &calls{client: client, calling: untold}, err
}

// Make implements [agent.Churner].
func (c *calls) Make(uid, name string, life time.Duration) (agent.Pod, error) {
	ctx, p := context.Background(), agent.Pod{UID: uid}
	ref := pleg.PodRef{UID: cache.UID(uid), Name: name, Namespace: namespace}
	var pod *crikit.Pod
	err := c.tell(pleg.OwnCall{Pod: ref}, func() (_ pleg.Item, err error) {
		if pod, err = c.client.RunPod(ctx, uid, name, 0); err == nil {
			p.Sandbox = pod.SandboxID
		}
		return pleg.Item{ID: p.Sandbox, Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}, err
	})
	if err != nil {
		return p, err
	}
	_, annotations := agent.Annotations()
	annotations[fakeruntime.AnnotationLifetime] = life.String()
	err = c.tell(pleg.OwnCall{Pod: ref}, func() (_ pleg.Item, err error) {
		p.Container, err = c.client.Create(ctx, pod, crikit.Spec{Name: "main", Annotations: annotations})
		return pleg.Item{ID: p.Container, Kind: pleg.Container, Phase: pleg.PhaseCreated, Name: "main"}, err
	})
	if err != nil {
		return p, err
	}
	return p, c.tell(pleg.OwnCall{Pod: ref, ID: p.Container}, func() (pleg.Item, error) {
		return pleg.Item{ID: p.Container, Kind: pleg.Container, Phase: pleg.PhaseRunning}, c.client.Start(ctx, p.Container)
	})
}

// Stop implements [agent.Churner].
func (c *calls) Stop(p agent.Pod) error {
	return c.tell(pleg.OwnCall{ID: p.Sandbox}, func() (pleg.Item, error) {
		err := c.client.StopPod(context.Background(), p.Sandbox)
		return pleg.Item{ID: p.Sandbox, Kind: pleg.Sandbox, Phase: pleg.PhaseExited}, err
	})
}

// Remove implements [agent.Churner].
func (c *calls) Remove(p agent.Pod) error {
	ctx := context.Background()
	return errors.Join(
		c.tell(pleg.OwnCall{ID: p.Container}, func() (pleg.Item, error) {
			err := c.client.Remove(ctx, p.Container)
			return pleg.Item{ID: p.Container, Kind: pleg.Container, Phase: pleg.PhaseRemoved}, err
		}),
		c.tell(pleg.OwnCall{ID: p.Sandbox}, func() (pleg.Item, error) {
			err := c.client.RemovePod(ctx, p.Sandbox)
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
