// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// SandboxStatus is what the runtime said of one sandbox (CRI PodSandboxStatus).
type SandboxStatus struct {
	ID string `json:"id"`
	// Name, Namespace and UID are the pod's, from the sandbox's metadata.
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Attempt counts the sandboxes that were made for the pod, from 0.
	Attempt uint32 `json:"attempt"`
	// Phase is Running for a ready sandbox, Exited for one that is not.
	Phase pleg.Phase `json:"-"`
	// CreatedAt is the runtime's stamp; zero if it gave none, as runtimes do in the event about a
	// removal.
	CreatedAt time.Time `json:"createdAt,omitzero"`
	// IPs are the sandbox's addresses, the primary one first; none with host networking.
	IPs            []string          `json:"ips,omitempty"`
	RuntimeHandler string            `json:"runtimeHandler,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	Annotations    map[string]string `json:"annotations,omitempty"`
}

// Ready reports whether the sandbox is ready.
func (s *SandboxStatus) Ready() bool { return s.Phase == pleg.PhaseRunning }

// decodeSandbox decodes a CRI PodSandboxStatus. It reports false if parts of it are malformed and
// were left out.
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
			s.CreatedAt = stamp(int64(f.varint))
		case f.isBytes(5):
			network := fields{rest: f.data}
			for network.next() {
				switch {
				case network.isBytes(1):
					ip = text(network.data)
				case network.isBytes(2):
					additional, podIP := "", fields{rest: network.data}
					for podIP.next() {
						if podIP.isBytes(1) {
							additional = text(podIP.data)
						}
					}
					d.check(!podIP.bad)
					more = append(more, additional)
				}
			}
			d.check(!network.bad)
		case f.isBytes(7):
			d.entry(&s.Labels, f.data)
		case f.isBytes(8):
			d.entry(&s.Annotations, f.data)
		case f.isBytes(9):
			s.RuntimeHandler = text(f.data)
		}
	}
	d.check(!f.bad)
	s.Name, s.UID, s.Namespace, s.Attempt = text(meta.name), text(meta.uid), text(meta.namespace), meta.attempt
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

// newest orders by creation, the latest first, then by ID.
func newest(a, b time.Time, idA, idB string) int {
	if c := b.Compare(a); c != 0 {
		return c
	}
	return strings.Compare(idA, idB)
}

// stamp returns the time that a CRI timestamp means: nanoseconds of the Unix epoch, none if not
// after it.
func stamp(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
