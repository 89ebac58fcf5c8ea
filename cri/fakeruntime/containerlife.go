// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// AddContainer makes a container in the sandbox, emits its event, and returns its ID.
func (rt *Runtime) AddContainer(sandboxID string, spec ContainerSpec) (containerID string, err error) {
	err = rt.onSandbox("AddContainer", sandboxID, func(sb *sandbox) error {
		if err := spec.Life.validate(); err != nil {
			return fmt.Errorf("fakeruntime: AddContainer: %w", err)
		}
		c := rt.newContainer(sb, spec)
		if err := rt.admit(c); err != nil {
			return err
		}
		rt.addCreated(c)
		containerID = c.id
		return nil
	})
	return containerID, err
}

// newContainer makes a container for the direct methods, with a kubelet's labels and size.
func (rt *Runtime) newContainer(sb *sandbox, spec ContainerSpec) *container {
	c := &container{
		id: rt.ids.hex64(), name: cmp.Or(spec.Name, "c"+strconv.Itoa(len(sb.containers))), sb: sb,
		image: WorkloadImage, life: spec.Life, program: idle,
	}
	for _, other := range sb.containers {
		if other.name == c.name {
			c.attempt = max(c.attempt, other.attempt+1)
		}
	}
	c.labels = c.withPodLabels(spec.Labels)
	c.annotations = c.kubeletAnnotations()
	c.tail, c.user = rt.containerTail, rt.rootUser
	return c
}

// placeContainer adds the fields set by the runtime alone, and stores the container.
func (rt *Runtime) placeContainer(c *container) {
	img := rt.imageOf(c.image)
	c.userImage, c.imageRef = cmp.Or(c.userImage, c.image), img.id
	c.createdAt = rt.stamp()
	c.encode()
	c.state = StateCreated
	rt.store.addContainer(c)
}

// admit reports why a container cannot be created in its sandbox.
func (rt *Runtime) admit(c *container) error {
	if c.sb.state != StateReady || c.sb.removing {
		return fmt.Errorf("%w: sandbox %q is not ready: a container cannot be created in it", ErrState, c.sb.id)
	}
	if i := slices.IndexFunc(c.sb.containers, c.sameName); i >= 0 {
		return fmt.Errorf("%w: container %s_%s_%d is reserved for %q", ErrExists, c.name, c.sb.id, c.attempt, c.sb.containers[i].id)
	}
	return nil
}

// addCreated stores an admitted container, and emits its event.
func (rt *Runtime) addCreated(c *container) *event {
	rt.placeContainer(c)
	ev := rt.emitContainer(c, eventCreated)
	rt.record(c.sb, c, StateNone, StateCreated, ev)
	return ev
}

// set moves the container to another state.
func (c *container) set(v view) {
	old := c.view
	c.prev, c.view = &old, v
}

// Start starts a created container. With Faults.StartError the start can fail like a real start:
// the container is EXITED, code 128.
func (rt *Runtime) Start(containerID string) error {
	return rt.onContainer("Start", containerID, func(c *container) error {
		_, err := rt.startContainer(c)
		return err
	})
}

func (rt *Runtime) startContainer(c *container) (*event, error) {
	if c.state != StateCreated {
		return nil, fmt.Errorf("%w: container %q is %v: only a created container can be started", ErrState, c.id, c.state)
	}
	if c.sb.state != StateReady || c.sb.removing {
		return nil, fmt.Errorf("%w: sandbox %q is not ready: container %q cannot be started", ErrState, c.sb.id, c.id)
	}
	now := rt.stamp()
	if err := rt.failure(c); err != nil {
		c.set(view{state: StateExited, finishedAt: now, exitCode: exitStart, reason: "StartError", message: err.Error()})
		rt.record(c.sb, c, StateCreated, StateExited, nil)
		return nil, err
	}
	c.set(view{state: StateRunning, startedAt: now})
	ev := rt.emitContainer(c, eventStarted)
	rt.record(c.sb, c, StateCreated, StateRunning, ev)
	rt.limitLife(c)
	return ev, nil
}

// failure starts the container's log, and returns the reason why the container cannot be started.
func (rt *Runtime) failure(c *container) error {
	reason := "virtual failure"
	switch {
	case c.program.missing:
		reason = missingCommand + ": no such file or directory"
	case !rt.roll(rollStartError, rt.faults.StartError, c.id):
		err := rt.startLog(c)
		if err == nil {
			return nil
		}
		reason = err.Error()
	}
	return fmt.Errorf("%w: container %q: failed to create containerd task: %s", ErrStart, c.id, reason)
}

