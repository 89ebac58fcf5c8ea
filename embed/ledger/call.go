// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"time"
)

// Op is a call of the agent's own that changes what a list shows.
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
	// Unanswered says that the call failed because its caller gave up, or lost the runtime: the
	// runtime may do its work yet.
	Unanswered bool
	// Made is the ID of what RunPodSandbox or CreateContainer made, and Pod the UID of the pod that
	// they are about, also when they failed.
	Made, Pod string
}

// creates says that while the call is under way there may be something that nobody has told of.
func (o Op) creates() bool {
	return o == RunPodSandbox || o == CreateContainer || o == StartContainer
}

// under returns where a call with an ID is counted while it is under way.
func (l *Ledger) under(o Op) map[string]int {
	switch o {
	case StartContainer:
		return l.starting
	case StopContainer, StopPodSandbox:
		return l.stopping
	}
	return l.removing
}

// Start is called before an own call is sent. ID is what it names: a sandbox or a container, or
// nothing.
func (l *Ledger) Start(op Op, id string) Call {
	if op.creates() {
		l.creating++
	}
	if id != "" {
		l.under(op)[id]++
	}
	return Call{op, id, l.tick()}
}

// End is called when an own call has been answered. After it, what the call has done is known, or
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

// created takes the ID of what an own call has made. The list's element is for a read to tell.
func (t *table[E]) created(id, pod string) {
	if x := t.items[id]; x == nil {
		t.question(id, Created, pod)
	} else if x.phase == Exited {
		t.question(id, anything, pod)
	}
}

// failed takes a call that failed: it may have done all, or nothing, or a part of its work.
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

// expect notes that something may yet come of a call about a pod, of which nobody will tell but an
// event. Of more pods than there is room for no pod is told from another.
func (l *Ledger) expect(pod string, now time.Time) {
	if _, ok := l.unborn[pod]; !ok && len(l.unborn) >= maxDoubts {
		clear(l.unborn)
		pod = ""
	}
	l.unborn[pod] = now
}

// awaits says that a list with this filter could show what may yet come of such a call, or has come
// since the last full lists began. An ID that is asked for is known, and so it is none of those.
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

// forgetBorn is called after each list. It forgets the calls that were given up so long before the
// last full lists began that these have shown whatever came of them: all that stay are awaited.
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

// ask puts an ID in doubt, whatever it may have become, unless it is known to be gone.
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

// stopped takes a StopContainer that worked. A runtime need not end what it has not started, and
// what was started while the call was under way may have been started after it did its work.
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

// sandboxStopped takes a StopPodSandbox that worked: the runtime has ended what ran in it.
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

// sandboxRemoved takes a RemovePodSandbox that worked: its containers went with it.
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
