// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet136

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepleg "k8s.io/kubernetes/pkg/kubelet/pleg"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// pump converts the core's events into the kubelet's.
//
// A kubelet removes a dead container, beyond the few that are kept, when ContainerDied names the
// container, and never for a PodSync. So for a PodSync that replaced events because Watch was full,
// the pump adds the ends in the pod's status that were not reported. The goroutine in run owns the
// pump.
type pump struct {
	g            *Generator
	log          klog.Logger
	reportedEnds map[types.UID]map[string]struct{} // ended IDs, reported to the kubelet, until removed
}

// run hands events over until ctx ends.
func (p *pump) run(ctx context.Context) {
	for e := range p.g.core.Watch() {
		for _, event := range p.events(e) {
			select {
			case p.g.watch <- event:
			case <-ctx.Done():
				return
			}
		}
	}
}

// events returns the kubelet's events for an event of the core.
func (p *pump) events(e pleg.Event) []*kubepleg.PodLifecycleEvent {
	uid := types.UID(e.Pod)
	event := &kubepleg.PodLifecycleEvent{ID: uid, Type: kubepleg.PodLifeCycleEventType(e.Type)}
	all := []*kubepleg.PodLifecycleEvent{event}
	if e.ID != "" {
		event.Data = e.ID
	}
	switch e.Type {
	case pleg.ContainerDied:
		p.note(uid, e.ID)
		p.logFinished(e)
	case pleg.ContainerRemoved:
		p.forget(uid, e.ID)
	case pleg.PodSync:
		for _, id := range p.unreportedEnds(e.Pod) {
			all = append(all, &kubepleg.PodLifecycleEvent{ID: uid, Type: kubepleg.ContainerDied, Data: id})
		}
		p.prune()
	}
	return all
}

// note notes that the end of an ID was reported to the kubelet.
func (p *pump) note(uid types.UID, id string) {
	ids := p.reportedEnds[uid]
	if ids == nil {
		ids = make(map[string]struct{})
		p.reportedEnds[uid] = ids
	}
	ids[id] = struct{}{}
}

// forget forgets a removed ID.
func (p *pump) forget(uid types.UID, id string) {
	if ids := p.reportedEnds[uid]; ids != nil {
		if delete(ids, id); len(ids) == 0 {
			delete(p.reportedEnds, uid)
		}
	}
}

// unreportedEnds returns the pod's ended IDs whose end was not reported to the kubelet, and notes
// them as reported. Removed IDs are forgotten.
func (p *pump) unreportedEnds(pod cache.UID) []string {
	uid := types.UID(pod)
	status, _ := p.g.cache.statuses.Get(pod)
	before := p.reportedEnds[uid]
	delete(p.reportedEnds, uid)
	var unreported []string
	ended := func(id string) {
		if _, ok := before[id]; !ok {
			unreported = append(unreported, id)
		}
		p.note(uid, id)
	}
	for _, c := range status.ContainerStatuses {
		if c.State == kubecontainer.ContainerStateExited {
			ended(c.ID.ID)
		}
	}
	for _, s := range status.SandboxStatuses {
		if !ready(s) {
			ended(s.GetId())
		}
	}
	return unreported
}

// manyDied is the number of pods with dead containers from which on removed pods are looked for:
// the PodSync of a removed pod may have been given up.
const manyDied = 1000

// prune forgets removed pods, if there may be many.
func (p *pump) prune() {
	if len(p.reportedEnds) <= manyDied+2*p.g.core.Stats().Pods {
		return
	}
	for uid := range p.reportedEnds {
		if status, _ := p.g.cache.statuses.Get(cache.UID(uid)); len(status.ContainerStatuses)+len(status.SandboxStatuses) == 0 {
			delete(p.reportedEnds, uid)
		}
	}
}

// logFinished says with which exit code a container has finished, as the stock PLEG does.
func (p *pump) logFinished(e pleg.Event) {
	log := p.log.V(2)
	if e.Kind != pleg.Container || !log.Enabled() {
		return
	}
	status, _ := p.g.cache.statuses.Get(e.Pod)
	for _, c := range status.ContainerStatuses {
		if c.ID.ID == e.ID {
			log.Info("Event-driven PLEG: container finished", "pod", klog.KRef(e.Namespace, e.PodName), "podID", e.Pod,
				"containerName", e.ContainerName, "containerID", e.ID, "exitCode", c.ExitCode)
		}
	}
}
