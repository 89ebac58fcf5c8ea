// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package doctor

import (
	"context"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Machine is the Host of this program's machine. Only Linux is supported.
type Machine struct {
	// Socket is the path of the runtime's socket.
	Socket string
	// Kubelet is the address of the kubelet's /healthz.
	Kubelet string
}

var _ Host = (*Machine)(nil)

// Begin implements [Host].
func (*Machine) Begin(context.Context) {}

// End implements [Host].
func (*Machine) End(context.Context, Whereabouts) (f HostFacts) {
	f.Node = bench.Node()
	f.Unseen = make(map[string]string)
	for _, area := range []string{"processes", "clients", "disks", "clock", "pressure", "kubelet"} {
		f.Unseen[area] = "this program looks at machines with Linux only"
	}
	return f
}

// Runs implements [Host].
func (*Machine) Runs(int) bool { return true }
