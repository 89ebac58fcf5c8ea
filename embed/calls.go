// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"cmp"
	"context"
	"errors"
	"sync"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Calling receives the kubelet's own calls: see [pleg.Generator.Calling].
type Calling func(pleg.OwnCall) (returned func(err error, now ...pleg.Item))

// change is a call that changes the runtime.
type change struct {
	// now is the item made or named by the call, as after a call without error. The ID is empty if
	// the call makes the item, and the phase is unknown if the call changes none. Kind and phase tell
	// the calls apart.
	now     pleg.Item
	pod     pleg.PodRef // of an item to be made
	sandbox string      // of a container to be made
}

// Calls is a kubelet's CRI client that tells a generator of the kubelet's calls that change the
// runtime, and answers nothing itself. A Calls is safe for concurrent use and starts nothing.
type Calls struct {
	internalapi.RuntimeService

	// inner hears of a call after the generator, and of the answer before the generator.
	inner func(change) (answered func(made string, err error))

	mu      sync.Mutex // owns the fields below; never held during a call
	calling Calling    // nil without a receiver
	made    madeItems
}

// NewCalls wraps a CRI client.
func NewCalls(client internalapi.RuntimeService) *Calls {
	nobody := func(change) func(string, error) { return func(string, error) {} }
	return &Calls{RuntimeService: client, inner: nobody}
}

// TellCalls sets the receiver of the kubelet's calls that change the runtime, so that the generator
// need not discover their effects.
func (c *Calls) TellCalls(calling Calling) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calling = calling
}

// SandboxOf returns the sandbox of a container or sandbox that an own call has made, up to an own
// call that has removed the item or its sandbox; empty if there is none such.
func (c *Calls) SandboxOf(id string) (sandbox string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made.of[id]
}

// announce reports the start of an own call, and returns the function that reports its end.
func (c *Calls) announce(call change) (returned func(err error, now ...pleg.Item)) {
	c.mu.Lock()
	calling := c.calling
	c.mu.Unlock()
	if calling == nil {
		return func(error, ...pleg.Item) {}
	}
	return calling(pleg.OwnCall{Pod: call.pod, ID: call.now.ID})
}

// errNoAnswer is the reported error of a call that ended in a panic.
var errNoAnswer = errors.New("embed: the call has not been answered")

// do makes a call, and tells of the call before and after. send makes the call and returns the ID
// of the item made.
func (c *Calls) do(call change, send func() (made string, err error)) (made string, err error) {
	returned := c.announce(call)
	answered := c.inner(call)
	err = errNoAnswer
	defer func() {
		answered(made, err)
		if err != nil {
			returned(err)
			return
		}
		c.note(call, made)
		if call.now.Phase == pleg.PhaseUnknown {
			returned(nil)
			return
		}
		call.now.ID = cmp.Or(call.now.ID, made)
		returned(nil, call.now)
	}()
	made, err = send()
	return made, err
}

// doByID is do for calls that name their subject and make nothing.
func (c *Calls) doByID(now pleg.Item, send func() error) error {
	_, err := c.do(change{now: now}, func() (string, error) { return "", send() })
	return err
}

// note remembers the sandbox of an ID made by an answered call, or forgets an ID that was removed.
// An ID is never used again, so nothing remembered is ever wrong: an ID goes to give up its memory,
// and not before the answer. Reads beside a removal, which its event may cause, and those after a
// failed removal ask for the ID, where an unknown ID would have its pod listed. A removal that
// failed and works nevertheless leaves the ID behind, up to a removal of its sandbox or to maxMade.
func (c *Calls) note(call change, made string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case call.now.Phase == pleg.PhaseRemoved:
		c.made.drop(call.now.ID)
	case made != "":
		c.made.keep(made, cmp.Or(call.sandbox, made))
	}
}

// madeItems are the sandboxes of items. The zero value has none.
type madeItems struct {
	of  map[string]string              // by item; a sandbox is in itself
	all map[string]map[string]struct{} // items by sandbox; never empty
}

