// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	kubepleg "k8s.io/kubernetes/pkg/kubelet/pleg"

	"github.com/evented-pleg/evented-pleg/embed"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// servesLists reports whether lists are answered from memory.
func servesLists() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.EventDrivenPLEGServeLists)
}

// WithLists returns the CRI client for the kubelet: with the gate EventDrivenPLEGServeLists on, a
// client that answers lists from memory once [ServeLists] is called, in place of one of [Wrap].
func WithLists(client internalapi.RuntimeService) internalapi.RuntimeService {
	if c, ok := client.(*embed.Calls); ok && servesLists() {
		return embed.NewService(c.RuntimeService)
	}
	return client
}

// ServeLists has a client of [WithLists] answer lists from memory, while the generator's stream is
// connected. Answers are valid for two of the longest relist periods: the generator's list is never
// so late unless the runtime does not answer.
func ServeLists(generator kubepleg.PodLifecycleEventGenerator, client internalapi.RuntimeService) {
	g, ours := generator.(*Generator)
	if s, ok := client.(*embed.Service); ok && ours {
		s.ServeLists(
			func() bool { return g.core.Stats().State == pleg.StreamConnected },
			2*g.relistMax,
			countList,
		)
	}
}

// countList counts a list for the kubelet's metrics.
func countList(name string, n int) {
	if caller, ok := strings.CutPrefix(name, embed.MetricListsServed); ok {
		metrics.EventedPLEGListsServed.WithLabelValues(caller).Add(float64(n))
	}
	if reason, ok := strings.CutPrefix(name, embed.MetricListsForwarded); ok {
		metrics.EventedPLEGListsForwarded.WithLabelValues(reason).Add(float64(n))
	}
}

// Logs returns the client for the manager of container logs, which lists all containers every ten
// seconds and asks for the status of each running container, for the path of its log. That path
// never changes.
func Logs(client internalapi.RuntimeService) internalapi.RuntimeService {
	if s, ok := client.(*embed.Service); ok {
		return logs{s}
	}
	return client
}

type logs struct{ *embed.Service }

// ListContainers lists containers for the log manager.
func (l logs) ListContainers(
	ctx context.Context,
	f *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, error) {
	return l.Service.ListContainers(embed.As(ctx, embed.ByContainerLogs), f)
}

// ContainerStatus returns a status with the path of the log and nothing else, if the path is known
// and lists are served.
// The log manager reads nothing else.
func (l logs) ContainerStatus(
	ctx context.Context,
	id string,
	verbose bool,
) (*runtimeapi.ContainerStatusResponse, error) {
	if path, ok := l.LogPath(id); ok {
		return &runtimeapi.ContainerStatusResponse{
			Status: &runtimeapi.ContainerStatus{Id: id, LogPath: path},
		}, nil
	}
	return l.Service.ContainerStatus(ctx, id, verbose)
}

// PodsGetter is the part of the kubelet's runtime manager used by its runtime cache.
type PodsGetter interface {
	GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error)
}

// Housekeeping returns the runtime manager for the kubelet's runtime cache, by which housekeeping
// looks every two seconds for pods that should not run. While lists would show no change, the same
// pods are returned, which nobody changes, in a slice of the caller's own.
func Housekeeping(runtime PodsGetter, client internalapi.RuntimeService) PodsGetter {
	if s, ok := client.(*embed.Service); ok {
		return &housekeeping{runtime: runtime, service: s}
	}
	return runtime
}

type housekeeping struct {
	runtime PodsGetter
	service *embed.Service

	mu       sync.Mutex // owns the fields below; the runtime cache is a sequential caller too
	pods     []*kubecontainer.Pod
	revision uint64 // of the lists behind pods
	held     bool   // pods are those of revision
}

// GetPods returns the running pods, or all.
func (h *housekeeping) GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error) {
	ctx, forwarded := embed.Tracked(ctx, embed.ByHousekeeping)
	if all {
		return h.runtime.GetPods(ctx, all)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held && h.service.Current(ctx, h.revision) {
		return slices.Clone(h.pods), nil
	}
	h.revision = h.service.Revision()
	pods, err := h.runtime.GetPods(ctx, all)
	h.held = err == nil && !forwarded() && h.service.Revision() == h.revision
	h.pods = nil
	if h.held {
		h.pods = slices.Clone(pods)
	}
	return pods, err
}

// ImageGC returns the runtime manager for the collector of images, which asks for the status of
// each container to see the images in use. These never change, and the pod cache has them. The
// collector is the kubelet's only caller of GetContainerStatus, and of GetPods for all pods; the
// kubelet lists running pods to run a command or to forward a port.
func ImageGC(runtime kubecontainer.Runtime, client internalapi.RuntimeService, cache kubecontainer.Cache) kubecontainer.Runtime {
	if s, ok := client.(*embed.Service); ok {
		return imageGC{runtime, s, cache}
	}
	return runtime
}

type imageGC struct {
	kubecontainer.Runtime
	service *embed.Service
	cache   kubecontainer.Cache
}

// GetPods lists all pods for the collector, or the running pods.
func (g imageGC) GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error) {
	if all {
		ctx = embed.As(ctx, embed.ByImageGC)
	}
	return g.Runtime.GetPods(ctx, all)
}

// GetContainerStatus returns the last status read of a container, while lists are served, or reads
// the status.
func (g imageGC) GetContainerStatus(
	ctx context.Context,
	uid types.UID,
	id kubecontainer.ContainerID,
) (*kubecontainer.Status, error) {
	if s, err := g.cache.Get(uid); err == nil && s != nil && g.service.Recent() {
		for _, c := range s.ContainerStatuses {
			if c.ID == id {
				return c, nil
			}
		}
	}
	return g.Runtime.GetContainerStatus(ctx, uid, id)
}
