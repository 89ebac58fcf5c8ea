// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A PodSpec describes a pod for [Runtime.AddPod]. Every field can be left zero.
type PodSpec struct {
	// UID names the pod; empty makes a new UID. A UID with sandboxes gets another sandbox, with the
	// next attempt.
	UID string
	// Name and Namespace default to a name made from a counter, and "default".
	Name, Namespace string
	// Labels are added to those of every pod.
	Labels map[string]string
}

// sandbox is an attempt of a pod. All but the fields from state on is fixed once stored.
type sandbox struct {
	id, name, namespace, uid, labelUID string
	attempt                            uint32
	handler                            string
	labels, annotations                map[string]string // nil once encoded, if nothing but blob needs them
	blob                               []byte            // runtime.v1.PodSandbox without its state
	tail                               *tail             // more constant fields; those of the direct methods' objects are shared
	createdAt                          int64
	hostNetwork                        bool
	logDir                             string

	state      State
	ip         string
	containers []*container
	ghosts     []ghost // containers just removed, for stale payloads; at most maxGhosts
	removing   bool    // its DELETED was sent, and it leaves the store soon
	bare       bool    // it has no metadata in lists and statuses any more
	text       string  // the content last recorded
}

// ghost is a removed container in its last state.
type ghost struct {
	c    *container
	view view
}

const maxGhosts = 4

// sameName reports whether two sandboxes of a pod cannot coexist.
func (sb *sandbox) sameName(other *sandbox) bool {
	return sb.attempt == other.attempt && sb.name == other.name && sb.namespace == other.namespace
}

func (sb *sandbox) withPodLabels(extra map[string]string) map[string]string {
	m := map[string]string{labelPodName: sb.name, labelPodNamespace: sb.namespace, labelPodUID: sb.uid}
	maps.Copy(m, extra)
	return m
}

// encode builds the blob from the fields, and drops the maps.
func (sb *sandbox) encode() {
	sb.blob = encode(&runtimeapi.PodSandbox{
		Id: sb.id,
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name:      sb.name,
			Uid:       sb.uid,
			Namespace: sb.namespace,
			Attempt:   sb.attempt,
		},
		CreatedAt:      sb.createdAt,
		RuntimeHandler: sb.handler,
	})
	sb.blob = bytes.Clone(appendMap(appendMap(sb.blob, 5, sb.labels), 6, sb.annotations))
	sb.labelUID = sb.labels[labelPodUID]
	sb.labels = nil
	sb.annotations = nil
}

// message returns the list's item.
func (sb *sandbox) message() *runtimeapi.PodSandbox {
	return decode[runtimeapi.PodSandbox](sb.appendItem(nil, sb.state))
}

// appendItem writes the fields of a runtime.v1.PodSandbox.
func (sb *sandbox) appendItem(b []byte, state State) []byte {
	b = append(b, sb.blob...)
	b = append(b, sb.tail.item...)
	return appendInt(b, 3, state.enum())
}

// appendStatus writes the fields of a runtime.v1.PodSandboxStatus, the state ahead as in that of a
// container.
func (sb *sandbox) appendStatus(b []byte, state State, createdAt int64) []byte {
	b = appendInt(b, 3, state.enum())
	b = appendRenumbered(b, sb.blob, &sandboxToStatus)
	b = append(b, sb.tail.status...)
	if createdAt != sb.createdAt {
		b = appendInt(b, 4, createdAt) // the last of a repeated field counts
	}
	return appendMessage(b, 5, appendString(nil, 1, sb.ip))
}

// appendBareStatus writes the status of a sandbox that has no metadata.
func (sb *sandbox) appendBareStatus(b []byte) []byte {
	return appendInt(sb.appendIDs(b), 3, sb.state.enum())
}

// namespaces are the namespaces in a sandbox's status.
func namespaces(o *runtimeapi.NamespaceOption) *runtimeapi.LinuxPodSandboxStatus {
	return &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: o}}
}

// The methods of listed.
func (sb *sandbox) ident() string                          { return sb.id }
func (sb *sandbox) isBare() bool                           { return sb.bare }
func (sb *sandbox) current() State                         { return sb.state }
func (sb *sandbox) encoded() (blob, tail []byte)           { return sb.blob, sb.tail.item }
func (sb *sandbox) fields() (state, text protowire.Number) { return 3, 7 }
func (sb *sandbox) labelMap() map[string]string            { return sb.message().Labels }
func (sb *sandbox) podLabel() string                       { return sb.labelUID }
func (sb *sandbox) appendIDs(b []byte) []byte              { return appendString(b, 1, sb.id) }

