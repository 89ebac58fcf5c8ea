// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepleg "k8s.io/kubernetes/pkg/kubelet/pleg"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/embed"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Config holds the kubelet's parts. Every field without a default is required.
type Config struct {
	// Runtime is the kubelet's runtime manager, Events its CRI client. A client returned by [Wrap]
	// tells the generator of the kubelet's own calls from now on.
	Runtime Runtime
	Events  embed.Events
	// Cache is the result of [Wrap] with the gate on.
	Cache kubecontainer.Cache
	// Removable reports whether a kubelet may remove all containers of a pod: the pod's worker has
	// terminated a deleted pod. Removable is the pod workers' ShouldPodContentBeRemoved.
	Removable func(types.UID) bool
	// Recorder and Node are the kubelet's recorder and the reference of its node.
	Recorder record.EventRecorder
	Node     *v1.ObjectReference
	// RelistPeriod is the time between relists while the runtime's events have not earned trust.
	// Default 1s.
	RelistPeriod time.Duration
	// RelistThreshold is how late a due relist may be for the kubelet to stay healthy. Default 3m.
	RelistThreshold time.Duration
	// SyncFrequency is the kubelet's: every pod is synced anew after SyncFrequency to one and a
	// half times as long, and its worker waits for a read begun since. The relist period never
	// grows beyond three quarters of SyncFrequency, so that a single relist serves all workers.
	// Default 1m.
	SyncFrequency time.Duration
}

// Generator is the kubelet's PLEG.
type Generator struct {
	core  *pleg.Generator[kubecontainer.PodStatus]
	cache *Cache
	moved chan struct{}                    // capacity 1: gauges are out of date
	watch chan *kubepleg.PodLifecycleEvent // unbuffered: the core keeps and merges untaken events

	removable func(types.UID) bool // see Config
	relistMax time.Duration

	shown map[kubecontainer.State]bool // states with a series; owned by the goroutine that sets gauges

	mu     sync.Mutex // owns the fields below
	cancel context.CancelFunc
	done   sync.WaitGroup
}

var _ kubepleg.PodLifecycleEventGenerator = (*Generator)(nil)

// inspectTimeout is the kubelet's default runtimeRequestTimeout.
const inspectTimeout = 2 * time.Minute

// New returns a generator, to be started by Start.
func New(c Config) (*Generator, error) {
	var errs []error
	missing := func(is bool, name, what string) {
		if is {
			errs = append(errs, fmt.Errorf("evented: Config.%s is nil: pass the kubelet's %s", name, what))
		}
	}
	missing(c.Runtime == nil, "Runtime", "runtime manager")
	missing(c.Events == nil, "Events", "CRI runtime service")
	missing(c.Removable == nil, "Removable", "pod workers' ShouldPodContentBeRemoved")
	missing(c.Recorder == nil, "Recorder", "event recorder")
	missing(c.Node == nil, "Node", "node reference")
	own, ok := c.Cache.(*Cache)
	if !ok {
		errs = append(errs, fmt.Errorf("evented: Config.Cache is a %T: pass what Wrap returned with the feature gate %s on", c.Cache, features.EventDrivenPLEG))
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.EventedPLEG) {
		errs = append(errs, fmt.Errorf("evented: the feature gate %s is on beside %s: turn it off, it makes the runtime manager take statuses from the runtime's snapshots", features.EventedPLEG, features.EventDrivenPLEG))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	moved := make(chan struct{}, 1)
	reads := &source{runtime: c.Runtime}
	client, tells := c.Events.(caller)
	if tells {
		reads.sandboxOf = client.SandboxOf
	}
	core, err := pleg.New(pleg.Config[kubecontainer.PodStatus]{
		Source:          reads,
		Stream:          embed.Stream[kubecontainer.PodStatus](c.Events),
		Cache:           own.statuses,
		Merge:           keepIPs,
		Without:         without,
		Recorder:        embed.Recorder(c.Recorder, c.Node),
		Metrics:         meter{moved: moved},
		RelistBase:      c.RelistPeriod,
		RelistMax:       relistMax(c),
		RelistThreshold: c.RelistThreshold,
		InspectTimeout:  inspectTimeout,
		TellsCalls:      tells,
	})
	if err != nil {
		return nil, fmt.Errorf("evented: %w", err)
	}
	if tells {
		client.TellCalls(core.Calling)
	}
	return &Generator{
		core:      core,
		cache:     own,
		removable: c.Removable,
		relistMax: relistMax(c),
		moved:     moved,
		shown:     make(map[kubecontainer.State]bool),
		watch:     make(chan *kubepleg.PodLifecycleEvent),
	}, nil
}

// relistMax is the longest relist period for a trusted stream, never more than KEP-3386's 300 s.
func relistMax(c Config) time.Duration {
	frequency := c.SyncFrequency
	if frequency == 0 {
		frequency = time.Minute
	}
	return max(c.RelistPeriod, time.Second, min(frequency*3/4, 300*time.Second))
}

// start starts the generator, which works until ctx ends, and returns. Only the first call does
// anything.
func (g *Generator) start(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	g.cancel = cancel
	log := klog.FromContext(ctx).WithName("pleg")
	g.done.Go(func() {
		err := g.core.Run(ctx)
		if err != nil { // another generator runs over the cache
			log.Error(err, "The event-driven PLEG does not run")
		}
	})
	feed := &pump{g: g, log: log, reportedEnds: make(map[types.UID]map[string]bool)}
	g.done.Go(func() { feed.run(ctx) })
	g.done.Go(func() { g.showGauges(ctx) })
}

// Stop ends the goroutines of Start and waits for them. A kubelet never calls Stop; embedders and
// tests do. A stopped generator stays stopped.
func (g *Generator) Stop() {
	g.mu.Lock()
	cancel := g.cancel
	g.mu.Unlock()
	if cancel != nil {
		cancel()
		g.done.Wait()
	}
}

// Watch returns the channel of events, which is never closed.
func (g *Generator) Watch() chan *kubepleg.PodLifecycleEvent { return g.watch }

// Healthy reports false and why before the first list of the runtime has succeeded, and when one
// is overdue by RelistThreshold. The kubelet asks at every turn of its sync loop.
func (g *Generator) Healthy() (bool, error) {
	stats := g.core.Stats()
	err := g.core.Health()
	if err == nil && stats.LastRelist.IsZero() {
		err = errors.New("pleg: no list of the container runtime has succeeded yet")
	}
	nudge(g.moved)
	return err == nil, err
}

// RequestReinspect has the pod's statuses read even without a change of phase, and then an event
// sent.
func (g *Generator) RequestReinspect(podUID types.UID) {
	g.core.RequestReinspect(cache.UID(podUID))
}
