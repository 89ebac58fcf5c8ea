// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package peer compares this project's PLEG with the kubelet's own, side by side: the same rows
// (package agent) in a test binary for each PLEG, over a unix socket to the fake runtime in a
// process of its own (package server).
//
// # Model
//
// The contestants are ours, wired like a user's; the kubelet's at v1.36.3 and v1.37.1 (the modules
// in the folder kubelet); "generated", which decodes the same messages with the generated decoder
// and drops them; and "floor", which does not even decode. Nothing that goes through grpc can cost
// less.
//
// The script run takes rounds. In each round every contestant has its turn, so that other work of
// the machine falls on all of them. Its output is for benchstat, which makes the tables of
// docs/performance.md.
package peer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	kubemetrics "k8s.io/component-base/metrics"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/metrics"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/peer/agent"
)

// ours implements [agent.Driver]: package cri as source and stream, its statuses in the cache, the
// metrics registered.
type ours struct {
	*calls
	client    *cri.Client
	cache     *cache.Cache[cri.PodStatus]
	generator *pleg.Generator[cri.PodStatus]
	running   bool
	evented   bool
	idle      bool          // there is no PLEG
	listed    chan struct{} // capacity 1: a list of everything was applied
}

func newOurs() agent.Driver { return &ours{listed: make(chan struct{}, 1)} }

// never is a relist period longer than any run.
const never = 24 * time.Hour

// Start implements [agent.Driver].
func (d *ours) Start(o agent.Options) (err error) {
	if d.client, err = cri.New(cri.Config{Endpoint: o.Socket}); err != nil {
		return err
	}
	set, err := metrics.New(kubemetrics.NewKubeRegistry(), metrics.Options{})
	if err != nil {
		return err
	}
	if d.calls, err = newCalls(o.Socket); err != nil {
		return err
	}
	d.cache = cache.New(cri.EmptyStatus)
	config := pleg.Config[cri.PodStatus]{Source: d.client, Cache: d.cache, Merge: cri.KeepIPs, Metrics: watched{set, d.listed}}
	switch o.Mode {
	case "manual":
		config.RelistBase = never
	case "intake":
		config.Stream, config.RelistBase, d.evented = d.client, never, true
	case "evented", "told":
		config.Stream, d.evented = d.client, true
		config.TellsCalls = o.Mode == "told"
	case "generic", "none":
	default:
		return fmt.Errorf("ours: no such mode: %q", o.Mode)
	}
	if d.generator, err = pleg.New(config); err != nil {
		return err
	}
	set.SetGauges(d.generator.Gauges)
	d.idle = o.Mode == "none"
	if config.TellsCalls {
		d.calling = d.generator.Calling
	}
	if o.Mode != "manual" && !d.idle {
		d.run()
	}
	return nil
}

func (d *ours) run() {
	d.running = true
	go func() { _ = d.generator.Run(context.Background()) }() // ends with the process
}

// Relist implements [agent.Driver]. A manual driver's first list is Run's first.
func (d *ours) Relist() error {
	begin := time.Now()
	if d.running {
		d.generator.RequestRelist("")
	} else {
		d.run()
	}
	limit := begin.Add(2 * time.Minute)
	select {
	case <-d.listed:
	case <-time.After(time.Until(limit)):
	}
	// The global time moves once every changed pod was inspected, too.
	for pause := 20 * time.Microsecond; !d.cache.Global().After(begin); pause = min(2*pause, time.Millisecond) {
		if time.Now().After(limit) {
			return errors.New("ours: the list was not applied in time")
		}
		time.Sleep(pause)
	}
	return nil
}

// Ready implements [agent.Driver].
func (d *ours) Ready() bool {
	if d.idle {
		return true
	}
	s := d.generator.Stats()
	if d.cache.Global().IsZero() || s.DirtyPods > 0 {
		return false
	}
	return !d.evented || s.State == pleg.StreamConnected && s.Relists > 1
}

// Handled implements [agent.Driver].
func (d *ours) Handled() int64 { return int64(d.generator.Stats().Claims) }

// Newer implements [agent.Driver].
func (d *ours) Newer(uid string, t time.Time) error {
	status, err := d.cache.GetNewerThan(context.Background(), cache.UID(uid), t)
	if err == nil && len(status.Containers()) == 0 {
		return fmt.Errorf("pod %s has no containers", uid)
	}
	return err
}

// Synced implements [agent.Churner].
func (d *ours) Synced(uid string) {
	if !d.idle {
		d.generator.RequestRelist(cache.UID(uid))
	}
}

// Await implements [agent.Churner].
func (d *ours) Await(uid string, t time.Time) error {
	if d.idle {
		return nil
	}
	_, err := d.cache.GetNewerThan(context.Background(), cache.UID(uid), t)
	return err
}

// Drain implements [agent.Driver].
func (d *ours) Drain(told func(pod, id, kind string)) {
	for e := range d.generator.Watch() {
		told(string(e.Pod), e.ID, string(e.Type))
	}
}

// Footprint implements [agent.Driver].
func (d *ours) Footprint() (int64, error) {
	ctx := context.Background()
	listing, err := d.client.List(ctx, 0)
	if err != nil {
		return 0, err
	}
	defer runtime.KeepAlive(&listing)
	return agent.Growth(func() (any, error) {
		all := make([]*cri.PodStatus, 0, len(listing.Pods))
		for _, p := range listing.Pods {
			in, err := d.client.Inspect(ctx, p)
			if err != nil {
				return nil, err
			}
			all = append(all, in.Status)
		}
		return all, nil
	})
}

// watched is metrics that report finished lists.
type watched struct {
	pleg.Metrics
	listed chan<- struct{}
}

// Add implements [pleg.Metrics].
func (w watched) Add(name string, n int) {
	w.Metrics.Add(name, n)
	if name == pleg.MetricRelists {
		select {
		case w.listed <- struct{}{}:
		default:
		}
	}
}
