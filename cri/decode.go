// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// Decoded statuses: the sandboxes and containers of a PodStatus.

import (
	"cmp"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// SandboxStatus is the status of a sandbox (CRI PodSandboxStatus).
type SandboxStatus struct {
	ID string
	// Name, Namespace and UID are the pod's, from the sandbox's metadata.
	Name      string
	Namespace string
	UID       string
	// Attempt counts the sandboxes made for the pod, from 0.
	Attempt uint32
	// Phase is Running for a ready sandbox, Exited for one that is not, and Unknown in a state of a
	// later CRI.
	Phase pleg.Phase
	// CreatedAt is the runtime's stamp; zero if absent, as in the event about a removal.
	CreatedAt time.Time
	// IPs are the sandbox's addresses, the primary one first; none with host networking.
	IPs            []string
	RuntimeHandler string
	Labels         map[string]string
	// Annotations are kept with [Config.Annotations] only.
	Annotations map[string]string
}

// Ready reports whether the sandbox is ready.
func (s *SandboxStatus) Ready() bool { return s.Phase == pleg.PhaseRunning }

// ContainerStatus is the status of a container (CRI ContainerStatus).
type ContainerStatus struct {
	ID string
	// SandboxID is the container's sandbox; empty if the pod has several sandboxes and the container's
	// is not known.
	SandboxID string
	Name      string
	// Attempt counts the containers of the same name made for the pod, from 0.
	Attempt uint32
	Phase   pleg.Phase
	// CreatedAt, StartedAt and FinishedAt are the runtime's stamps, zero if not reached.
	CreatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	// ExitCode means something once FinishedAt is set.
	ExitCode int32
	// Reason is a CamelCase word, Message a sentence on why the container is in its phase.
	Reason  string
	Message string
	// Image is the image named at creation, ImageRef its digested reference, ImageID the runtime's ID
	// of the image.
	Image    string
	ImageRef string
	ImageID  string
	LogPath  string
	Labels   map[string]string
	// Annotations are kept with [Config.Annotations] only.
	Annotations map[string]string
	Mounts      []Mount
	// Resources are the limits in force, nil if absent from the status.
	Resources *Resources
}

// Mount is a mount of a container (CRI Mount).
type Mount struct {
	ContainerPath string
	HostPath      string
	ReadOnly      bool
}

// Resources are the limits of a container (CRI LinuxContainerResources). Zero means not specified.
type Resources struct {
	CPUPeriod   int64 // microseconds
	CPUQuota    int64 // microseconds
	CPUShares   int64
	MemoryLimit int64 // bytes
	OOMScoreAdj int64
	CpusetCPUs  string
	CpusetMems  string
	MemorySwap  int64 // bytes
	Unified     map[string]string
}

// decodeSandbox decodes a CRI PodSandboxStatus. Malformed parts are left out, and reported by
// false.
func decodeSandbox(raw []byte) (s SandboxStatus, ok bool) {
	var (
		d     decoder
		state int32
		meta  metadata
		ip    string
		more  []string
	)
	f := fields{rest: raw}
	for f.next() {
		switch {
		case f.isBytes(1):
			s.ID = text(f.data)
		case f.isBytes(2):
			d.check(meta.read(f.data))
		case f.isVarint(3):
			state = int32(f.varint)
		case f.isVarint(4):
			s.CreatedAt = timestamp(int64(f.varint))
		case f.isBytes(5):
			network := fields{rest: f.data}
			for network.next() {
				switch {
				case network.isBytes(1):
					ip = text(network.data)
				case network.isBytes(2):
					additional := ""
					podIP := fields{rest: network.data}
					for podIP.next() {
						if podIP.isBytes(1) {
							additional = text(podIP.data)
						}
					}
					d.check(!podIP.malformed)
					more = append(more, additional)
				}
			}
			d.check(!network.malformed)
		case f.isBytes(7):
			d.entry(&s.Labels, f.data)
		case f.isBytes(8):
			d.entry(&s.Annotations, f.data)
		case f.isBytes(9):
			s.RuntimeHandler = text(f.data)
		}
	}
	d.check(!f.malformed)
	s.Name = text(meta.name)
	s.UID = text(meta.uid)
	s.Namespace = text(meta.namespace)
	s.Attempt = meta.attempt
	s.Phase = sandboxPhase(state)
	if ip != "" {
		s.IPs = append(s.IPs, ip)
	}
	for _, ip := range more {
		if ip != "" {
			s.IPs = append(s.IPs, ip)
		}
	}
	return s, !d.bad
}

// decodeContainer decodes a CRI ContainerStatus. Malformed parts are left out, and reported by
// false.
func decodeContainer(raw []byte) (c ContainerStatus, ok bool) {
	var (
		d     decoder
		state int32
	)
	f := fields{rest: raw}
	for f.next() {
		switch f.wire {
		case protowire.VarintType:
			switch f.num {
			case 3:
				state = int32(f.varint)
			case 4:
				c.CreatedAt = timestamp(int64(f.varint))
			case 5:
				c.StartedAt = timestamp(int64(f.varint))
			case 6:
				c.FinishedAt = timestamp(int64(f.varint))
			case 7:
				c.ExitCode = int32(f.varint)
			}
		case protowire.BytesType:
			switch f.num {
			case 1:
				c.ID = text(f.data)
			case 2:
				d.containerMetadata(&c, f.data)
			case 8:
				d.imageSpec(&c.Image, f.data)
			case 9:
				c.ImageRef = text(f.data)
			case 10:
				c.Reason = text(f.data)
			case 11:
				c.Message = text(f.data)
			case 12:
				d.entry(&c.Labels, f.data)
			case 13:
				d.entry(&c.Annotations, f.data)
			case 14:
				c.Mounts = append(c.Mounts, d.mount(f.data))
			case 15:
				c.LogPath = text(f.data)
			case 16:
				d.resources(&c, f.data)
			case 17:
				c.ImageID = text(f.data)
			}
		}
	}
	d.check(!f.malformed)
	c.Phase = criphase.OfContainer(runtimeapi.ContainerState(state))
	return c, !d.bad
}

func (d *decoder) containerMetadata(c *ContainerStatus, raw []byte) {
	f := fields{rest: raw}
	for f.next() {
		switch {
		case f.isBytes(1):
			c.Name = text(f.data)
		case f.isVarint(2):
			c.Attempt = uint32(f.varint)
		}
	}
	d.check(!f.malformed)
}

func (d *decoder) imageSpec(image *string, raw []byte) {
	f := fields{rest: raw}
	for f.next() {
		if f.isBytes(1) {
			*image = text(f.data)
		}
	}
	d.check(!f.malformed)
}

func (d *decoder) mount(raw []byte) (m Mount) {
	f := fields{rest: raw}
	for f.next() {
		switch {
		case f.isBytes(1):
			m.ContainerPath = text(f.data)
		case f.isBytes(2):
			m.HostPath = text(f.data)
		case f.isVarint(3):
			m.ReadOnly = f.varint != 0
		}
	}
	d.check(!f.malformed)
	return m
}

// resources reads an occurrence of a CRI ContainerResources: the part for Linux, if any.
func (d *decoder) resources(c *ContainerStatus, raw []byte) {
	f := fields{rest: raw}
	for f.next() {
		if f.isBytes(1) {
			if c.Resources == nil {
				c.Resources = new(Resources)
			}
			d.linuxResources(c.Resources, f.data)
		}
	}
	d.check(!f.malformed)
}

func (d *decoder) linuxResources(r *Resources, raw []byte) {
	f := fields{rest: raw}
	for f.next() {
		switch {
		case f.isVarint(1):
			r.CPUPeriod = int64(f.varint)
		case f.isVarint(2):
			r.CPUQuota = int64(f.varint)
		case f.isVarint(3):
			r.CPUShares = int64(f.varint)
		case f.isVarint(4):
			r.MemoryLimit = int64(f.varint)
		case f.isVarint(5):
			r.OOMScoreAdj = int64(f.varint)
		case f.isBytes(6):
			r.CpusetCPUs = text(f.data)
		case f.isBytes(7):
			r.CpusetMems = text(f.data)
		case f.isBytes(9):
			d.entry(&r.Unified, f.data)
		case f.isVarint(10):
			r.MemorySwap = int64(f.varint)
		}
	}
	d.check(!f.malformed)
}

// recency is what tells which of two sandboxes of a pod, or containers of a name, is the present
// one.
type recency struct {
	attempt   uint32
	phase     pleg.Phase
	createdAt time.Time
	id        string
}

// alive returns how likely the phase is that of the present one.
func (r recency) alive() int {
	switch r.phase {
	case pleg.PhaseRunning:
		return 3
	case pleg.PhaseCreated:
		return 2
	case pleg.PhaseUnknown:
		return 1
	}
	return 0
}

// presentFirst orders by attempt, the last first; then by phase, running first; then by creation,
// the latest first; then by ID. The creation decides nothing that attempt or phase can decide: a
// node's clock may have been ahead before a reboot.
func presentFirst(a, b recency) int {
	return cmp.Or(
		cmp.Compare(b.attempt, a.attempt),
		cmp.Compare(b.alive(), a.alive()),
		b.createdAt.Compare(a.createdAt),
		strings.Compare(a.id, b.id),
	)
}

func (s *SandboxStatus) recency() recency {
	return recency{
		attempt:   s.Attempt,
		phase:     s.Phase,
		createdAt: s.CreatedAt,
		id:        s.ID,
	}
}

func (c *ContainerStatus) recency() recency {
	return recency{
		attempt:   c.Attempt,
		phase:     c.Phase,
		createdAt: c.CreatedAt,
		id:        c.ID,
	}
}

// timestamp converts a CRI timestamp in nanoseconds of the Unix epoch; the zero time for zero and
// below.
func timestamp(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// decoder notes malformed parts while a status is decoded: a malformed part is left out, the rest
// is read.
type decoder struct{ bad bool }

func (d *decoder) check(ok bool) { d.bad = d.bad || !ok }

// entry takes an entry of a map<string, string>.
func (d *decoder) entry(m *map[string]string, raw []byte) {
	key, value, ok := mapEntry(raw)
	d.check(ok)
	if !ok {
		return
	}
	if *m == nil {
		*m = make(map[string]string)
	}
	(*m)[text(key)] = text(value)
}

// text returns a field of a status as a string of valid UTF-8. The string shares the memory of b: a
// status keeps its message, which is never written again, so its strings need no memory of their
// own.
func text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	s := unsafe.String(&b[0], len(b))
	if !utf8.ValidString(s) {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return s
}
