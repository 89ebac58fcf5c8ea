// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/embed/ledger"
)

// lists holds the differences between listing sandboxes and listing containers: F is the filter, E
// the element.
type lists[F, E any] struct {
	service *Service
	send    func(context.Context, F) ([]E, error)
	only    func(ledger.Query) F
	serve   func(*ledger.Ledger, F, time.Time) ([]E, ledger.Verdict)
	observe func(*ledger.Ledger, ledger.Read, F, []E, time.Time)
}

func (s *Service) sandboxes() lists[*runtimeapi.PodSandboxFilter, *runtimeapi.PodSandbox] {
	return lists[*runtimeapi.PodSandboxFilter, *runtimeapi.PodSandbox]{
		s, s.RuntimeService.ListPodSandbox,
		func(q ledger.Query) *runtimeapi.PodSandboxFilter {
			return &runtimeapi.PodSandboxFilter{Id: q.ID, LabelSelector: podLabel(q)}
		},
		(*ledger.Ledger).ServeSandboxes, (*ledger.Ledger).Sandboxes,
	}
}

func (s *Service) containers() lists[*runtimeapi.ContainerFilter, *runtimeapi.Container] {
	return lists[*runtimeapi.ContainerFilter, *runtimeapi.Container]{
		s, s.RuntimeService.ListContainers,
		func(q ledger.Query) *runtimeapi.ContainerFilter {
			return &runtimeapi.ContainerFilter{Id: q.ID, LabelSelector: podLabel(q)}
		},
		(*ledger.Ledger).ServeContainers, (*ledger.Ledger).Containers,
	}
}

// podLabel returns the label selector of a list of one pod, or nil.
func podLabel(q ledger.Query) map[string]string {
	if q.Pod == "" {
		return nil
	}
	return map[string]string{ledger.PodUIDLabel: q.Pod}
}

// list answers a list.
func (k lists[F, E]) list(ctx context.Context, f F, noFilter, byState bool) ([]E, error) {
	s := k.service
	who := callInfoOf(ctx)
	reason := ""
	switch {
	case who.by == ByPLEG:
		reason = reasonPLEG
	case noFilter, byState && who.by == ByOthers:
		// Lists without a filter build a caller's own state at the start. Lists by state, besides
		// housekeeping's, look for a container to run a command in.
		reason = reasonCaller
	default:
		list, why := k.fromMemory(ctx, f)
		if why == "" {
			s.count(MetricListsServed+string(who.by), 1)
			return list, nil
		}
		reason = string(why)
	}
	if who.forwarded != nil {
		*who.forwarded = true
	}
	return k.forward(ctx, f, reason)
}

// forward passes a list on and observes the answer.
func (k lists[F, E]) forward(ctx context.Context, f F, reason string) ([]E, error) {
	s := k.service
	s.count(MetricListsForwarded+reason, 1)
	read := s.beginRead()
	shown, err := k.send(ctx, f)
	if err == nil {
		s.update(func(l *ledger.Ledger, now time.Time) { k.observe(l, read, f, shown, now) })
	}
	return shown, err
}

// fromMemory answers a list from memory, after the lists that the ledger wants first, or returns
// the reason why not. The lists together take no longer than resolveTimeout.
func (k lists[F, E]) fromMemory(ctx context.Context, f F) (list []E, because ledger.Reason) {
	list, v := k.ask(f)
	if len(v.Resolve) == 0 {
		return list, v.Reason
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	for range 2 { // an event may come during the reads in resolve
		if !k.resolve(ctx, v.Resolve) {
			break
		}
		list, v = k.ask(f)
		if len(v.Resolve) == 0 {
			return list, v.Reason
		}
	}
	return nil, v.Reason
}

// ask asks the ledger for a list.
func (k lists[F, E]) ask(f F) (list []E, v ledger.Verdict) {
	k.service.withTrust(func(l *ledger.Ledger, now time.Time) { list, v = k.serve(l, f, now) })
	return list, v
}

// resolve makes the lists that the ledger wants, and reports false if the lists take too long,
// fail, or are already under way for another caller: then a single list of everything is the better
// answer.
func (k lists[F, E]) resolve(ctx context.Context, queries []ledger.Query) bool {
	if !k.service.resolving.TryLock() {
		return false
	}
	defer k.service.resolving.Unlock()
	for _, q := range queries {
		if _, err := k.forward(ctx, k.only(q), reasonResolve); err != nil {
			return false
		}
	}
	return true
}
