// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"slices"
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

// Subject is what an own call is about.
type Subject struct {
	// ID is the sandbox or container in the request; empty if the call makes one.
	ID string
	// Pod is the UID of the pod in the request; empty if the request names none.
	Pod string
	// Sandbox is the sandbox of a container to be made.
	Sandbox string
}

// Call is an own call under way.
type Call struct {
	Subject
	op    Op
	began Seq
}

// Answer is how a call ended.
type Answer struct {
	Failed bool
	// Unanswered: the call failed because its caller gave up, or lost the runtime. The runtime may
	// still carry out the call.
	Unanswered bool
	// Made is the ID made by RunPodSandbox or CreateContainer.
	Made string
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

// Start is called before an own call is sent.
func (l *Ledger) Start(op Op, s Subject) Call {
	c := Call{Subject: s, op: op, began: l.tick()}
	switch {
	case op == RunPodSandbox:
		l.sandboxes.makes(c)
	case op == CreateContainer:
		l.containers.makes(c)
	case s.ID != "":
		l.under(op)[s.ID]++
	}
	return c
}

// End is called after the answer to an own call. From then on the effect of the call is known, or
// in doubt.
func (l *Ledger) End(c Call, a Answer, now time.Time) {
	switch {
	case c.op == RunPodSandbox:
		l.sandboxes.madeNoMore(c)
	case c.op == CreateContainer:
		l.containers.madeNoMore(c)
	case l.under(c.op)[c.ID] > 1:
		l.under(c.op)[c.ID]--
	default:
		delete(l.under(c.op), c.ID)
	}
	if a.Failed {
		l.failed(c, a, now)
		return
	}
	switch c.op {
	case RunPodSandbox:
		l.sandboxes.created(a.Made, c)
		l.sandboxes.made[a.Made] = l.tick()
	case CreateContainer:
		l.containers.created(a.Made, c)
	case StartContainer:
		if x := l.containers.items[c.ID]; x != nil {
			l.containers.forward(c.ID, x, Running)
		} else {
			l.containers.ask(c.ID)
		}
	case StopContainer:
		l.stopped(c)
	case RemoveContainer:
		l.removed(c.ID, now)
	case StopPodSandbox:
		l.sandboxStopped(c, now)
	case RemovePodSandbox:
		l.sandboxRemoved(c, now)
	}
}

// making are the own calls under way that make an item of a pod.
type making struct {
	calls int
	// began is when the first of the calls began.
	began Seq
}

// makes notes the start of a making call.
func (t *table[E]) makes(c Call) {
	m := t.making[c.Pod]
	if m.calls == 0 {
		m.began = c.began
	}
	m.calls++
	t.making[c.Pod] = m
}

// madeNoMore notes the end of a making call.
func (t *table[E]) madeNoMore(c Call) {
	m := t.making[c.Pod]
	m.calls--
	if m.calls > 0 {
		t.making[c.Pod] = m
	} else {
		delete(t.making, c.Pod)
	}
}

// created takes the ID made by an own call. The list's element comes from a later read.
func (t *table[E]) created(id string, c Call) {
	made := doubt{
		claim:   Created,
		pod:     c.Pod,
		made:    true,
		sandbox: c.Sandbox,
	}
	x := t.items[id]
	switch {
	case x == nil:
		t.question(id, made)
	case x.phase == Exited:
		made.claim = anything
		t.question(id, made)
	}
}

// failed takes a failed call, whose effect may be full, partial or none.
func (l *Ledger) failed(c Call, a Answer, now time.Time) {
	switch c.op {
	case RunPodSandbox:
		l.sandboxes.failedToMake(c, a.Unanswered, now)
	case CreateContainer:
		l.containers.failedToMake(c, a.Unanswered, now)
	case StartContainer, StopContainer, RemoveContainer:
		l.containers.ask(c.ID)
		if c.op == StartContainer && a.Unanswered {
			c.Pod = l.podOf(c)
			l.containers.failedToMake(c, true, now)
		}
	case StopPodSandbox, RemovePodSandbox:
		l.sandboxes.ask(c.ID)
		for id, x := range l.containers.covered(filter{sandbox: c.ID}) {
			if x.phase != Exited || c.op == RemovePodSandbox {
				l.containers.ask(id)
			}
		}
	}
}

// podOf returns the UID of the pod of a container in a call; empty if nothing names the pod.
func (l *Ledger) podOf(c Call) string {
	if c.Pod != "" {
		return c.Pod
	}
	if x := l.containers.items[c.ID]; x != nil {
		return x.element.GetLabels()[PodUIDLabel]
	}
	return l.containers.doubts[c.ID].pod
}

// failure is a making or starting call of a pod that has failed: the pod may have an item whose ID
// nobody has.
type failure struct {
	// at is when the call failed. A list of the pod begun later shows what the call has made.
	at Seq
	// until is how long the runtime may still carry out the call, from the time of giving up on; zero
	// if the runtime has answered. A full list begun later shows what the call has made.
	until time.Time
	// ids are the containers that the runtime may still start.
	ids []string
}

// failedToMake notes the failure of a call. With more pods than there is room for, pods are no
// longer told apart: the empty UID stands for any pod.
func (t *table[E]) failedToMake(c Call, unanswered bool, now time.Time) {
	pod := c.Pod
	ids := t.failures[pod].ids
	if _, ok := t.failures[pod]; !ok && len(t.failures) >= maxDoubts {
		for _, f := range t.failures {
			now = later(now, f.until)
			unanswered = unanswered || !f.until.IsZero()
			ids = append(ids, f.ids...)
		}
		clear(t.failures)
		pod = ""
	}
	if c.ID != "" && !slices.Contains(ids, c.ID) {
		ids = append(ids, c.ID)
	}
	f := failure{at: t.tick(), until: t.failures[pod].until, ids: ids}
	if unanswered {
		f.until = later(now, f.until)
	}
	t.failures[pod] = f
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// listed forgets the answered failures of which the list shows any effect.
func (t *table[E]) listed(r Read, f filter) {
	if len(t.failures) == 0 || !f.all() && !f.wholePod() {
		return
	}
	maps.DeleteFunc(t.failures, func(pod string, failed failure) bool {
		return failed.until.IsZero() && r.began > failed.at && (f.all() || f.pod() == pod)
	})
}

// forgetLate forgets the unanswered calls given up so long before the last full list began that
// the list has shown any effect.
func (t *table[E]) forgetLate(late time.Duration) {
	maps.DeleteFunc(t.failures, func(_ string, failed failure) bool {
		return !failed.until.IsZero() && t.full > failed.at && t.fullAt.After(failed.until.Add(late))
	})
}

// unlisted returns the pods with a failed call that a list with this filter could show an effect
// of, and whether lists of these pods would show the effect: no call may still be carried out.
func (t *table[E]) unlisted(f filter) (pods []string, resolves bool) {
	resolves = true
	for pod, failed := range t.failures {
		if f.mayShow(pod, failed.ids) {
			pods = append(pods, pod)
			resolves = resolves && pod != "" && failed.until.IsZero()
		}
	}
	slices.Sort(pods)
	return pods, resolves
}

// ask puts an ID in doubt, in whatever phase, unless the ID is known to be gone.
func (t *table[E]) ask(id string) {
	if _, dead := t.gone[id]; dead {
		return
	}
	d := doubt{claim: anything}
	if x := t.items[id]; x != nil {
		d.pod = t.labels(x.element)[PodUIDLabel]
	}
	t.question(id, d)
}

// stopped takes a successful StopContainer. A runtime need not end a container that has not
// started, and a container started during the call may have been started after the runtime's work.
func (l *Ledger) stopped(c Call) {
	x := l.containers.items[c.ID]
	switch {
	case x != nil && (x.phase == Exited || x.phase == Running && x.since < c.began):
		l.containers.forward(c.ID, x, Exited)
	default:
		l.containers.ask(c.ID)
	}
}

func (l *Ledger) removed(id string, now time.Time) {
	l.containers.remove(id, now)
	delete(l.logPaths, id)
}

// sandboxStopped takes a successful StopPodSandbox: the runtime has ended the sandbox's containers.
func (l *Ledger) sandboxStopped(c Call, now time.Time) {
	l.ended[c.ID] = tombstone{at: l.tick(), when: now}
	if x := l.sandboxes.items[c.ID]; x != nil {
		l.sandboxes.forward(c.ID, x, Exited)
	} else {
		l.sandboxes.ask(c.ID)
	}
	for id, x := range l.containers.covered(filter{sandbox: c.ID}) {
		if x.phase == Exited || x.phase == Running && x.since < c.began {
			l.containers.forward(id, x, Exited)
		} else {
			l.containers.ask(id)
		}
	}
}

// sandboxRemoved takes a successful RemovePodSandbox: the sandbox's containers are gone too.
func (l *Ledger) sandboxRemoved(c Call, now time.Time) {
	l.ended[c.ID] = tombstone{at: l.tick(), when: now}
	l.sandboxes.remove(c.ID, now)
	for id, x := range l.containers.covered(filter{sandbox: c.ID}) {
		if x.since < c.began {
			l.removed(id, now)
		} else {
			l.containers.ask(id)
		}
	}
}
