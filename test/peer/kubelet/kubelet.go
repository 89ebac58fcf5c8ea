// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/evented-pleg/evented-pleg/test/peer/agent"
	"github.com/go-logr/logr"
	noop "go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	internalapi "k8s.io/cri-api/pkg/apis"
	cri "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
)

// kubelet implements [agent.Driver] as kubelet.go of k8s.io/kubernetes puts these parts together.
type kubelet struct {
	ctx     context.Context
	service internalapi.RuntimeService
	manager kuberuntime.KubeGenericRuntime
	cache   *countingCache
	generic *pleg.GenericPLEG
	watch   chan *pleg.PodLifecycleEvent
	first   atomic.Bool
	manual  bool
	idle    bool // there is no PLEG
}

// The kubelet's constants, which it does not export.
const (
	channelCapacity     = 1000
	runtimeTimeout      = 2 * time.Minute
	genericRelistPeriod = time.Second
	genericThreshold    = 3 * time.Minute
	streamRetries       = 5
)

// Start implements [agent.Driver].
func (k *kubelet) Start(o agent.Options) (err error) {
	k.ctx = klog.NewContext(context.Background(), logr.Discard())
	evented := o.Mode == "evented" || o.Mode == "intake"
	if evented {
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.EventedPLEG): true}); err != nil {
			return err
		}
	}
	streaming := utilfeature.DefaultFeatureGate.Enabled(features.CRIListStreaming)
	k.service, err = cri.NewRemoteRuntimeService(k.ctx, "unix://"+o.Socket, runtimeTimeout, noop.NewTracerProvider(), streaming)
	if err != nil {
		return err
	}
	root, err := os.MkdirTemp("", "peer-kubelet-")
	if err != nil {
		return err
	}
	if k.manager, err = newManager(k.ctx, k.service, root); err != nil {
		return errors.Join(err, os.RemoveAll(root))
	}
	if err := os.RemoveAll(root); err != nil { // the manager only looked into it
		return err
	}
	k.cache = &countingCache{Cache: kubecontainer.NewCache(), first: &k.first}
	k.watch = make(chan *pleg.PodLifecycleEvent, channelCapacity)
	k.manual, k.idle = o.Mode == "manual", o.Mode == "none"
	if k.idle {
		return nil
	}
	return k.begin(evented)
}

// Relist implements [agent.Driver].
func (k *kubelet) Relist() error {
	k.relist()
	if healthy, err := k.generic.Healthy(); !healthy {
		return err
	}
	return nil
}

// Ready implements [agent.Driver].
func (k *kubelet) Ready() bool { return k.idle || k.first.Load() }

// Handled implements [agent.Driver].
func (k *kubelet) Handled() int64 { return k.cache.sets.Load() }

// Newer implements [agent.Driver]. The kubelet asks for a relist of a pod whose sync has ended, so
// that is done first.
func (k *kubelet) Newer(uid string, t time.Time) error {
	k.requestRelist(types.UID(uid))
	status, err := k.cache.GetNewerThan(types.UID(uid), t)
	if err == nil && len(status.ContainerStatuses) == 0 {
		return fmt.Errorf("pod %s has no containers", uid)
	}
	return err
}

// Drain implements [agent.Driver].
func (k *kubelet) Drain(told func(pod, id, kind string)) {
	for e := range k.watch {
		id, _ := e.Data.(string)
		told(string(e.ID), id, string(e.Type))
	}
}

// Footprint implements [agent.Driver].
func (k *kubelet) Footprint() (int64, error) {
	pods, err := k.manager.GetPods(k.ctx, true)
	if err != nil {
		return 0, err
	}
	defer runtime.KeepAlive(pods)
	return agent.Growth(func() (any, error) {
		var all []*kubecontainer.PodStatus
		for p := range slices.Values(pods) {
			s, err := k.manager.GetPodStatus(k.ctx, p)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
		return all, nil
	})
}

// countingCache is the kubelet's cache and counts what is written to it.
type countingCache struct {
	kubecontainer.Cache
	first *atomic.Bool
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
