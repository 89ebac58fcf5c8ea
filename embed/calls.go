// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"errors"
	"maps"
	"sync"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Calling receives the kubelet's own calls: see [pleg.Generator.Calling].
type Calling func(pleg.OwnCall) (returned func(err error, now ...pleg.Item))

// Calls is a kubelet's CRI client that tells a generator of the kubelet's calls that change the
// runtime. It answers nothing itself. A Calls is safe for concurrent use and starts nothing.
type Calls struct {
	internalapi.RuntimeService

	mu      sync.Mutex        // owns the fields below; never held during a call
	calling Calling           // nil without a receiver
	made    map[string]string // the sandbox of each item made and not removed by an own call
}

// maxMade bounds what Calls remembers. What is forgotten costs a list of a pod.
const maxMade = 10_000

// NewCalls wraps a CRI client.
func NewCalls(client internalapi.RuntimeService) *Calls {
	return &Calls{RuntimeService: client, made: make(map[string]string)}
}

// TellCalls sets the receiver of the kubelet's calls that change the runtime, so that the generator
// need not discover their effects.
func (c *Calls) TellCalls(calling Calling) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calling = calling
}

// SandboxOf returns the sandbox of a container or sandbox that an own call has made; empty if there
// is none such.
func (c *Calls) SandboxOf(id string) (sandbox string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made[id]
}

// announce reports the start of an own call, and returns the function that reports its end.
func (c *Calls) announce(call pleg.OwnCall) (returned func(err error, now ...pleg.Item)) {
	c.mu.Lock()
	calling := c.calling
	c.mu.Unlock()
	if calling == nil {
		return func(error, ...pleg.Item) {}
	}
	return calling(call)
}

// errNoAnswer is the reported error of a call that ended in a panic.
var errNoAnswer = errors.New("embed: the call has not been answered")

// change makes a call that changes the runtime, and tells of it before and after. send makes the
// call and returns its effect.
func (c *Calls) change(call pleg.OwnCall, send func() (pleg.Item, error)) {
	returned := c.announce(call)
	err := errNoAnswer
	now := pleg.Item{}
	defer func() {
		if err != nil {
			returned(err)
			return
		}
		returned(nil, now)
	}()
	now, err = send()
}

// changeByID is change for calls that name their subject and have no result.
func (c *Calls) changeByID(now pleg.Item, send func() error) (err error) {
	c.change(pleg.OwnCall{ID: now.ID}, func() (pleg.Item, error) {
		err = send()
		return now, err
	})
	return err
}

// keep remembers the sandbox of an item that a call has made.
func (c *Calls) keep(id, sandbox string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.made) >= maxMade {
		clear(c.made)
	}
	c.made[id] = sandbox
}

// drop forgets a removed item, and with a sandbox what was made in it.
func (c *Calls) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.made, func(of, sandbox string) bool { return of == id || sandbox == id })
}

// podOf returns the pod in a sandbox's configuration.
func podOf(config *runtimeapi.PodSandboxConfig) pleg.PodRef {
	m := config.GetMetadata()
	return pleg.PodRef{UID: cache.UID(m.GetUid()), Name: m.GetName(), Namespace: m.GetNamespace()}
}

// RunPodSandbox makes a sandbox.
func (c *Calls) RunPodSandbox(
	ctx context.Context,
	config *runtimeapi.PodSandboxConfig,
	handler string,
) (id string, err error) {
	c.change(pleg.OwnCall{Pod: podOf(config)}, func() (pleg.Item, error) {
		if id, err = c.RuntimeService.RunPodSandbox(ctx, config, handler); err == nil {
			c.keep(id, id)
		}
		return pleg.Item{ID: id, Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}, err
	})
	return id, err
}

// CreateContainer makes a container.
func (c *Calls) CreateContainer(
	ctx context.Context,
	sandbox string,
	config *runtimeapi.ContainerConfig,
	sandboxConfig *runtimeapi.PodSandboxConfig,
) (id string, err error) {
	c.change(pleg.OwnCall{Pod: podOf(sandboxConfig)}, func() (pleg.Item, error) {
		if id, err = c.RuntimeService.CreateContainer(ctx, sandbox, config, sandboxConfig); err == nil {
			c.keep(id, sandbox)
		}
		return pleg.Item{ID: id, Phase: pleg.PhaseCreated, Name: config.GetMetadata().GetName()}, err
	})
	return id, err
}

// StartContainer starts a container.
func (c *Calls) StartContainer(ctx context.Context, id string) error {
	return c.changeByID(pleg.Item{ID: id, Phase: pleg.PhaseRunning},
		func() error { return c.RuntimeService.StartContainer(ctx, id) })
}

// StopContainer stops a container.
func (c *Calls) StopContainer(ctx context.Context, id string, timeout int64) error {
	return c.changeByID(pleg.Item{ID: id, Phase: pleg.PhaseExited},
		func() error { return c.RuntimeService.StopContainer(ctx, id, timeout) })
}

// RemoveContainer removes a container.
func (c *Calls) RemoveContainer(ctx context.Context, id string) error {
	c.drop(id)
	return c.changeByID(pleg.Item{ID: id, Phase: pleg.PhaseRemoved},
		func() error { return c.RuntimeService.RemoveContainer(ctx, id) })
}

// StopPodSandbox stops a sandbox and its containers.
func (c *Calls) StopPodSandbox(ctx context.Context, id string) error {
	return c.changeByID(pleg.Item{ID: id, Kind: pleg.Sandbox, Phase: pleg.PhaseExited},
		func() error { return c.RuntimeService.StopPodSandbox(ctx, id) })
}

// RemovePodSandbox removes a sandbox and its containers.
func (c *Calls) RemovePodSandbox(ctx context.Context, id string) error {
	c.drop(id)
	return c.changeByID(pleg.Item{ID: id, Kind: pleg.Sandbox, Phase: pleg.PhaseRemoved},
		func() error { return c.RuntimeService.RemovePodSandbox(ctx, id) })
}

// UpdateContainerResources changes a container's limits. No phase changes, no event comes and no
// list shows the change: the announced call has the generator read the pod's statuses, of which the
// answer tells nothing.
func (c *Calls) UpdateContainerResources(
	ctx context.Context,
	id string,
	resources *runtimeapi.ContainerResources,
) (err error) {
	returned := c.announce(pleg.OwnCall{ID: id})
	err = errNoAnswer
	defer func() { returned(err) }()
	err = c.RuntimeService.UpdateContainerResources(ctx, id, resources)
	return err
}
