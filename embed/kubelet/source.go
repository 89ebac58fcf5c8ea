// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"context"
	"errors"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/embed"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Runtime is the reading part of the kubelet's runtime manager.
type Runtime interface {
	GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error)
	GetPod(ctx context.Context, uid types.UID) (*kubecontainer.Pod, error)
	GetPodStatus(ctx context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error)
}

// source reads through the runtime manager, and always from the runtime.
type source struct {
	runtime Runtime

	mu    sync.Mutex // owns shown
	shown map[types.UID]*kubecontainer.Pod
}

var _ pleg.Source[kubecontainer.PodStatus] = (*source)(nil)

// List lists everything, in full.
func (s *source) List(ctx context.Context, _ pleg.Revision) (pleg.Listing, error) {
	pods, err := s.runtime.GetPods(embed.As(ctx, embed.ByPLEG), true)
	if err != nil {
		return pleg.Listing{}, err
	}
	listing := pleg.Listing{Pods: make([]pleg.Pod, 0, len(pods)), Total: len(pods)}
	shown := make(map[types.UID]*kubecontainer.Pod, len(pods))
	for _, p := range pods {
		listing.Pods = append(listing.Pods, convert(p))
		shown[p.ID] = p
	}
	s.mu.Lock()
	s.shown = shown
	s.mu.Unlock()
	return listing, nil
}

// ListPod lists a pod.
func (s *source) ListPod(ctx context.Context, uid cache.UID) (pleg.Pod, error) {
	p, err := s.list(ctx, types.UID(uid))
	if err != nil || p == nil {
		return pleg.Pod{UID: uid}, err
	}
	return convert(p), nil
}

// list lists a pod, and remembers the result for Inspect. Nil: the runtime has nothing of the pod.
func (s *source) list(ctx context.Context, uid types.UID) (*kubecontainer.Pod, error) {
	p, err := s.runtime.GetPod(embed.As(ctx, embed.ByPLEG), uid)
	if errors.Is(err, kubecontainer.ErrPodNotFound) {
		p, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == nil {
		delete(s.shown, uid)
		return nil, nil
	}
	if s.shown == nil {
		s.shown = make(map[types.UID]*kubecontainer.Pod)
	}
	s.shown[uid] = p
	return p, nil
}

// Inspect reads the statuses of some or all IDs of a listing. The runtime manager wants that
// listing back in its own form, in its order and with each container's sandbox, so the listing is
// remembered; if IDs are missing, because of another listing in between or an ID made since, the
// pod is listed again, once.
func (s *source) Inspect(ctx context.Context, pod pleg.Pod) (pleg.Inspection[kubecontainer.PodStatus], error) {
	ctx = embed.As(ctx, embed.ByPLEG)
	uid := types.UID(pod.UID)
	s.mu.Lock()
	p := part(s.shown[uid], pod.Items)
	s.mu.Unlock()
	if p == nil {
		var err error
		if p, err = s.list(ctx, uid); err != nil {
			return pleg.Inspection[kubecontainer.PodStatus]{}, err
		}
		if p == nil {
			p = &kubecontainer.Pod{ID: uid, Name: pod.Name, Namespace: pod.Namespace}
		}
	}
	status, err := s.runtime.GetPodStatus(ctx, p)
	if err == nil && status == nil {
		err = errors.New("the runtime manager returned neither a status nor an error")
	}
	if err != nil {
		return pleg.Inspection[kubecontainer.PodStatus]{}, err
	}
	shows := pleg.Pod{UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}
	for _, sb := range status.SandboxStatuses {
		shows.Items = append(shows.Items, pleg.Item{ID: sb.GetId(), Kind: pleg.Sandbox, Phase: embed.SandboxPhase(sb.GetState())})
	}
	for _, c := range status.ContainerStatuses {
		shows.Items = append(shows.Items, pleg.Item{ID: c.ID.ID, Kind: pleg.Container, Phase: phase(c.State), Name: c.Name})
	}
	return pleg.Inspection[kubecontainer.PodStatus]{Status: status, Pod: shows}, nil
}

func convert(p *kubecontainer.Pod) pleg.Pod {
	pod := pleg.Pod{
		UID: cache.UID(p.ID), Name: p.Name, Namespace: p.Namespace,
		Items: make([]pleg.Item, 0, len(p.Sandboxes)+len(p.Containers)),
	}
	for _, c := range p.Sandboxes {
		pod.Items = append(pod.Items, pleg.Item{ID: c.ID.ID, Kind: pleg.Sandbox, Phase: phase(c.State)})
	}
	for _, c := range p.Containers {
		pod.Items = append(pod.Items, pleg.Item{ID: c.ID.ID, Kind: pleg.Container, Phase: phase(c.State), Name: c.Name})
	}
	return pod
}

// part returns the given items of a remembered listing, in the listing's order: all of the listing,
// unless the generator reads by IDs and knows that some are gone. nil: the listing lacks an item.
func part(p *kubecontainer.Pod, items []pleg.Item) *kubecontainer.Pod {
	if p == nil {
		return nil
	}
	asked := make(map[string]bool, len(items))
	for _, it := range items {
		asked[it.ID] = true
	}
	not := func(c *kubecontainer.Container) bool { return !asked[c.ID.ID] }
	some := *p
	some.Sandboxes = slices.DeleteFunc(slices.Clone(p.Sandboxes), not)
	some.Containers = slices.DeleteFunc(slices.Clone(p.Containers), not)
	switch len(asked) {
	case len(p.Sandboxes) + len(p.Containers):
		if len(some.Sandboxes)+len(some.Containers) == len(asked) {
			return p
		}
		return nil
	case len(some.Sandboxes) + len(some.Containers):
		return &some
	}
	return nil
}

// phase returns the phase of a state of the runtime manager, which shows sandboxes in the states of
// containers.
func phase(s kubecontainer.State) pleg.Phase {
	switch s {
	case kubecontainer.ContainerStateCreated:
		return pleg.PhaseCreated
	case kubecontainer.ContainerStateRunning:
		return pleg.PhaseRunning
	case kubecontainer.ContainerStateExited:
		return pleg.PhaseExited
	}
	return pleg.PhaseUnknown
}

// keepIPs is the generator's Merge: a pod keeps its addresses after its network has been torn down.
func keepIPs(prev, next *kubecontainer.PodStatus) *kubecontainer.PodStatus {
	if len(next.IPs) != 0 || prev == nil || len(prev.IPs) == 0 {
		return next
	}
	if slices.ContainsFunc(next.SandboxStatuses, ready) {
		return next
	}
	kept := *next
	kept.IPs = prev.IPs
	return &kept
}

// ready reports whether a sandbox is ready.
func ready(s *runtimeapi.PodSandboxStatus) bool {
	return s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
}
