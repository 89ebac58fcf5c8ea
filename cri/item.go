// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// From fields to items: one sandbox or container in lists, events and statuses, and its pod.

import (
	"unicode/utf8"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// The labels set by the kubelet on every sandbox and container.
const (
	labelPodUID       = "io.kubernetes.pod.uid"
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
)

// podLabels are the labels that identify the pod of a sandbox or container. The slices alias the
// message.
type podLabels struct{ uid, name, namespace []byte }

// read takes an encoded label, and reports false if the label is malformed.
func (l *podLabels) read(entry []byte) bool {
	key, value, ok := mapEntry(entry)
	switch string(key) { // does not allocate
	case labelPodUID:
		l.uid = value
	case labelPodName:
		l.name = value
	case labelPodNamespace:
		l.namespace = value
	}
	return ok
}

// metadata is a CRI PodSandboxMetadata. The slices alias the message.
type metadata struct {
	name, uid, namespace []byte
	attempt              uint32
}

// read merges an occurrence of the message, and reports false if the occurrence is malformed.
func (m *metadata) read(b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.isBytes(1):
			m.name = f.data
		case f.isBytes(2):
			m.uid = f.data
		case f.isBytes(3):
			m.namespace = f.data
		case f.isVarint(4):
			m.attempt = uint32(f.varint)
		}
	}
	return !f.malformed
}

// sandboxItem holds the needed fields of a CRI PodSandbox, from a list, or PodSandboxStatus, from
// an event or answer. The two messages differ in the number of the labels field. The slices alias
// the message.
type sandboxItem struct {
	id []byte
	// metaRaw is the encoded metadata, merged if it came in parts, and meta its fields.
	metaRaw []byte
	merged  bool
	meta    metadata
	labels  podLabels
	state   int32
}

const (
	labelsOfPodSandbox       = 5
	labelsOfPodSandboxStatus = 7
)

// read takes an encoded message with the labels in the given field number, and reports false if the
// message is malformed.
func (s *sandboxItem) read(b []byte, labels int32) bool {
	f := fields{rest: b}
	ok := true
	for f.next() {
		switch {
		case f.isBytes(1):
			s.id = f.data
		case f.isBytes(2):
			ok = s.meta.read(f.data) && ok
			s.metaRaw = mergeOccurrence(s.metaRaw, f.data, &s.merged)
		case f.isVarint(3):
			s.state = int32(f.varint)
		case int32(f.num) == labels && f.isBytes(f.num):
			ok = s.labels.read(f.data) && ok
		}
	}
	return ok && !f.malformed
}

// readListed takes an encoded CRI PodSandbox, and reports false if any part is malformed.
func (s *sandboxItem) readListed(b []byte) bool {
	_, _, ok := shapeOfSandbox().check(b)
	return ok && s.read(b, labelsOfPodSandbox)
}

// uid returns the UID of the sandbox's pod: from the metadata, else from the kubelet's label, else,
// for a sandbox made by a client without UIDs, the sandbox's own ID.
func (s *sandboxItem) uid() []byte {
	if named := s.named(); len(named) > 0 {
		return named
	}
	return s.id
}

// named returns the UID of the sandbox's pod, empty if the sandbox does not name it.
func (s *sandboxItem) named() []byte {
	if len(s.meta.uid) > 0 {
		return s.meta.uid
	}
	return s.labels.uid
}

// labelled reports whether a list filtered by the pod UID label would show the sandbox.
func (s *sandboxItem) labelled() bool {
	return len(s.labels.uid) > 0 && string(s.labels.uid) == string(s.uid())
}

// usable reports whether the sandbox and its pod have valid IDs. An unusable sandbox is left out
// everywhere, and counted.
func (s *sandboxItem) usable() bool { return validID(s.id) && validID(s.uid()) }

func (s *sandboxItem) phase() pleg.Phase { return sandboxPhase(s.state) }

// containerItem holds the needed fields of a CRI Container, from a list, or ContainerStatus, from
// an event or answer. The slices alias the message.
type containerItem struct {
	id, sandbox []byte
	name        []byte // of a listed container
	labels      podLabels
	state       runtimeapi.ContainerState
	finishedAt  int64 // of a status, Unix nanoseconds; 0 before the end
	exitCode    int32 // of a status of an exited container, with the runtime's reason
	reason      []byte
}

// readListed takes an encoded CRI Container, and reports false if any part is malformed.
func (c *containerItem) readListed(b []byte) bool {
	_, _, ok := shapeOfContainer().check(b)
	var named metadata // a ContainerMetadata, which begins alike; of several, each replaces what it has
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.isBytes(1):
			c.id = f.data
		case f.isBytes(2):
			c.sandbox = f.data
		case f.isBytes(3):
			ok = named.read(f.data) && ok
			c.name = named.name
		case f.isVarint(6):
			c.state = runtimeapi.ContainerState(f.varint)
		case f.isBytes(8):
			ok = c.labels.read(f.data) && ok
		}
	}
	return ok && !f.malformed
}

// readStatus takes an encoded CRI ContainerStatus, which does not name its sandbox, and reports
// false if the status is malformed.
func (c *containerItem) readStatus(b []byte) bool {
	f := fields{rest: b}
	ok := true
	for f.next() {
		switch {
		case f.isBytes(1):
			c.id = f.data
		case f.isVarint(3):
			c.state = runtimeapi.ContainerState(f.varint)
		case f.isVarint(6):
			c.finishedAt = int64(f.varint)
		case f.isVarint(7):
			c.exitCode = int32(f.varint)
		case f.isBytes(10):
			c.reason = f.data
		case f.isBytes(12):
			ok = c.labels.read(f.data) && ok
		}
	}
	return ok && !f.malformed
}

// nameOfStatus returns the container's name in an encoded, well-formed CRI ContainerStatus.
func nameOfStatus(b []byte) string {
	var m metadata // a ContainerMetadata, which begins alike
	for f := (fields{rest: b}); f.next(); {
		if f.isBytes(2) {
			m.read(f.data)
		}
	}
	return truncate(string(m.name))
}

// usable reports whether the container, and its pod if named, have valid IDs. An unusable container
// is left out everywhere, and counted.
func (c *containerItem) usable() bool {
	return validID(c.id) && (len(c.labels.uid) == 0 || validID(c.labels.uid))
}

func (c *containerItem) phase() pleg.Phase { return criphase.OfContainer(c.state) }

// maxID bounds the length of an ID or UID. Those of real runtimes have 64 bytes or fewer.
const maxID = 1024

// validID reports whether an ID or UID can be used: an ID that is not UTF-8 cannot be sent in a
// request.
func validID(id []byte) bool { return len(id) > 0 && len(id) <= maxID && utf8.Valid(id) }

// sandboxPhase returns the phase of a CRI PodSandboxState. A state of a later CRI is unknown here;
// [criphase.OfSandbox] takes a sandbox in such a state for dead, as a kubelet does.
func sandboxPhase(state int32) pleg.Phase {
	switch state {
	case 0: // SANDBOX_READY
		return pleg.PhaseRunning
	case 1: // SANDBOX_NOTREADY
		return pleg.PhaseExited
	}
	return pleg.PhaseUnknown
}

// knownSandboxState reports whether the CRI has such a state.
func knownSandboxState(state int32) bool { return sandboxPhase(state) != pleg.PhaseUnknown }

// knownContainerState reports whether the CRI has such a state.
func knownContainerState(state runtimeapi.ContainerState) bool {
	return criphase.OfContainer(state) != pleg.PhaseUnknown ||
		state == runtimeapi.ContainerState_CONTAINER_UNKNOWN
}