// limitLife arranges the end of a container just started.
func (rt *Runtime) limitLife(c *container) {
	if c.life.Ends {
		rt.sched.after(c.life.For+rt.cfg.Profile.ExitLag, func() { rt.exit(c, c.life.ExitCode, "", "") })
	}
}

// Exit ends a running container with the exit code. While the runtime is down (see [Runtime.Down])
// nobody sees the exit: it shows as EXITED 255 Unknown later.
func (rt *Runtime) Exit(containerID string, code int32) error {
	rt.lock()
	defer rt.mu.Unlock()
	c, ok := rt.store.containers.get(containerID)
	if !ok {
		return fmt.Errorf("fakeruntime: Exit: %w: container %q", ErrNotFound, containerID)
	}
	if c.state != StateRunning {
		return fmt.Errorf("fakeruntime: Exit: %w: container %q is %v", ErrState, containerID, c.state)
	}
	rt.exit(c, code, "", "")
	return nil
}

// exit ends a running container; any other is left alone. The code determines an empty reason.
func (rt *Runtime) exit(c *container, code int32, reason, message string) {
	if _, there := rt.store.containers.get(c.id); !there || c.state != StateRunning && c.state != StateUnknown {
		return
	}
	if reason == "" {
		reason = "Completed"
		if code != 0 {
			reason = "Error"
		}
	}
	old := c.state
	v := view{state: StateExited, startedAt: c.startedAt, exitCode: code, reason: reason, message: message}
	v.finishedAt = max(rt.stamp()-int64(rt.faults.ExitLag+rt.cfg.Profile.ExitLag), c.startedAt)
	if rt.phase != phaseUp {
		v.exitCode, v.reason = exitUnknown, "Unknown"
		c.set(v)
		rt.unseen = append(rt.unseen, c)
		rt.record(c.sb, c, old, StateExited, nil)
		return
	}
	c.set(v)
	ev := &event{how: Faulted}
	if !rt.roll(rollSilentExit, rt.faults.SilentExit, c.id) {
		ev = rt.emitContainer(c, eventStopped)
	}
	rt.record(c.sb, c, old, StateExited, ev)
}

// endUnborn ends a container without a start, where the runtime does so before a removal.
func (rt *Runtime) endUnborn(c *container) {
	now := rt.stamp()
	c.set(view{state: StateExited, finishedAt: max(now-int64(rt.cfg.Profile.ExitLag), c.createdAt), exitCode: exitUnborn, reason: "Error"})
	rt.record(c.sb, c, StateCreated, StateExited, rt.emitContainer(c, eventStopped))
}

// Remove removes a container; a running container is stopped first.
func (rt *Runtime) Remove(containerID string) error {
	return rt.onContainer("Remove", containerID, func(c *container) error {
		rt.removeContainer(c, false)
		return nil
	})
}

func (rt *Runtime) removeContainer(c *container, silent bool) *event {
	if c.state == StateCreated && rt.cfg.Profile.StopsUnborn {
		rt.endUnborn(c)
	}
	rt.exit(c, rt.stopCode(c), "", "")
	old := c.state
	rt.store.removeContainer(c)
	c.sb.ghosts = append(c.sb.ghosts, ghost{c, c.view})
	if len(c.sb.ghosts) > maxGhosts {
		c.sb.ghosts = append(c.sb.ghosts[:0], c.sb.ghosts[1:]...)
	}
	var ev *event
	if !silent {
		ev = rt.emitContainer(c, eventDeleted)
	}
	rt.record(c.sb, c, old, StateRemoved, ev)
	return ev
}

// LoseTrack makes a running container UNKNOWN, without an event.
func (rt *Runtime) LoseTrack(containerID string) error {
	return rt.onContainer("LoseTrack", containerID, func(c *container) error {
		if c.state != StateRunning {
			return fmt.Errorf("fakeruntime: LoseTrack: %w: container %q is %v", ErrState, containerID, c.state)
		}
		v := c.view
		v.state = StateUnknown
		c.set(v)
		rt.record(c.sb, c, StateRunning, StateUnknown, nil)
		return nil
	})
}

// record writes a change into the history and ties it to its event; nil is none.
func (rt *Runtime) record(sb *sandbox, c *container, old, now State, ev *event) {
	ch := Change{Time: time.Now(), PodUID: sb.uid, SandboxID: sb.id, Old: old, New: now}
	if c != nil {
		ch.ContainerID = c.id
		if now == StateExited {
			ch.ExitCode = c.exitCode
		}
	}
	seq := rt.history.add(ch)
	if ev != nil {
		ev.change, ev.recorded = seq, true
		rt.settle(ev, ev.how)
	}
}
