// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"context"
	"slices"
	"time"

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
// the pump adds the ends in the pod's status that were not reported.
//
// A kubelet removes all containers of a deleted pod when ContainerDied comes after the pod's worker
// has left SyncTerminatingPod. The worker leaves it some milliseconds after its StopPodSandbox, so
// the event of the sandbox's end comes too early, and no other follows. So the pump repeats that
// event while the pod has ended containers. The goroutine in run owns the pump.
type pump struct {
	g            *Generator
	log          klog.Logger
	reportedEnds map[types.UID]map[string]struct{} // ended IDs, reported to the kubelet, until removed
	repeats      []repeat                          // in the order of their times
}

// repeat is a sandbox's end to be reported again.
type repeat struct {
	at   time.Time
	uid  types.UID
	id   string
	next int // index of the delay after this
}

// repeatAfter are the delays between the reports of a sandbox's end. The first is half a relist
// period of the stock PLEG, the second is for a slow worker.
var repeatAfter = [...]time.Duration{500 * time.Millisecond, 4 * time.Second}

// run hands events over until ctx ends.
func (p *pump) run(ctx context.Context) {
	for {
		var due <-chan time.Time
		if len(p.repeats) > 0 {
			due = time.After(time.Until(p.repeats[0].at))
		}
		var events []*kubepleg.PodLifecycleEvent
		select {
		case e, ok := <-p.g.core.Watch():
			if !ok {
				return
			}
			events = p.events(e)
		case <-due:
			events = p.repeated()
		}
		for _, event := range events {
			select {
			case p.g.watch <- event:
			case <-ctx.Done():
				return
			}
		}
	}
}

// schedule has a sandbox's end reported again, if there is another delay.
func (p *pump) schedule(r repeat) {
	if r.next == len(repeatAfter) {
		return
	}
	r.at = time.Now().Add(repeatAfter[r.next])
	r.next++
	i, _ := slices.BinarySearchFunc(p.repeats, r, func(a, b repeat) int { return a.at.Compare(b.at) })
	p.repeats = slices.Insert(p.repeats, i, r)
}

// repeated returns the event of the next repeat, or nothing if the pod has no ended containers any
// more, or runs again.
func (p *pump) repeated() []*kubepleg.PodLifecycleEvent {
	r := p.repeats[0]
	p.repeats = slices.Delete(p.repeats, 0, 1)
	status, _ := p.g.cache.statuses.Get(cache.UID(r.uid))
	ended := func(c *kubecontainer.Status) bool { return c.State == kubecontainer.ContainerStateExited }
	if slices.ContainsFunc(status.SandboxStatuses, ready) || !slices.ContainsFunc(status.ContainerStatuses, ended) {
		return nil
	}
	p.schedule(r)
	return []*kubepleg.PodLifecycleEvent{{ID: r.uid, Type: kubepleg.ContainerDied, Data: r.id}}
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
		if e.Kind == pleg.Sandbox {
			p.schedule(repeat{uid: uid, id: e.ID})
		}
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
