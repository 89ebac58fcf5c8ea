// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"time"
)

// Op is a call by the agent that changes the runtime's lists.
type Op uint8

// Ops.
const (
	RunPodSandbox Op = iota
	StopPodSandbox
	RemovePodSandbox
	CreateContainer
	StartContainer
	StopContainer
	RemoveContainer
)

// Call is an own call under way.
type Call struct {
	op    Op
	id    string
	began Seq
}

// Answer is how a call ended.
type Answer struct {
	Failed bool
	// Unanswered: the call failed because its caller gave up, or lost the runtime. The runtime may
	// still carry out the call.
	Unanswered bool
	// Made is the ID made by RunPodSandbox or CreateContainer, and Pod the UID of their pod, also
	// after a failure.
	Made, Pod string
}

// creates reports whether an unreported item may exist during the call.
func (o Op) creates() bool {
	return o == RunPodSandbox || o == CreateContainer || o == StartContainer
}

// under returns the counts of calls in flight by ID, for this kind of call.
func (l *Ledger) under(o Op) map[string]int {
	switch o {
	case StartContainer:
		return l.starting
	case StopContainer, StopPodSandbox:
		return l.stopping
	}
	return l.removing
}

// Start is called before an own call is sent, with the sandbox or container ID in the request, if
// any.
func (l *Ledger) Start(op Op, id string) Call {
	if op.creates() {
		l.creating++
	}
	if id != "" {
		l.under(op)[id]++
	}
	return Call{op, id, l.tick()}
}

// End is called after the answer to an own call. From then on the effect of the call is known, or
// in doubt.
func (l *Ledger) End(c Call, a Answer, now time.Time) {
	if c.op.creates() {
		l.creating--
	}
	if c.id != "" {
		if under := l.under(c.op); under[c.id] > 1 {
			under[c.id]--
		} else {
			delete(under, c.id)
		}
	}
	if a.Failed {
		l.failed(c, a, now)
		return
	}
	switch c.op {
	case RunPodSandbox:
		l.sandboxes.created(a.Made, a.Pod)
		l.sandboxes.made[a.Made] = l.tick()
	case CreateContainer:
		l.containers.created(a.Made, a.Pod)
	case StartContainer:
		if x := l.containers.items[c.id]; x != nil {
			l.containers.forward(c.id, x, Running)
		} else {
			l.containers.ask(c.id)
		}
	case StopContainer:
		l.stopped(c)
	case RemoveContainer:
		l.removed(c.id, now)
	case StopPodSandbox:
		l.sandboxStopped(c, now)
	case RemovePodSandbox:
		l.sandboxRemoved(c, now)
	}
}

// created takes the ID made by an own call. The list's element comes from a later read.
func (t *table[E]) created(id, pod string) {
	if x := t.items[id]; x == nil {
		t.question(id, Created, pod)
	} else if x.phase == Exited {
		t.question(id, anything, pod)
	}
}

// failed takes a failed call, whose effect may be full, partial or none.
func (l *Ledger) failed(c Call, a Answer, now time.Time) {
	switch c.op {
	case RunPodSandbox, CreateContainer:
		l.broken = l.tick() // there may be something that nobody has the ID of
		if a.Unanswered {
			l.expect(a.Pod, now)
		}
	case StartContainer, StopContainer, RemoveContainer:
		l.containers.ask(c.id)
	case StopPodSandbox, RemovePodSandbox:
		l.sandboxes.ask(c.id)
		for id, x := range l.containers.items {
			if x.element.GetPodSandboxId() == c.id && (x.phase != Exited || c.op == RemovePodSandbox) {
				l.containers.ask(id)
			}
		}
	}
}

// expect notes an unanswered call about a pod: an item may still appear, reported by an event only.
// With more pods than there is room for, pods are no longer told apart.
func (l *Ledger) expect(pod string, now time.Time) {
	if _, ok := l.unborn[pod]; !ok && len(l.unborn) >= maxDoubts {
		clear(l.unborn)
		pod = ""
	}
	l.unborn[pod] = now
}

// awaits reports whether a list with this filter could show an item of an unanswered call, still to
// come or made since the last full lists began. An ID in the filter is known, and so not awaited.
func (l *Ledger) awaits(f filter) bool {
	if len(l.unborn) == 0 || f.id != "" {
		return false
	}
	pod := f.labels[PodUIDLabel]
	if pod == "" {
		return true
	}
	_, its := l.unborn[pod]
	_, anyones := l.unborn[""]
	return its || anyones
}

// forgetBorn is called after each list, and forgets the calls given up so long before the last full
// lists began that these lists have shown any effect: all remaining calls are awaited.
func (l *Ledger) forgetBorn(f filter) {
	if !f.all() {
		return
	}
	begun := l.sandboxes.fullAt
	if l.containers.fullAt.Before(begun) {
		begun = l.containers.fullAt
	}
	maps.DeleteFunc(l.unborn, func(_ string, at time.Time) bool { return begun.After(at.Add(l.late)) })
}

// ask puts an ID in doubt, in whatever phase, unless the ID is known to be gone.
func (t *table[E]) ask(id string) {
	if _, dead := t.gone[id]; dead {
		return
	}
	pod := t.doubts[id].pod
	if x := t.items[id]; x != nil {
		pod = t.labels(x.element)[PodUIDLabel]
	}
	t.question(id, anything, pod)
}

// stopped takes a successful StopContainer. A runtime need not end a container that has not
// started, and a container started during the call may have been started after the runtime's work.
func (l *Ledger) stopped(c Call) {
	x := l.containers.items[c.id]
	switch {
	case x != nil && (x.phase == Exited || x.phase == Running && x.since < c.began):
		l.containers.forward(c.id, x, Exited)
	default:
		l.containers.ask(c.id)
	}
}

func (l *Ledger) removed(id string, now time.Time) {
	l.containers.remove(id, now)
	delete(l.logPaths, id)
}

// sandboxStopped takes a successful StopPodSandbox: the runtime has ended the sandbox's containers.
func (l *Ledger) sandboxStopped(c Call, now time.Time) {
	l.ended[c.id] = tombstone{l.tick(), now}
	if x := l.sandboxes.items[c.id]; x != nil {
		l.sandboxes.forward(c.id, x, Exited)
	} else {
		l.sandboxes.ask(c.id)
	}
	for id, x := range l.containers.items {
		if x.element.GetPodSandboxId() != c.id {
			continue
		}
		if x.phase == Exited || x.phase == Running && x.since < c.began {
			l.containers.forward(id, x, Exited)
		} else {
			l.containers.ask(id)
		}
	}
}

// sandboxRemoved takes a successful RemovePodSandbox: the sandbox's containers are gone too.
func (l *Ledger) sandboxRemoved(c Call, now time.Time) {
	l.ended[c.id] = tombstone{l.tick(), now}
	l.sandboxes.remove(c.id, now)
	for id, x := range l.containers.items {
		if x.element.GetPodSandboxId() != c.id {
			continue
		}
		if x.since < c.began {
			l.removed(id, now)
		} else {
			l.containers.ask(id)
		}
	}
}
