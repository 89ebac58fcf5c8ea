// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A ContainerSpec describes a container for [Runtime.AddContainer]. Every field can be left zero.
type ContainerSpec struct {
	// Name defaults to c0, c1 … by the number of containers in the sandbox. A name in use in the
	// sandbox gets the next attempt.
	Name string
	// Life determines the natural end of a started container. The zero value runs until stopped.
	Life Life
	// Labels are added to those of every container of a pod.
	Labels map[string]string
}

// view is the mutable part of a container.
type view struct {
	state                 State
	startedAt, finishedAt int64
	exitCode              int32
	reason, message       string
}

// container is a container. All but view, prev and held is fixed once stored.
type container struct {
	id, name, labelUID  string
	attempt             uint32
	sb                  *sandbox
	image, userImage    string
	imageRef            string
	labels, annotations map[string]string // nil once encoded
	blob                []byte            // runtime.v1.Container without its state
	tail                *tail             // more constant fields; those of the direct methods' objects are shared
	resources           []byte            // field 16 of the status, encoded; nil: none set
	user                []byte            // field 18 of the status, encoded; nil: the profile's runtime does not tell
	createdAt           int64
	life                Life
	tasks               []*task // of its life by itself: what it prints, and its end
	program             *program
	logPath             string

	view
	prev *view // the state before, for stale payloads
	held *heldEvent
	text string // the content last recorded
}

// idle is the program of a container that the direct methods made.
var idle = &program{}

const (
	exitKilled  = 137
	exitTerm    = 143
	exitUnknown = 255
	exitStart   = 128
	exitUnborn  = 2
)

// termCode is the exit code of a container that obeys SIGTERM.
func (c *container) termCode() int32 {
	if c.program.pause {
		return 0
	}
	return exitTerm
}

// stopCode is the exit code of a container stopped by the runtime without a grace period.
func (rt *Runtime) stopCode(c *container) int32 {
	if rt.cfg.Profile.GracefulStops && !c.program.ignoreTerm {
		return c.termCode()
	}
	return exitKilled
}

// sameName reports whether two containers of a sandbox cannot coexist.
func (c *container) sameName(other *container) bool {
	return c.attempt == other.attempt && c.name == other.name
}

func (c *container) withPodLabels(extra map[string]string) map[string]string {
	m := c.sb.withPodLabels(extra)
	m[labelContainerName] = c.name
	return m
}

// kubeletAnnotations are a kubelet's annotations of every container, besides commonAnnotations.
func (c *container) kubeletAnnotations() map[string]string {
	return map[string]string{
		"io.kubernetes.container.hash":         strconv.FormatUint(hashOf(0, c.name)&0xffffffff, 16),
		"io.kubernetes.container.restartCount": itoa(c.attempt),
	}
}

// commonAnnotations have the same value in most containers.
var commonAnnotations = map[string]string{
	"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
	"io.kubernetes.container.terminationMessagePolicy": "File",
	"io.kubernetes.pod.terminationGracePeriod":         "30",
}

// encode builds the blob from the fields, and drops the maps.
func (c *container) encode() {
	c.blob = encode(&runtimeapi.Container{
		Id:           c.id,
		PodSandboxId: c.sb.id,
		Metadata:     &runtimeapi.ContainerMetadata{Name: c.name, Attempt: c.attempt},
		Image:        &runtimeapi.ImageSpec{Image: c.image, UserSpecifiedImage: c.userImage},
		ImageRef:     c.imageRef,
		ImageId:      c.imageRef,
		CreatedAt:    c.createdAt,
	})
	c.blob = bytes.Clone(appendMap(appendMap(c.blob, 8, c.labels), 9, c.annotations))
	c.labelUID = c.labels[labelPodUID]
	c.labels = nil
	c.annotations = nil
}

// message returns the list's item.
func (c *container) message() *runtimeapi.Container {
	return decode[runtimeapi.Container](c.appendItem(nil, c.state))
}

