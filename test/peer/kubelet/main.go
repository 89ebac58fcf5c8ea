// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Command kubelet is the kubelet's own PLEG as a contestant of test/peer: its runtime manager, CRI
// client, pod cache, generic and evented PLEG, as kubelet.go of k8s.io/kubernetes puts them
// together, with the kubelet's settings and its metrics registered. Nothing is logged.
//
// It answers the calls of internal/bench/worker. The types of the calls are those of worker by name
// only, as far as they are needed: this module requires nothing of this project.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	cadvisorapi "github.com/google/cadvisor/info/v1"
	noop "go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	internalapi "k8s.io/cri-api/pkg/apis"
	cri "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"
)

func main() {
	klog.SetLogger(logr.Discard())
	metrics.Register()
	server := rpc.NewServer()
	if err := server.RegisterName("Child", &kubelet{ctx: klog.NewContext(context.Background(), logr.Discard())}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server.ServeConn(struct {
		io.Reader
		io.WriteCloser
	}{os.Stdin, os.Stdout})
}

// The arguments and answers of the calls.
type (
	// Config is worker.Config.
	Config struct {
		Endpoint, Mode string
		RelistBase     time.Duration
	}
	// Hello is worker.Hello.
	Hello struct{ RuntimeName string }
	// Cost is worker.Cost.
	Cost struct {
		Wall, CPU               time.Duration
		Bytes, Objects, Wakeups int64
	}
	// Memory is worker.Memory.
	Memory struct{ Heap, Statuses int64 }
	// Item is bench.Item.
	Item struct{ ID string }
	// Pod is bench.Pod.
	Pod struct {
		UID, Err string
		Items    []Item
	}
	// Newer is worker.Newer.
	Newer struct {
		Pod  Pod
		Took time.Duration
	}
	// Delivery is bench.Delivery.
	Delivery struct {
		Pod, ID, Type string
		At            int64
	}
	// News is worker.News.
	News struct{ Deliveries []Delivery }
)

// kubelet is the parts of a kubelet around its PLEG.
type kubelet struct {
	ctx     context.Context
	service internalapi.RuntimeService
	manager kuberuntime.KubeGenericRuntime
	cache   *countingCache
	generic *pleg.GenericPLEG
	watch   chan *pleg.PodLifecycleEvent

	mu     sync.Mutex // owns events
	events []Delivery
}

// The kubelet's constants, which it does not export.
const (
	channelCapacity     = 1000
	runtimeTimeout      = 2 * time.Minute
	genericRelistPeriod = time.Second
	genericThreshold    = 3 * time.Minute
	eventedRelistPeriod = 300 * time.Second
	eventedThreshold    = 10 * time.Minute
	streamRetries       = 5
)

// Start starts the PLEG that a kubelet would, or none that lists by itself if the period is set
// without events.
func (k *kubelet) Start(c Config, _ *Hello) (err error) {
	evented := c.Mode == "evented"
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.EventedPLEG): evented}); err != nil {
		return err
	}
	streaming := utilfeature.DefaultFeatureGate.Enabled(features.CRIListStreaming)
	k.service, err = cri.NewRemoteRuntimeService(
		k.ctx,
		"unix://"+c.Endpoint,
		runtimeTimeout,
		noop.NewTracerProvider(),
		streaming,
	)
	if err != nil {
		return err
	}
	root, err := os.MkdirTemp("", "peer-kubelet-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root) // the manager only looks into it
	// The manager has what listing and inspecting need; the rest of it is for running pods.
	k.manager, _, err = kuberuntime.NewKubeGenericRuntimeManager(
		k.ctx,
		record.NewFakeRecorder(1),
		nil,
		nil,
		nil,
		root,
		root,
		&cadvisorapi.MachineInfo{},
		nil,
		110,
		kubecontainer.RealOS{},
		nil,
		nil,
		flowcontrol.NewBackOff(time.Second, time.Minute),
		true,
		nil,
		5,
		10,
		string(kubeletconfig.NeverVerify),
		nil,
		"",
		"",
		nil,
		true,
		metav1.Duration{Duration: 100 * time.Millisecond},
		k.service,
		nil,
		cm.NewStubContainerManager(),
		nil,
		nil,
		false,
		"",
		nil,
		0,
		"",
		nil,
		noop.NewTracerProvider(),
		nil,
		nil,
		nil,
	)
	if err != nil {
		return err
	}
	k.cache = &countingCache{Cache: kubecontainer.NewCache()}
	k.watch = make(chan *pleg.PodLifecycleEvent, channelCapacity)
	go k.drain() // ends with the process
	base := &pleg.RelistDuration{RelistPeriod: genericRelistPeriod, RelistThreshold: genericThreshold}
	period := base
	if evented {
		period = &pleg.RelistDuration{RelistPeriod: eventedRelistPeriod, RelistThreshold: eventedThreshold}
	}
	generic := pleg.NewGenericPLEG(logr.Discard(), k.manager, k.watch, period, k.cache, clock.RealClock{})
	k.generic = generic.(*pleg.GenericPLEG)
	if !evented && c.RelistBase > 0 {
		return nil
	}
	generic.Start()
	if !evented {
		return nil
	}
	e, err := pleg.NewEventedPLEG(
		logr.Discard(),
		k.manager,
		k.service,
		k.watch,
		k.cache,
		generic,
		streamRetries,
		base,
		clock.RealClock{},
	)
	if err != nil {
		return err
	}
	e.Start()
	return nil
}

