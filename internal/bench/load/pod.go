// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// logSuffix ends the name of every container's log file.
const logSuffix = ".log"

// longLife is the life of a container meant to stay until stopped.
const longLife = 24 * time.Hour

// pod is a place for a pod, replaced now and then. The driver's mutex owns busy, broken, jobs,
// failures and retry; the rest belongs to the goroutine that has set busy.
type pod struct {
	index int
	// busy: an action that needs the pod for itself is under way.
	busy bool
	// broken: a call failed, so the pod must be replaced. Also true before the first pod.
	broken bool
	// jobs are the short jobs under way in the pod.
	jobs int
	// failures counts the repairs that failed one after another; retry is when the next one is due.
	failures int
	retry    time.Time

	generation int
	uid        string
	sandbox    string // empty: none
	config     *runtimeapi.PodSandboxConfig
	slots      []string // the container in each slot; empty: none
	attempts   int
}

func (d *Driver) labels(p *pod) map[string]string {
	return map[string]string{
		RunLabel:          d.config.RunID,
		LabelPodUID:       p.uid,
		LabelPodName:      p.config.Metadata.Name,
		LabelPodNamespace: d.config.Namespace,
	}
}

func (d *Driver) namespaces() *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
		Ipc:     runtimeapi.NamespaceMode_POD,
	}
	if d.config.HostNetwork {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	return o
}

// fact reports the effect of a call, with OnChange at the runtime's time of the change.
func (d *Driver) fact(ctx context.Context, p *pod, id string, sandbox bool, state pleg.Phase) {
	now := bench.Now()
	d.config.OnFact(Fact{
		Pod:     p.uid,
		ID:      id,
		Sandbox: sandbox,
		State:   state,
		At:      now,
	})
	d.count(func(s *Stats) { s.Changes++ })
	if d.config.OnChange == nil {
		return
	}
	change := bench.Change{
		Pod:     p.uid,
		ID:      id,
		Sandbox: sandbox,
		State:   state,
		At:      now,
		Inexact: true,
	}
	if !sandbox && (state == pleg.PhaseRunning || state == pleg.PhaseExited) {
		_ = d.ask(ctx, func(ctx context.Context) error {
			answer, err := d.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
			at := answer.GetStatus().GetStartedAt()
			if state == pleg.PhaseExited {
				at = answer.GetStatus().GetFinishedAt()
			}
			if err == nil && at > 0 {
				change.At = at
				change.Inexact = false
			}
			return err
		})
	}
	d.config.OnChange(change)
}

// makePod makes the next pod of a place with all its containers.
func (d *Driver) makePod(ctx context.Context, p *pod) error {
	p.generation++
	p.uid = uidOf(d.config.RunID, p.index, p.generation)
	p.attempts = 0
	p.slots = make([]string, d.config.Containers)
	p.config = &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name:      fmt.Sprintf("pod-%04d-%d", p.index, p.generation),
			Namespace: d.config.Namespace,
			Uid:       p.uid,
		},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    d.config.CgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: d.namespaces()},
		},
		// Containers of all pods share the folder: their log paths differ.
		LogDirectory: d.config.LogDirectory,
	}
	p.config.Labels = d.labels(p)
	answer, err := invoke(
		ctx,
		d,
		p,
		"RunPodSandbox",
		d.client.RunPodSandbox,
		&runtimeapi.RunPodSandboxRequest{Config: p.config},
	)
	if err != nil {
		return err
	}
	p.sandbox = answer.GetPodSandboxId()
	d.fact(ctx, p, p.sandbox, true, pleg.PhaseRunning)
	for slot := range p.slots {
		if err := d.fillSlot(ctx, p, slot); err != nil {
			return err
		}
	}
	return nil
}

// removePod stops and removes the pod of a place, if any.
func (d *Driver) removePod(ctx context.Context, p *pod) error {
	if p.sandbox == "" {
		return nil
	}
	told := func(state pleg.Phase) {
		for _, id := range p.slots {
			if id != "" {
				d.fact(ctx, p, id, false, state)
			}
		}
		d.fact(ctx, p, p.sandbox, true, state)
	}
	_, err := invoke(
		ctx,
		d,
		p,
		"StopPodSandbox",
		d.client.StopPodSandbox,
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: p.sandbox},
	)
	if err == nil {
		told(pleg.PhaseExited)
	}
	if err == nil || gone(err) {
		_, err = invoke(
			ctx,
			d,
			p,
			"RemovePodSandbox",
			d.client.RemovePodSandbox,
			&runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.sandbox},
		)
	}
	if err != nil && !gone(err) {
		return err
	}
	told(pleg.PhaseRemoved)
	p.sandbox = ""
	p.slots = nil
	return nil
}

// fillSlot makes and starts the long-lived container of a slot.
func (d *Driver) fillSlot(ctx context.Context, p *pod, slot int) error {
	id, err := d.startContainer(
		ctx,
		p,
		fmt.Sprintf("c%d", slot),
		d.nextAttempt(p),
		longLife,
		func(id string) { p.slots[slot] = id },
	)
	if err != nil {
		return err
	}
	p.slots[slot] = id
	return nil
}

// nextAttempt numbers the containers of a pod, so that no name is reused, not even after a call
// with an unknown outcome.
func (d *Driver) nextAttempt(p *pod) uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.attempts++
	return uint32(p.attempts)
}

// startContainer creates and starts a container. Created is called in between.
func (d *Driver) startContainer(
	ctx context.Context,
	p *pod,
	name string,
	attempt uint32,
	life time.Duration,
	created func(id string),
) (string, error) {
	labels := d.labels(p)
	labels[LabelContainerName] = name
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
		Image: &runtimeapi.ImageSpec{
			Image:              d.config.Image,
			UserSpecifiedImage: d.config.Image,
		}, // CRI-O checks signatures by the latter
		Labels:  labels,
		LogPath: fmt.Sprintf("%s_%s_%d%s", p.uid, name, attempt, logSuffix),
		Linux: &runtimeapi.LinuxContainerConfig{
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: d.namespaces()},
		},
	}
	for _, arg := range d.config.Args {
		config.Args = append(
			config.Args,
			strings.ReplaceAll(arg, "{life}", strconv.FormatFloat(life.Seconds(), 'f', -1, 64)+"s"),
		)
	}
	create := &runtimeapi.CreateContainerRequest{
		PodSandboxId:  p.sandbox,
		Config:        config,
		SandboxConfig: p.config,
	}
	answer, err := invoke(ctx, d, p, "CreateContainer", d.client.CreateContainer, create)
	if err != nil {
		return "", err
	}
	id := answer.GetContainerId()
	created(id)
	d.fact(ctx, p, id, false, pleg.PhaseCreated)
	if _, err := invoke(ctx, d, p, "StartContainer", d.client.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return "", err
	}
	d.fact(ctx, p, id, false, pleg.PhaseRunning)
	return id, nil
}

// removeContainer removes an ended container.
func (d *Driver) removeContainer(ctx context.Context, p *pod, id string) error {
	if _, err := invoke(ctx, d, p, "RemoveContainer", d.client.RemoveContainer, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		return err
	}
	d.fact(ctx, p, id, false, pleg.PhaseRemoved)
	return nil
}