// appendItem writes the fields of a runtime.v1.Container.
func (c *container) appendItem(b []byte, state State) []byte {
	b = append(b, c.blob...)
	b = append(b, c.tail.item...)
	return appendInt(b, 6, state.enum())
}

// appendStatus writes the fields of a runtime.v1.ContainerStatus. Like that of a real runtime, the
// message begins with what tells the container and its state: clients look for them there.
func (c *container) appendStatus(b []byte, v view) []byte {
	b = appendInt(b, 3, v.state.enum())
	b = appendRenumbered(b, c.blob, &containerToStatus)
	b = append(b, c.tail.status...)
	b = appendInt(b, 5, v.startedAt)
	b = appendInt(b, 6, v.finishedAt)
	b = appendInt(b, 7, int64(v.exitCode))
	b = appendString(b, 10, v.reason)
	b = appendString(b, 11, v.message)
	b = append(b, c.resources...)
	return append(b, c.user...)
}

// kubeletMounts are like those of a kubelet for a container.
var kubeletMounts = []*runtimeapi.Mount{
	{ContainerPath: "/etc/hosts", HostPath: "/var/lib/kubelet/pods/pod/etc-hosts"},
	{ContainerPath: "/dev/termination-log", HostPath: "/var/lib/kubelet/pods/pod/containers/c/0"},
	{
		ContainerPath: "/var/run/secrets/kubernetes.io/serviceaccount",
		HostPath:      "/var/lib/kubelet/pods/pod/volumes/kubernetes.io~projected/kube-api-access",
		Readonly:      true,
	},
}

// The methods of listed.
func (c *container) ident() string                          { return c.id }
func (c *container) isBare() bool                           { return false }
func (c *container) current() State                         { return c.state }
func (c *container) encoded() (blob, tail []byte)           { return c.blob, c.tail.item }
func (c *container) fields() (state, text protowire.Number) { return 6, 5 }
func (c *container) labelMap() map[string]string            { return c.message().Labels }
func (c *container) podLabel() string                       { return c.labelUID }
func (c *container) appendIDs(b []byte) []byte {
	return appendString(appendString(b, 1, c.id), 2, c.sb.id)
}

