// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package doctor

import (
	"context"
	"os"
)

// Machine is the Host of the machine that this program runs on. It knows only Linux.
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
	f.Node, _ = os.Hostname()
	return f
}
