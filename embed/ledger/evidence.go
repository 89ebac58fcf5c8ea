// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
)

// Read is a read of the runtime, from its beginning.
type Read struct {
	began Seq
	at    time.Time
}

// Begin is called before a read is sent.
func (l *Ledger) Begin(now time.Time) Read { return Read{l.tick(), now} }

// Sandboxes takes the answer to a list of sandboxes.
func (l *Ledger) Sandboxes(
	r Read,
	f *runtimeapi.PodSandboxFilter,
	shown []*runtimeapi.PodSandbox,
	now time.Time,
) {
	l.sandboxes.apply(r, sandboxFilter(f), shown, now)
	l.sandboxes.forgetLate(l.late)
}

// Containers takes the answer to a list of containers.
func (l *Ledger) Containers(
	r Read,
	f *runtimeapi.ContainerFilter,
	shown []*runtimeapi.Container,
	now time.Time,
) {
	l.containers.apply(r, containerFilter(f), shown, now)
	l.containers.forgetLate(l.late)
	l.dropPaths()
	if len(l.ended) > len(l.sandboxes.items) {
		prune(l.ended, now)
	}
}

// SandboxStatus takes the answer to a PodSandboxStatus, which has everything that a list shows. The
// request may name a sandbox by the begin of its ID: the answer has all of the ID.
func (l *Ledger) SandboxStatus(r Read, id string, st *runtimeapi.PodSandboxStatus) {
	id = cmp.Or(st.GetId(), id)
	if l.sandboxes.items[id] == nil {
		l.sandboxes.show(r, id, sandboxOf(id, st))
		return
	}
	l.sandboxes.state(r, id, sandboxPhase(st.GetState()))
}

// ContainerStatus takes the answer to a ContainerStatus: the state, the log's path, which is known
// from the container's creation on and never changes, and of a container made by an own call, whose
// sandbox is known, everything that a list shows. The ID is taken as by SandboxStatus.
func (l *Ledger) ContainerStatus(r Read, id string, st *runtimeapi.ContainerStatus) {
	id = cmp.Or(st.GetId(), id)
	sandbox := l.containers.doubts[id].sandbox
	switch {
	case l.containers.items[id] != nil:
		l.containers.state(r, id, criphase.OfContainer(st.GetState()))
	case sandbox != "" && l.namesImage(sandbox, st): // else the image in use is known from lists alone
		l.containers.show(r, id, containerOf(id, sandbox, st))
	}
	if l.containers.items[id] != nil && st.GetLogPath() != "" {
		l.logPaths[id] = st.GetLogPath()
	}
}

// namesImage reports whether the status of a container names the image in use as a list does.
// containerd's status leaves out the handler that has pulled the image: it is known to be none only
// where the sandbox has none.
func (l *Ledger) namesImage(sandbox string, st *runtimeapi.ContainerStatus) bool {
	if st.GetImageId() == "" {
		return false
	}
	x := l.sandboxes.items[sandbox]
	return st.GetImage().GetRuntimeHandler() != "" || x != nil && x.element.RuntimeHandler == ""
}

// dropPaths forgets the log paths of removed containers.
func (l *Ledger) dropPaths() {
	if len(l.logPaths) <= len(l.containers.items) {
		return // each path was of a known container: at most as many are left over as have come since
	}
	for id := range l.logPaths {
		if l.containers.items[id] == nil {
			delete(l.logPaths, id)
		}
	}
}

// Claim takes an event of the runtime: the ID is said to have reached a phase. A claim makes
// nothing known. Kind may be EitherKind, and pod empty, if absent from the event.
func (l *Ledger) Claim(id string, k Kind, phase Phase, pod string) {
	sandbox := l.sandboxes.gone[id].known
	container := l.containers.gone[id].known
	switch {
	case l.sandboxes.items[id] != nil:
		k = SandboxKind
	case l.containers.items[id] != nil:
		k = ContainerKind
	case k == EitherKind && sandbox && !container:
		k = SandboxKind
	case k == EitherKind && container && !sandbox:
		k = ContainerKind
	}
	if k != ContainerKind {
		l.claimSandbox(id, phase, pod)
	}
	if k != SandboxKind {
		l.claimContainer(id, phase, pod)
	}
}

func (l *Ledger) claimSandbox(id string, phase Phase, pod string) {
	if phase == Created {
		phase = Running // a sandbox is announced when ready
	}
	if l.sandboxes.news(id, phase) && !l.ending(id, phase) {
		l.sandboxes.question(id, doubt{claim: phase, pod: pod})
	}
}

// ending reports whether an own call in flight brings the ID to this end. The call's answer will be
// the evidence; an earlier event is no news. If the call fails, every ID that it may have ended is
// in doubt.
func (l *Ledger) ending(id string, phase Phase) bool {
	return phase >= Exited && l.removing[id] > 0 || phase == Exited && l.stopping[id] > 0
}

func (l *Ledger) claimContainer(id string, phase Phase, pod string) {
	if !l.containers.news(id, phase) || phase == Running && l.starting[id] > 0 {
		return
	}
	// A container that ends while being *started* is news: the answer to a start does not reveal the
	// end.
	if x := l.containers.items[id]; l.ending(id, phase) ||
		x != nil && l.ending(x.element.GetPodSandboxId(), phase) {
		return
	}
	l.containers.question(id, doubt{claim: phase, pod: pod})
}

// news reports whether a claim goes beyond the known phase.
func (t *table[E]) news(id string, phase Phase) bool {
	if x := t.items[id]; x != nil {
		// The known phase may be taken back: of a sandbox by a look at the time between ready and ended.
		return phase > x.phase || t.neverReady(x) || t.doubts[id].claim == anything
	}
	// Of an unknown ID even the removal is news: a read under way may still show the ID.
	_, dead := t.gone[id]
	return !dead || phase < Exited
}