// AddContainer makes a container in the sandbox, emits its event, and returns its ID.
func (rt *Runtime) AddContainer(sandboxID string, spec ContainerSpec) (containerID string, err error) {
	err = rt.onSandbox("AddContainer", sandboxID, func(sb *sandbox) error {
		if err := spec.Life.validate(); err != nil {
			return fmt.Errorf("fakeruntime: AddContainer: %w", err)
		}
		if !sendable(spec.Labels, spec.Name) {
			return fmt.Errorf(
				"fakeruntime: AddContainer: name %q or labels %q are not all UTF-8: they cannot be sent",
				spec.Name,
				spec.Labels,
			)
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
		id:      rt.ids.hex64(),
		name:    cmp.Or(spec.Name, "c"+strconv.Itoa(len(sb.containers))),
		sb:      sb,
		image:   WorkloadImage,
		life:    spec.Life,
		program: idle,
	}
	for _, other := range sb.containers {
		if other.name == c.name {
			c.attempt = max(c.attempt, other.attempt+1)
		}
	}
	c.labels = c.withPodLabels(spec.Labels)
	c.annotations = c.kubeletAnnotations()
	c.tail = rt.containerTail
	c.user = rt.rootUser
	return c
}

// placeContainer adds the fields set by the runtime alone, and stores the container.
func (rt *Runtime) placeContainer(c *container) {
	img := rt.imageOf(c.image)
	c.userImage = cmp.Or(c.userImage, c.image)
	c.imageRef = img.id
	c.createdAt = rt.stamp()
	if rt.roll(rollNoCreationTime, rt.faults.NoCreationTime, c.id) {
		c.createdAt = 0
	}
	c.encode()
	c.state = StateCreated
	rt.store.addContainer(c)
	rt.written(c)
}

// admit reports why a container cannot be created in its sandbox.
func (rt *Runtime) admit(c *container) error {
	if c.sb.state != StateReady || c.sb.removing {
		return fmt.Errorf("%w: sandbox %q is not ready: a container cannot be created in it", ErrState, c.sb.id)
	}
	if i := slices.IndexFunc(c.sb.containers, c.sameName); i >= 0 {
		return fmt.Errorf(
			"%w: container %s_%s_%d is reserved for %q",
			ErrExists,
			c.name,
			c.sb.id,
			c.attempt,
			c.sb.containers[i].id,
		)
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
	c.prev = &old
	c.view = v
}

// Start starts a created container. With Faults.StartError, or of a command or a log file that
// cannot be opened, the start fails like a real start: the container is EXITED, code 128.
func (rt *Runtime) Start(containerID string) error {
	return rt.onContainer("Start", containerID, func(c *container) error {
		_, err := rt.startContainer(c)
		return err
	})
}

func (rt *Runtime) startContainer(c *container) (*event, error) {
	if c.state != StateCreated {
		return nil, fmt.Errorf(
			"%w: container %q is %v: only a created container can be started",
			ErrState,
			c.id,
			c.state,
		)
	}
	if c.sb.state != StateReady || c.sb.removing {
		return nil, fmt.Errorf(
			"%w: sandbox %q is not ready: container %q cannot be started",
			ErrState,
			c.sb.id,
			c.id,
		)
	}
	now := rt.stamp()
	if err := rt.failure(c); err != nil {
		c.set(view{
			state:      StateExited,
			finishedAt: now,
			exitCode:   exitStart,
			reason:     "StartError",
			message:    err.Error(),
		})
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
		c.tasks = append(c.tasks, rt.sched.after(
			c.life.For+rt.cfg.Profile.ExitLag,
			func() { rt.exit(c, c.life.ExitCode, "", "") },
		))
	}
}

// Exit ends a running container with the exit code. While the runtime is down (see [Runtime.Down])
// nobody sees the exit: it shows as EXITED 255 Unknown later. Of the direct methods Exit alone
// works then; after [Runtime.Close] it fails like the others.
func (rt *Runtime) Exit(containerID string, code int32) error {
	rt.lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return fmt.Errorf("fakeruntime: Exit: %w", ErrDown)
	}
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
	rt.sched.cancel(c.tasks...)
	c.tasks = nil
	old := c.state
	v := view{
		state:     StateExited,
		startedAt: c.startedAt,
		exitCode:  code,
		reason:    reason,
		message:   message,
	}
	v.finishedAt = max(rt.stamp()-int64(rt.faults.ExitLag+rt.cfg.Profile.ExitLag), c.startedAt)
	if rt.process != processUp {
		v.exitCode = exitUnknown
		v.reason = "Unknown"
		c.set(v)
		rt.unseen = append(rt.unseen, c)
		rt.record(c.sb, c, old, StateExited, nil)
		return
	}
	v = rt.hold255(c, v)
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
	c.set(view{
		state:      StateExited,
		finishedAt: max(now-int64(rt.cfg.Profile.ExitLag), c.createdAt),
		exitCode:   exitUnborn,
		reason:     "Error",
	})
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
	rt.keepListed(c)
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
	ch := Change{
		Time:      time.Now(),
		PodUID:    sb.uid,
		SandboxID: sb.id,
		Old:       old,
		New:       now,
	}
	if c != nil {
		rt.written(c)
		ch.ContainerID = c.id
		ch.ContainerName = c.name
		if now == StateExited {
			ch.ExitCode = c.exitCode
		}
	}
	seq := rt.history.add(ch)
	if ev != nil {
		ev.change = seq
		ev.recorded = true
		rt.settle(ev, ev.how)
	}
}