// drain reads the channel of events.
func (k *kubelet) drain() {
	for e := range k.watch {
		id, _ := e.Data.(string)
		d := Delivery{string(e.ID), id, string(e.Type), time.Now().UnixNano()}
		k.mu.Lock()
		k.events = append(k.events, d)
		k.mu.Unlock()
	}
}

// News returns the events since the last News.
func (k *kubelet) News(_ bool, n *News) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n.Deliveries = k.events
	k.events = nil
	return nil
}

// Relists lists the runtime so many times.
func (k *kubelet) Relists(n int, _ *bool) error {
	for range n {
		k.generic.Relist()
	}
	if healthy, err := k.generic.Healthy(); !healthy {
		return err
	}
	return nil
}

// Await waits until the first list was applied, or so many events.
func (k *kubelet) Await(claims int, taken *int) error {
	for begun := time.Now(); time.Since(begun) < runtimeTimeout; time.Sleep(2 * time.Millisecond) {
		*taken = int(k.cache.sets.Load())
		if claims > 0 && *taken >= claims || claims == 0 && k.cache.first.Load() {
			return nil
		}
	}
	return errors.New("kubelet: the first list or the events did not come in time")
}

// Newer asks the cache for a status newer than now. The kubelet asks for a relist of a pod with a
// sync that has ended, so that is done first.
func (k *kubelet) Newer(uid string, n *Newer) error {
	begun := time.Now()
	k.generic.RequestRelist(types.UID(uid))
	status, err := k.cache.GetNewerThan(types.UID(uid), begun)
	n.Took = time.Since(begun)
	n.Pod.UID = uid
	if err != nil {
		return err
	}
	for _, c := range status.ContainerStatuses {
		n.Pod.Items = append(n.Pod.Items, Item{c.ID.ID})
	}
	return nil
}

// Used returns the cost of this process, after a collection if collect.
func (k *kubelet) Used(collect bool, c *Cost) error {
	if collect {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	*c = Cost{
		Wall:    time.Duration(time.Now().UnixNano()),
		CPU:     time.Duration(u.Utime.Nano() + u.Stime.Nano()),
		Bytes:   int64(m.TotalAlloc),
		Objects: int64(m.Mallocs),
		Wakeups: u.Nvcsw,
	}
	return err
}

// Memory measures the live heap, and by how much another set of the statuses makes it grow.
func (k *kubelet) Memory(_ bool, m *Memory) error {
	_ = k.News(true, new(News)) // no longer kept, like in worker
	m.Heap = live()
	pods, err := k.manager.GetPods(k.ctx, true)
	if err != nil {
		return err
	}
	before := live()
	var all []*kubecontainer.PodStatus
	for _, p := range pods {
		s, err := k.manager.GetPodStatus(k.ctx, p)
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	m.Statuses = live() - before
	runtime.KeepAlive(all)
	runtime.KeepAlive(pods)
	return nil
}

// live returns the bytes of the live heap. Pools outlive a collection, so there are several.
func live() int64 {
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// countingCache is the kubelet's cache and counts what is written to it.
type countingCache struct {
	kubecontainer.Cache
	first atomic.Bool // a list was applied
	sets  atomic.Int64
}

// Set implements the kubelet's Cache.
func (c *countingCache) Set(id types.UID, status *kubecontainer.PodStatus, err error, at time.Time) bool {
	c.sets.Add(1)
	return c.Cache.Set(id, status, err, at)
}

// Delete implements the kubelet's Cache.
func (c *countingCache) Delete(id types.UID) {
	c.sets.Add(1)
	c.Cache.Delete(id)
}

// UpdateTime implements the kubelet's Cache. The generic PLEG calls it at the end of a relist, the
// evented one every five seconds.
func (c *countingCache) UpdateTime(at time.Time) {
	c.Cache.UpdateTime(at)
	if c.sets.Load() > 0 {
		c.first.Store(true)
	}
}
