// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "github.com/evented-pleg/evented-pleg/pleg"

// KeepIPs is a Merge function for pleg.Config: once no sandbox of a pod is ready and the runtime
// shows no addresses any more, it keeps those of the status before, as the kubelet does, so that
// what still ends in the pod can be told where it was. It changes neither status, and does not
// decode next.
func KeepIPs(prev, next *PodStatus) *PodStatus {
	if prev == nil || next == nil || len(next.kept) > 0 || next.body.addressed() {
		return next
	}
	ips := prev.IPs()
	if len(ips) == 0 {
		return next
	}
	kept := *next
	kept.kept = ips
	return &kept
}

// addressed reports whether a sandbox is ready or has an address.
func (b *body) addressed() bool {
	if b == nil {
		return false
	}
	for _, raw := range b.sandboxes {
		state, address := int32(0), false
		f := fields{rest: raw}
		for f.next() {
			switch {
			case f.isVarint(3):
				state = int32(f.varint)
			case f.isBytes(5):
				for network := (fields{rest: f.data}); network.next(); {
					if network.isBytes(1) || network.isBytes(2) {
						address = address || len(network.data) > 0
					}
				}
			}
		}
		if address || sandboxPhase(state) == pleg.PhaseRunning {
			return true
		}
	}
	return false
}