// AddPod makes a ready sandbox, emits its events, and returns its ID.
func (rt *Runtime) AddPod(spec PodSpec) (sandboxID string, err error) {
	rt.lock()
	defer rt.mu.Unlock()
	if err := rt.usable("AddPod"); err != nil {
		return "", err
	}
	if !sendable(spec.Labels, spec.UID, spec.Name, spec.Namespace) {
		return "", fmt.Errorf("fakeruntime: AddPod: %q is not all UTF-8: it cannot be sent", spec)
	}
	sb := rt.newSandbox(spec)
	if _, err := rt.runSandbox(sb); err != nil {
		return "", err
	}
	return sb.id, nil
}

// newSandbox makes a sandbox for the direct methods, with a kubelet's labels and size.
func (rt *Runtime) newSandbox(spec PodSpec) *sandbox {
	sb := &sandbox{
		id:        rt.ids.hex64(),
		uid:       spec.UID,
		name:      cmp.Or(spec.Name, fmt.Sprintf("pod-%06d", rt.ips)),
		namespace: cmp.Or(spec.Namespace, "default"),
		tail:      sandboxTail,
	}
	if sb.uid == "" {
		sb.uid = rt.ids.uid()
	}
	if p := rt.store.pods[sb.uid]; p != nil {
		sb.attempt = p.attempts
	}
	sb.labels = sb.withPodLabels(spec.Labels)
	return sb
}

// placeSandbox adds the fields set by the runtime alone, and stores the sandbox.
func (rt *Runtime) placeSandbox(sb *sandbox) {
	sb.createdAt = rt.stamp()
	if !sb.hostNetwork {
		sb.ip = ipOf(rt.ips)
	}
	rt.ips++
	sb.encode()
	sb.state = StateReady
	rt.store.addSandbox(sb)
	rt.withholdAddress(sb)
	rt.written(sb)
}

// sandboxNamed returns the holder of this sandbox's name, or nil.
func (rt *Runtime) sandboxNamed(sb *sandbox) *sandbox {
	if p := rt.store.pods[sb.uid]; p != nil {
		if i := slices.IndexFunc(p.sandboxes, sb.sameName); i >= 0 {
			return p.sandboxes[i]
		}
	}
	return nil
}

// runSandbox stores the sandbox and emits CREATED and STARTED; the last event is returned for
// waiting callers.
func (rt *Runtime) runSandbox(sb *sandbox) (*event, error) {
	if old := rt.sandboxNamed(sb); old != nil {
		return nil, fmt.Errorf(
			"%w: sandbox %s_%s_%s_%d is reserved for %q",
			ErrExists,
			sb.name,
			sb.namespace,
			sb.uid,
			sb.attempt,
			old.id,
		)
	}
	rt.placeSandbox(sb)
	first := &event{}
	if rt.cfg.Profile.SandboxCreated {
		first = rt.emitSandbox(sb, eventCreated)
	}
	ev := rt.emitSandbox(sb, eventStarted)
	if ev.how != Emitted && first.how == Emitted {
		ev = first // the history has the event that was sent
	}
	rt.record(sb, nil, StateNone, StateReady, ev)
	return ev, nil
}

// StopSandbox ends the containers of the sandbox, with the profile's code, and makes the sandbox
// not ready. Stopping a stopped sandbox does nothing.
func (rt *Runtime) StopSandbox(id string) error {
	return rt.onSandbox("StopSandbox", id, func(sb *sandbox) error {
		rt.stopSandbox(sb)
		return nil
	})
}

func (rt *Runtime) stopSandbox(sb *sandbox) {
	rt.stopContainers(sb)
	rt.sandboxDown(sb, false)
}

func (rt *Runtime) stopContainers(sb *sandbox) {
	for _, c := range sb.containers {
		rt.exit(c, rt.stopCode(c), "", "")
	}
}

// runs reports whether a container of the sandbox runs.
func (sb *sandbox) runs() bool {
	return slices.ContainsFunc(sb.containers, func(c *container) bool { return c.state == StateRunning })
}

// sandboxDown ends the sandbox itself, silently or with an event; its containers are left as they
// are.
func (rt *Runtime) sandboxDown(sb *sandbox, silent bool) {
	if sb.state != StateReady {
		return
	}
	sb.state = StateNotReady
	sb.bare = rt.roll(rollBareSandbox, rt.faults.BareSandbox, sb.id)
	var ev *event
	if !silent {
		ev = rt.emitSandbox(sb, eventStopped) // the network is torn down after the event
	}
	sb.ip = ""
	rt.written(sb)
	rt.record(sb, nil, StateReady, StateNotReady, ev)
}

