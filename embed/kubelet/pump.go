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
	"github.com/evented-pleg/evented-pleg/embed"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// pump converts the core's events into the kubelet's.
//
// A kubelet removes a dead container, beyond the few that are kept, when ContainerDied names the
// container, and never for a PodSync. So for a PodSync that replaced events because Watch was
// full, the pump adds the ends in the pod's status that were not reported.
//
// A kubelet removes all containers of a deleted pod when ContainerDied comes after the pod's
// worker has left SyncTerminatingPod. The worker's StopPodSandbox causes the last event, and the
// worker still reads the pod's status then: some milliseconds on a quiet node, seconds on a busy
// one. So the pump asks the kubelet whether the worker has left, and then repeats the event of
// the sandbox's end. The goroutine in run owns the pump.
type pump struct {
	g            *Generator
	log          klog.Logger
	reportedEnds map[types.UID]map[string]bool // ended IDs, reported to the kubelet, until removed
	questions    []question                    // in the order of their times
}

// question is whether the containers of a pod may be removed, to be asked at a time.
type question struct {
	at, until time.Time
	uid       types.UID
	sandbox   string // the ended one
	step      time.Duration
}

const (
	// The time to the first question, which doubles with each, and its limit: a relist period of
	// the stock PLEG.
	firstQuestion, slowQuestion = 10 * time.Millisecond, time.Second
	// repeatAfter is the time from an event to its repetition, which doubles with each: a kubelet
	// drops removals while 50 are queued.
	repeatAfter = 8 * time.Second
	// askFor is how long the pump asks: the kubelet's collector of dead containers comes as often.
	askFor = time.Minute
)

// run hands events over until ctx ends.
func (p *pump) run(ctx context.Context) {
	for {
		var due <-chan time.Time
		if len(p.questions) > 0 {
			due = time.After(max(1, time.Until(p.questions[0].at)))
		}
		var events []*kubepleg.PodLifecycleEvent
		select {
		case e, ok := <-p.g.core.Watch():
			if !ok {
				return
			}
			events = p.batch(ctx, e)
		case <-due:
			events = p.ask()
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

// batch returns the kubelet's events for an event of the core and those that go with it.
func (p *pump) batch(ctx context.Context, e pleg.Event) (events []*kubepleg.PodLifecycleEvent) {
	for _, e := range embed.Together(ctx, p.g.core.Watch(), e) {
		events = append(events, p.events(e)...)
	}
	return events
}

// schedule has a question asked after its step.
func (p *pump) schedule(q question) {
	q.at = time.Now().Add(q.step)
	if q.at.After(q.until) {
		return
	}
	i, _ := slices.BinarySearchFunc(p.questions, q, func(a, b question) int { return a.at.Compare(b.at) })
	p.questions = slices.Insert(p.questions, i, q)
}

// ask asks the question that is due, and returns the sandbox's end if the kubelet would now
// remove the pod's containers. A pod without containers, or with a new sandbox, is left alone. A
// container may end after the sandbox.
func (p *pump) ask() []*kubepleg.PodLifecycleEvent {
	q := p.questions[0]
	p.questions = slices.Delete(p.questions, 0, 1)
	status, _ := p.g.cache.statuses.Get(cache.UID(q.uid))
	if len(status.ContainerStatuses) == 0 || slices.ContainsFunc(status.SandboxStatuses, ready) {
		return nil
	}
	ended := func(c *kubecontainer.Status) bool { return c.State == kubecontainer.ContainerStateExited }
	if !slices.ContainsFunc(status.ContainerStatuses, ended) || !p.g.removable(q.uid) {
		q.step = min(2*q.step, slowQuestion)
		p.schedule(q)
		return nil
	}
	q.step = max(2*q.step, repeatAfter)
	p.schedule(q)
	return died(q.uid, q.sandbox)
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
		p.note(uid, e.ID)
		p.logFinished(e)
		if e.Kind == pleg.Sandbox {
			p.sandboxEnded(uid, e.ID)
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

// sandboxEnded begins to ask about a pod. The event of the sandbox's end, which is sent now, has
// its effect if the answer is yes already.
func (p *pump) sandboxEnded(uid types.UID, id string) {
	q := question{
		until:   time.Now().Add(askFor),
		uid:     uid,
		sandbox: id,
		step:    firstQuestion,
	}
	if p.g.removable(uid) {
		q.step = repeatAfter
	}
	p.schedule(q)
}

// note notes that the end of an ID was reported to the kubelet.
func (p *pump) note(uid types.UID, id string) {
	ids := p.reportedEnds[uid]
	if ids == nil {
		ids = make(map[string]bool)
		p.reportedEnds[uid] = ids
	}
	ids[id] = true
}

// forget forgets a removed ID.
func (p *pump) forget(uid types.UID, id string) {
	if ids := p.reportedEnds[uid]; ids != nil {
		delete(ids, id)
		if len(ids) == 0 {
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
	ended := func(id string) (isNew bool) {
		if !before[id] {
			unreported = append(unreported, id)
		}
		p.note(uid, id)
		return !before[id]
	}
	for _, c := range status.ContainerStatuses {
		if c.State == kubecontainer.ContainerStateExited {
			ended(c.ID.ID)
		}
	}
	for _, s := range status.SandboxStatuses {
		if !ready(s) && ended(s.GetId()) {
			p.sandboxEnded(uid, s.GetId())
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
			log.Info(
				"Event-driven PLEG: container finished",
				"pod",
				klog.KRef(e.Namespace, e.PodName),
				"podID",
				e.Pod,
				"containerName",
				e.ContainerName,
				"containerID",
				e.ID,
				"exitCode",
				c.ExitCode,
			)
		}
	}
}
