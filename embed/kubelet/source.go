// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri/criphase"
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
	// sandboxOf returns the sandbox of an item that the kubelet itself has made, or that a read
	// has shown; empty if unknown. Nil: every item is unknown.
	sandboxOf func(id string) string

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
		p = nil
		err = nil
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
	s.remember(p)
	return p, nil
}

// Inspect reads the statuses of some or all IDs of a listing, and of IDs made by the kubelet
// since. The runtime manager wants a listing in its own form, in its order and with each
// container's sandbox. So the listing is remembered, and what the kubelet has made is added. If
// IDs are unknown, because of another listing in between, the pod is listed again, once.
func (s *source) Inspect(ctx context.Context, pod pleg.Pod) (pleg.Inspection[kubecontainer.PodStatus], error) {
	ctx = embed.As(ctx, embed.ByPLEG)
	uid := types.UID(pod.UID)
	p := s.remembered(pod)
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
		shows.Items = append(
			shows.Items,
			pleg.Item{ID: sb.GetId(), Kind: pleg.Sandbox, Phase: criphase.OfSandbox(sb.GetState())},
		)
	}
	for _, c := range status.ContainerStatuses {
		shows.Items = append(shows.Items, pleg.Item{
			ID:    c.ID.ID,
			Kind:  pleg.Container,
			Phase: phase(c.State),
			Name:  c.Name,
		})
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
		pod.Items = append(pod.Items, pleg.Item{
			ID:    c.ID.ID,
			Kind:  pleg.Container,
			Phase: phase(c.State),
			Name:  c.Name,
		})
	}
	return pod
}

// remembered returns the items of a pod in the runtime manager's form, and remembers the result as
// the pod's listing if there was none with these items. nil: an item is unknown.
func (s *source) remembered(pod pleg.Pod) *kubecontainer.Pod {
	s.mu.Lock()
	listed := s.shown[types.UID(pod.UID)]
	s.mu.Unlock()
	p, added := assemble(listed, pod, s.sandboxOf)
	if added > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.shown[p.ID] == listed { // else a listing has come, which knows better
			s.remember(p)
		}
	}
	return p
}

// remember keeps a listing of a pod for Inspect; s.mu is held.
func (s *source) remember(p *kubecontainer.Pod) {
	if s.shown == nil {
		s.shown = make(map[types.UID]*kubecontainer.Pod)
	}
	s.shown[p.ID] = p
}

// assemble returns the items of a pod in the runtime manager's form: those in a listing, in its
// order, without those that the generator knows to be gone, and those that sandboxOf knows, as the
// newest. Added is the number of the latter. nil: an item is unknown, or there are none, or two
// sandboxes would be added: a kubelet takes the first for the newest, and kills the pod if that one
// is not ready, and the runtime's list alone tells their order.
func assemble(
	listed *kubecontainer.Pod,
	pod pleg.Pod,
	sandboxOf func(string) string,
) (p *kubecontainer.Pod, added int) {
	if len(pod.Items) == 0 {
		return nil, 0
	}
	missing := make(map[string]bool, len(pod.Items))
	for _, it := range pod.Items {
		missing[it.ID] = true
	}
	p = &kubecontainer.Pod{
		ID:        types.UID(pod.UID),
		Name:      pod.Name,
		Namespace: pod.Namespace,
		Timestamp: time.Now(),
	}
	if listed != nil {
		*p = *listed
		gone := func(c *kubecontainer.Container) bool { return !missing[c.ID.ID] }
		p.Sandboxes = slices.DeleteFunc(slices.Clone(listed.Sandboxes), gone)
		p.Containers = slices.DeleteFunc(slices.Clone(listed.Containers), gone)
	}
	for _, c := range slices.Concat(p.Sandboxes, p.Containers) {
		delete(missing, c.ID.ID)
	}
	sandboxAdded := false
	for _, it := range pod.Items {
		if !missing[it.ID] {
			continue
		}
		if sandboxOf == nil || sandboxOf(it.ID) == "" {
			return nil, 0
		}
		c := &kubecontainer.Container{
			ID:           kubecontainer.ContainerID{ID: it.ID},
			Name:         it.Name,
			PodSandboxID: sandboxOf(it.ID),
		}
		if it.Kind == pleg.Sandbox {
			if sandboxAdded {
				return nil, 0
			}
			sandboxAdded = true
			p.Sandboxes = slices.Insert(p.Sandboxes, 0, c)
		} else {
			p.Containers = slices.Insert(p.Containers, 0, c)
		}
		added++
	}
	return p, added
}

// phase returns the phase of a state of the runtime manager, which shows sandboxes in the states
// of containers.
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

// keepIPs is the generator's Merge: a pod keeps its addresses after its network has been torn
// down.
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

// without is the generator's Without: the status without what the kubelet has removed.
func without(status *kubecontainer.PodStatus, id string) *kubecontainer.PodStatus {
	gone := func(c *kubecontainer.Status) bool { return c.ID.ID == id }
	left := *status
	left.ContainerStatuses = slices.DeleteFunc(slices.Clone(status.ContainerStatuses), gone)
	left.ActiveContainerStatuses = slices.DeleteFunc(slices.Clone(status.ActiveContainerStatuses), gone)
	left.SandboxStatuses = slices.DeleteFunc(slices.Clone(status.SandboxStatuses), func(s *runtimeapi.PodSandboxStatus) bool {
		return s.GetId() == id
	})
	return &left
}

// ready reports whether a sandbox is ready.
func ready(s *runtimeapi.PodSandboxStatus) bool {
	return s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
}