// RemoveSandbox stops the sandbox, removes its containers, and removes it. A runtime that reports a
// deletion before its lists do (see Profile.DeleteLag) still lists it for a time after
// RemoveSandbox returned.
func (rt *Runtime) RemoveSandbox(id string) error {
	return rt.onSandbox("RemoveSandbox", id, func(sb *sandbox) error {
		rt.removeSandbox(sb)
		return nil
	})
}

// removeSandbox returns the last event, and a channel closed when the sandbox has left the store.
func (rt *Runtime) removeSandbox(sb *sandbox) (*event, <-chan struct{}) {
	if sb.removing {
		return nil, nil
	}
	rt.stopContainers(sb)
	rt.sandboxDown(sb, rt.cfg.Profile.SilentCascade)
	for len(sb.containers) > 0 {
		rt.removeContainer(sb.containers[0], rt.cfg.Profile.SilentCascade)
	}
	ev := &event{}
	if rt.cfg.Profile.SandboxDeleted {
		ev = rt.emitSandbox(sb, eventDeleted)
	}
	sb.removing = true
	gone := make(chan struct{})
	drop := func() {
		rt.store.removeSandbox(sb)
		rt.record(sb, nil, StateNotReady, StateRemoved, ev)
		close(gone)
	}
	if lag := rt.cfg.Profile.DeleteLag; lag > 0 && ev.wire != nil {
		rt.sched.after(lag, drop)
	} else {
		drop()
	}
	return ev, gone
}

// KillShim makes the sandbox die as when its shim is killed: its STOPPED comes first, while its
// containers still run; they end with code 255 after 1.4 s.
func (rt *Runtime) KillShim(id string) error {
	return rt.onSandbox("KillShim", id, func(sb *sandbox) error {
		rt.sandboxDown(sb, false)
		for _, c := range sb.containers {
			rt.sched.after(shimDeathLag, func() { rt.exit(c, exitUnknown, "Unknown", "") })
		}
		return nil
	})
}

const shimDeathLag = 1400 * time.Millisecond

// RecoverSandbox makes an unready sandbox ready, without an event, like some runtimes when a
// restart finds it alive after all.
func (rt *Runtime) RecoverSandbox(id string) error {
	return rt.onSandbox("RecoverSandbox", id, func(sb *sandbox) error {
		if sb.state == StateReady || sb.removing {
			return fmt.Errorf(
				"fakeruntime: RecoverSandbox: %w: sandbox %q is ready or on its way out",
				ErrState,
				id,
			)
		}
		sb.state = StateReady
		sb.bare = false
		if !sb.hostNetwork {
			sb.ip = ipOf(rt.ips)
			rt.ips++
		}
		rt.written(sb)
		rt.record(sb, nil, StateNotReady, StateReady, nil)
		return nil
	})
}

// A Population is many similar pods.
type Population struct {
	// Pods is how many; each has Containers containers, all running.
	Pods, Containers int
	// Life is the life of every container, counted from now.
	Life Life
}

// Populate adds pods from before the first observer: no event is emitted, and [Runtime.History] has
// no change of it. It returns the sandbox IDs. 100,000 containers take about 160 MB and a second or
// two.
func (rt *Runtime) Populate(p Population) (sandboxIDs []string, err error) {
	if p.Pods < 0 || p.Containers < 0 {
		return nil, fmt.Errorf(
			"fakeruntime: Populate: %d pods with %d containers each: neither can be negative",
			p.Pods,
			p.Containers,
		)
	}
	if err := p.Life.validate(); err != nil {
		return nil, fmt.Errorf("fakeruntime: Populate: %w", err)
	}
	rt.lock()
	defer rt.mu.Unlock()
	if err := rt.usable("Populate"); err != nil {
		return nil, err
	}
	for range p.Pods {
		sb := rt.newSandbox(PodSpec{})
		rt.placeSandbox(sb)
		for range p.Containers {
			c := rt.newContainer(sb, ContainerSpec{Life: p.Life})
			rt.placeContainer(c)
			c.view = view{state: StateRunning, startedAt: c.createdAt}
			rt.limitLife(c)
		}
		sandboxIDs = append(sandboxIDs, sb.id)
	}
	return sandboxIDs, nil
}
