// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"slices"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// Update implements [pleg.Updater]: it takes over from prev what that says of the sandboxes and
// containers that pod shows in the same phase, and reads the others: one call for a container that
// has exited, however many there are beside it. Where PodSandboxStatus answers bring the statuses
// of containers along, several containers that differ are read with one call a sandbox. What
// changes without a change of phase (resources, annotations) is read by Inspect only, which is what
// a generator's RequestReinspect comes to.
func (c *Client) Update(ctx context.Context, pod pleg.Pod, prev *PodStatus) (pleg.Inspection[PodStatus], error) {
	in := inspection{client: c, pod: pod}
	in.plan(prev)
	if err := in.run(ctx); err != nil {
		return pleg.Inspection[PodStatus]{}, err
	}
	return in.result(), nil
}

// plan divides the pod's IDs into those to read and those to take over from prev, which may be nil.
func (in *inspection) plan(prev *PodStatus) {
	old := prev.parts()
	var sandboxes []string // all
	for _, item := range in.pod.Items {
		raw, ok := old[pleg.Item{ID: item.ID, Kind: item.Kind, Phase: item.Phase}]
		if item.Kind == pleg.Sandbox {
			sandboxes = append(sandboxes, item.ID)
			if ok {
				in.taken.sandboxes = append(in.taken.sandboxes, raw)
			} else {
				in.sandboxes = append(in.sandboxes, item.ID)
			}
			continue
		}
		if ok {
			in.taken.containers = append(in.taken.containers, raw)
		} else {
			in.containers = append(in.containers, item.ID)
		}
	}
	in.severalSandboxes = len(sandboxes) > 1
	if len(in.containers) > len(sandboxes) && !in.client.traits.Load().fillsStatuses.no() {
		in.sandboxes, in.taken.sandboxes = sandboxes, nil // they may bring them all along
	}
	if len(in.sandboxes)+len(in.containers) < len(in.pod.Items) {
		in.taken.sandboxOf = prev.body.sandboxOf
	}
}

// homeless says that the sandbox of one of the pod's containers is not known from an earlier
// status.
func (in *inspection) homeless() bool {
	return slices.ContainsFunc(in.pod.Items, func(item pleg.Item) bool {
		return item.Kind == pleg.Container && in.taken.sandboxOf[item.ID] == ""
	})
}

// parts returns the statuses that can be taken over into another one, each in memory of its own:
// one that shared the message that brought it would keep all of that alive.
func (s *PodStatus) parts() map[pleg.Item][]byte {
	if s == nil || s.body == nil {
		return nil
	}
	b := s.body
	found := make(map[pleg.Item][]byte, len(b.sandboxes)+len(b.containers))
	put := func(id []byte, kind pleg.Kind, phase pleg.Phase, raw []byte) {
		if phase == pleg.PhaseUnknown || !complete(raw) {
			return
		}
		if b.shared {
			raw = slices.Clone(raw)
		}
		found[pleg.Item{ID: string(id), Kind: kind, Phase: phase}] = raw
	}
	for _, raw := range b.sandboxes {
		var item sandboxItem
		if item.read(raw, labelsOfPodSandboxStatus) {
			put(item.id, pleg.Sandbox, item.phase(), raw)
		}
	}
	for _, raw := range b.containers {
		var item containerItem
		if item.readStatus(raw) {
			put(item.id, pleg.Container, item.phase(), raw)
		}
	}
	return found
}
