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
// has left SyncTerminatingPod. The worker's StopPodSandbox causes the last event, and the worker
// leaves later: some milliseconds on a quiet node, seconds on a busy one. Its next step is a wait
// for a newer status. So the pump repeats the event of the sandbox's end when such a wait has been
// answered. The worker of a pod that the kubelet does not know, after a restart, waits for nothing.
// So the pump also repeats it after some time. Both only while the pod has ended containers. The
// goroutine in run owns the pump.
type pump struct {
	g            *Generator
	log          klog.Logger
	reportedEnds map[types.UID]map[string]int // ended IDs, reported to the kubelet, until removed: repeats left
	later        []later                      // in the order of their times
}

// later is a sandbox's end to be reported again at a time.
type later struct {
	at   time.Time
	uid  types.UID
	id   string
	next int // index of the delay after this
}

// sandboxRepeats is how many answered waits repeat a sandbox's end: that after StopPodSandbox, and
// one for a failed SyncTerminatingPod. The bound keeps a pod without a ready sandbox, whose worker
// waits at each event, from a loop.
const sandboxRepeats = 2

// repeatAfter are the delays between the reports of a sandbox's end. The first is half a relist
// period of the stock PLEG, the second for a slow worker, and for a removal that the kubelet has
// dropped because 50 were queued.
var repeatAfter = [...]time.Duration{500 * time.Millisecond, 4 * time.Second}

// run hands events over until ctx ends.
func (p *pump) run(ctx context.Context) {
	for {
		var due <-chan time.Time
		if len(p.later) > 0 {
			due = time.After(time.Until(p.later[0].at))
		}
		var events []*kubepleg.PodLifecycleEvent
		select {
		case e, ok := <-p.g.core.Watch():
			if !ok {
				return
			}
			events = p.events(e)
		case <-p.g.cache.answered:
			for _, uid := range p.g.cache.takeEnded() {
				events = append(events, p.repeat(uid)...)
			}
		case <-due:
			events = p.repeatLater()
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
func (p *pump) schedule(l later) {
	if l.next == len(repeatAfter) {
		return
	}
	l.at = time.Now().Add(repeatAfter[l.next])
	l.next++
	i, _ := slices.BinarySearchFunc(p.later, l, func(a, b later) int { return a.at.Compare(b.at) })
	p.later = slices.Insert(p.later, i, l)
}

// repeatLater returns the event that is due, if the pod still has what to remove.
func (p *pump) repeatLater() []*kubepleg.PodLifecycleEvent {
	l := p.later[0]
	p.later = slices.Delete(p.later, 0, 1)
	if status, _ := p.g.cache.statuses.Get(cache.UID(l.uid)); !removable(status) {
		return nil
	}
	p.schedule(l)
	return died(l.uid, l.id)
}

// removable reports whether a pod has ended containers and no sandbox that is ready.
func removable(status *kubecontainer.PodStatus) bool {
	ended := func(c *kubecontainer.Status) bool { return c.State == kubecontainer.ContainerStateExited }
	return !slices.ContainsFunc(status.SandboxStatuses, ready) && slices.ContainsFunc(status.ContainerStatuses, ended)
}

// repeat returns the event of a sandbox's end of the pod, if it may be repeated.
func (p *pump) repeat(uid types.UID) []*kubepleg.PodLifecycleEvent {
	for id, left := range p.reportedEnds[uid] {
		if left > 0 {
			p.reportedEnds[uid][id] = left - 1
			return died(uid, id)
		}
	}
	return nil
}

func died(uid types.UID, id string) []*kubepleg.PodLifecycleEvent {
	return []*kubepleg.PodLifecycleEvent{{ID: uid, Type: kubepleg.ContainerDied, Data: id}}
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
		p.note(uid, e.ID, repeats(e.Kind))
		p.logFinished(e)
		if e.Kind == pleg.Sandbox {
			p.schedule(later{uid: uid, id: e.ID})
		}
	case pleg.ContainerRemoved:
		p.forget(uid, e.ID)
	case pleg.PodSync:
		for _, id := range p.unreportedEnds(e.Pod) {
			all = append(all, died(uid, id)...)
		}
		p.prune()
	}
	return all
}

// repeats returns how often the end of an ID may be repeated.
func repeats(kind pleg.Kind) int {
	if kind == pleg.Sandbox {
		return sandboxRepeats
	}
	return 0
}

// note notes that the end of an ID was reported to the kubelet.
func (p *pump) note(uid types.UID, id string, repeats int) {
	ids := p.reportedEnds[uid]
	if ids == nil {
		ids = make(map[string]int)
		p.reportedEnds[uid] = ids
	}
	ids[id] = repeats
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
	ended := func(id string, kind pleg.Kind) {
		left, ok := before[id]
		if !ok {
			unreported, left = append(unreported, id), repeats(kind)
		}
		p.note(uid, id, left)
	}
	for _, c := range status.ContainerStatuses {
		if c.State == kubecontainer.ContainerStateExited {
			ended(c.ID.ID, pleg.Container)
		}
	}
	for _, s := range status.SandboxStatuses {
		if !ready(s) {
			ended(s.GetId(), pleg.Sandbox)
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