// maxMade bounds the items of madeItems. A forgotten item costs a list of its pod.
const maxMade = 10_000

// keep remembers the sandbox of an item.
func (s *madeItems) keep(id, sandbox string) {
	if s.of == nil || len(s.of) >= maxMade {
		s.of = make(map[string]string)
		s.all = make(map[string]map[string]struct{})
	}
	s.of[id] = sandbox
	if s.all[sandbox] == nil {
		s.all[sandbox] = make(map[string]struct{})
	}
	s.all[sandbox][id] = struct{}{}
}

// drop forgets an item, and with a sandbox its containers, at a cost that grows with their number.
func (s *madeItems) drop(id string) {
	for inside := range s.all[id] {
		delete(s.of, inside)
	}
	delete(s.all, id)
	sandbox, known := s.of[id]
	if !known {
		return
	}
	delete(s.of, id)
	delete(s.all[sandbox], id)
	if len(s.all[sandbox]) == 0 {
		delete(s.all, sandbox)
	}
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
	return c.do(
		change{now: pleg.Item{Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}, pod: podOf(config)},
		func() (string, error) { return c.RuntimeService.RunPodSandbox(ctx, config, handler) },
	)
}

// CreateContainer makes a container.
func (c *Calls) CreateContainer(
	ctx context.Context,
	sandbox string,
	config *runtimeapi.ContainerConfig,
	sandboxConfig *runtimeapi.PodSandboxConfig,
) (id string, err error) {
	return c.do(
		change{
			now:     pleg.Item{Phase: pleg.PhaseCreated, Name: config.GetMetadata().GetName()},
			pod:     podOf(sandboxConfig),
			sandbox: sandbox,
		},
		func() (string, error) {
			return c.RuntimeService.CreateContainer(ctx, sandbox, config, sandboxConfig)
		},
	)
}

// StartContainer starts a container.
func (c *Calls) StartContainer(ctx context.Context, id string) error {
	return c.doByID(pleg.Item{ID: id, Phase: pleg.PhaseRunning},
		func() error { return c.RuntimeService.StartContainer(ctx, id) })
}

// StopContainer stops a container.
func (c *Calls) StopContainer(ctx context.Context, id string, timeout int64) error {
	return c.doByID(pleg.Item{ID: id, Phase: pleg.PhaseExited},
		func() error { return c.RuntimeService.StopContainer(ctx, id, timeout) })
}

// RemoveContainer removes a container.
func (c *Calls) RemoveContainer(ctx context.Context, id string) error {
	return c.doByID(pleg.Item{ID: id, Phase: pleg.PhaseRemoved},
		func() error { return c.RuntimeService.RemoveContainer(ctx, id) })
}

// StopPodSandbox stops a sandbox and its containers.
func (c *Calls) StopPodSandbox(ctx context.Context, id string) error {
	return c.doByID(pleg.Item{ID: id, Kind: pleg.Sandbox, Phase: pleg.PhaseExited},
		func() error { return c.RuntimeService.StopPodSandbox(ctx, id) })
}

// RemovePodSandbox removes a sandbox and its containers.
func (c *Calls) RemovePodSandbox(ctx context.Context, id string) error {
	return c.doByID(pleg.Item{ID: id, Kind: pleg.Sandbox, Phase: pleg.PhaseRemoved},
		func() error { return c.RuntimeService.RemovePodSandbox(ctx, id) })
}

// UpdateContainerResources changes a container's limits. No phase changes, no event comes and no
// list shows the change: the announced call has the generator read the pod's statuses, of which the
// answer tells nothing.
func (c *Calls) UpdateContainerResources(
	ctx context.Context,
	id string,
	resources *runtimeapi.ContainerResources,
) error {
	return c.doByID(pleg.Item{ID: id},
		func() error { return c.RuntimeService.UpdateContainerResources(ctx, id, resources) })
}
