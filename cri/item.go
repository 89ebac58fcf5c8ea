// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "github.com/evented-pleg/evented-pleg/pleg"

// metadata is a CRI PodSandboxMetadata. The slices alias the message that they were read from.
type metadata struct {
	name, uid, namespace []byte
	attempt              uint32
}

// read merges one occurrence of the message. It reports false if that is malformed.
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
	return !f.bad
}

// sandboxItem is what a listing or an event payload tells of a sandbox: what is needed of a CRI
// PodSandbox or PodSandboxStatus, which differ in the number of one field. The slices alias the
// message.
type sandboxItem struct {
	id []byte
	// metaRaw is the encoded metadata, meta what it says.
	metaRaw []byte
	meta    metadata
	labels  podLabels
	state   int32
}

const (
	labelsOfPodSandbox       = 5
	labelsOfPodSandboxStatus = 7
)

// read takes an encoded message whose labels are field number labels. It reports false if that is
// malformed.
func (s *sandboxItem) read(b []byte, labels int32) bool {
	f := fields{rest: b}
	ok := true
	for f.next() {
		switch {
		case f.isBytes(1):
			s.id = f.data
		case f.isBytes(2):
			ok = s.meta.read(f.data) && ok
			s.metaRaw = merged(s.metaRaw, f.data)
		case f.isVarint(3):
			s.state = int32(f.varint)
		case int32(f.num) == labels && f.isBytes(f.num):
			ok = s.labels.read(f.data) && ok
		}
	}
	return ok && !f.bad
}

// readListed takes an encoded CRI PodSandbox. It reports false if anything in that is malformed.
func (s *sandboxItem) readListed(b []byte) bool {
	_, ok := shapeOfSandbox().check(b)
	return ok && s.read(b, labelsOfPodSandbox)
}

// uid returns the UID of the sandbox's pod: what the metadata says, else the kubelet's label, else,
// for a sandbox of something that has no UIDs, the sandbox's own ID.
func (s *sandboxItem) uid() []byte {
	switch {
	case len(s.meta.uid) > 0:
		return s.meta.uid
	case len(s.labels.uid) > 0:
		return s.labels.uid
	}
	return s.id
}

// labelled reports whether a list filtered by the pod UID label would show the sandbox.
func (s *sandboxItem) labelled() bool {
	return len(s.labels.uid) > 0 && string(s.labels.uid) == string(s.uid())
}

// usable reports whether the sandbox can be spoken of: it and the pod that it names have usable
// IDs. One that cannot is left out wherever it shows up, and counted.
func (s *sandboxItem) usable() bool { return usable(s.id) && usable(s.uid()) }

func (s *sandboxItem) phase() pleg.Phase { return sandboxPhase(s.state) }

// containerItem is what a listing or an event payload tells of a container: what is needed of a CRI
// Container or ContainerStatus. The slices alias the message.
type containerItem struct {
	id, sandbox []byte
	name        []byte // of a listed container
	labels      podLabels
	state       int32
	finishedAt  int64 // of a status, Unix nanoseconds; 0 if it has not ended
}

// readListed takes an encoded CRI Container. It reports false if anything in that is malformed.
func (c *containerItem) readListed(b []byte) bool {
	_, ok := shapeOfContainer().check(b)
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.isBytes(1):
			c.id = f.data
		case f.isBytes(2):
			c.sandbox = f.data
		case f.isBytes(3):
			var m metadata // a ContainerMetadata, which begins alike
			ok = m.read(f.data) && ok
			if len(m.name) > 0 {
				c.name = m.name
			}
		case f.isVarint(6):
			c.state = int32(f.varint)
		case f.isBytes(8):
			ok = c.labels.read(f.data) && ok
		}
	}
	return ok && !f.bad
}

// readStatus takes an encoded CRI ContainerStatus, which does not tell its sandbox. It reports
// false if that is malformed.
func (c *containerItem) readStatus(b []byte) bool {
	f := fields{rest: b}
	ok := true
	for f.next() {
		switch {
		case f.isBytes(1):
			c.id = f.data
		case f.isVarint(3):
			c.state = int32(f.varint)
		case f.isVarint(6):
			c.finishedAt = int64(f.varint)
		case f.isBytes(12):
			ok = c.labels.read(f.data) && ok
		}
	}
	return ok && !f.bad
}

// nameOfStatus returns what an encoded CRI ContainerStatus, which is well-formed, calls the
// container.
func nameOfStatus(b []byte) string {
	var m metadata // a ContainerMetadata, which begins alike
	for f := (fields{rest: b}); f.next(); {
		if f.isBytes(2) {
			m.read(f.data)
		}
	}
	return bounded(string(m.name))
}

// usable reports whether the container can be spoken of: it, and the pod if it names one, have
// usable IDs. One that cannot is left out wherever it shows up, and counted.
func (c *containerItem) usable() bool {
	return usable(c.id) && (len(c.labels.uid) == 0 || usable(c.labels.uid))
}

func (c *containerItem) phase() pleg.Phase { return containerPhase(c.state) }
