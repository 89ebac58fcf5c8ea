// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package identity serves the name and the version of a container runtime as a metric.
//
// # Model
//
// A [Runtime] asks a client's runtime for its version once for each connection: an upgrade restarts
// the runtime. Its Gauges are the metric evented_pleg_runtime_info, by which a fleet's verdict and
// alerts know the runtime of a node.
//
// # Concurrency
//
// Gauges may be called at any time. Follow returns when its context ends.
//
// # Errors
//
// A runtime that does not say its version is asked again.
package identity

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// lookEvery is how often a new connection is looked for.
const lookEvery = 5 * time.Second

// Runtime is the runtime behind a client.
type Runtime struct {
	client   *cri.Client
	connects uint64 // the connections made when the runtime was asked; owned by Is, then by Follow
	info     atomic.Pointer[string]
}

// Of returns the runtime behind a client, which is not asked yet.
func Of(client *cri.Client) *Runtime { return &Runtime{client: client} }

// Is says what the runtime has answered to a caller, before Follow.
func (r *Runtime) Is(v cri.Version) {
	r.connects = r.client.Stats().Connects
	r.name(v)
}

// name keeps the name and the version. The name of a gauge is cut at each slash: a slash in the
// runtime's name would shift the rest into the version.
func (r *Runtime) name(v cri.Version) {
	name := strings.ReplaceAll(v.RuntimeName, "/", "_")
	r.info.Store(new(printable.Text("runtime/" + name + "/" + v.RuntimeVersion)))
}

// Follow asks the runtime behind each new connection, until ctx ends.
func (r *Runtime) Follow(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := r.client.Stats().Connects
		if now == r.connects {
			continue
		}
		v, err := r.client.Version(ctx)
		if err == nil {
			r.name(v)
			r.connects = now
		}
	}
}

// Gauges yields the runtime, once it is known.
func (r *Runtime) Gauges(yield func(name string, v float64)) {
	if info := r.info.Load(); info != nil {
		yield(*info, 1)
	}
}
