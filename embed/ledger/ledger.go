// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Seq is a moment: the ledger counts what it is told.
type Seq uint64

// Kind says what an ID is of.
type Kind uint8

// Kinds.
const (
	EitherKind Kind = iota
	SandboxKind
	ContainerKind
)

// Phase is a stage of a life. For a sandbox Running is ready and Exited is not ready.
type Phase uint8

// Phases, in their order.
const (
	Unknown Phase = iota
	Created
	Running
	Exited
	Gone
	// anything is what a failed call claims: only a read answers it.
	anything
)

// Reason says why a list is not served; it is the label of a metric.
type Reason string

// Reasons.
const (
	// Untrusted: there is no stream, or no full list since it connected.
	Untrusted Reason = "untrusted"
	// Stale: the last full list is too old.
	Stale Reason = "stale"
	// Creating: a call that makes or starts something is under way.
	Creating Reason = "creating"
	// FailedCall: a call that makes something has failed, and no full list has begun since; or the
	// runtime has not answered it, may do its work yet, and the list could show what comes of it.
	FailedCall Reason = "failed_call"
	// UnknownState: the runtime does not know the state of an item that the list would show.
	UnknownState Reason = "unknown_state"
	// UnknownID: the filter names an ID that the ledger does not have.
	UnknownID Reason = "unknown_id"
	// InDoubt: a claim or a failed call wants an answer first; see [Verdict].
	InDoubt Reason = "doubt"
)

// Verdict says whether a list was served.
type Verdict struct {
	// Reason is empty for a list that was served.
	Reason Reason
	// Resolve are the IDs to be read one by one, with InDoubt. It is empty if they are too many.
	Resolve []string
}

// Bounds.
const (
	maxResolve = 4 // more IDs in doubt cost more to read than the one list that they hold up
	maxDoubts  = 4096
	maxGone    = 4 * maxDoubts
	forget     = 5 * time.Minute // after which a removed ID is no longer remembered
	late       = 5 * time.Minute // for how long a call that was not answered may make something
)

// PodUIDLabel is the label by which a kubelet's containers and sandboxes name their pod.
const PodUIDLabel = "io.kubernetes.pod.uid"

// Ledger is what is known. Make it with [New].
type Ledger struct {
	maxAge     time.Duration
	seq        Seq
	sandboxes  *table[*runtimeapi.PodSandbox]
	containers *table[*runtimeapi.Container]
	logPaths   map[string]string // of containers that are known

	trusted   bool
	connected Seq // when trusted became true
	broken    Seq // full lists that began before are not enough to serve from
	// unborn are the pods of which a call that the runtime has not answered may yet make something,
	// with when it was given up; the empty UID stands for any pod.
	unborn map[string]time.Time
	late   time.Duration // for how long it may

	creating int // creating and starting calls under way
	// Calls under way, by the ID that they name: a sandbox's or a container's.
	starting, stopping, removing map[string]int
	// ended are the sandboxes that own calls have stopped or removed.
	ended map[string]tombstone
}

// New returns a ledger that serves nothing yet. It serves for maxAge after the beginning of a full
// list.
func New(maxAge time.Duration) *Ledger {
	l := &Ledger{
		maxAge: maxAge, late: late, logPaths: make(map[string]string), unborn: make(map[string]time.Time),
		starting: make(map[string]int), stopping: make(map[string]int), removing: make(map[string]int),
		ended: make(map[string]tombstone),
	}
	l.sandboxes = newTable(sandboxKind, l.tick, func(Read, *runtimeapi.PodSandbox) bool { return false })
	l.containers = newTable(containerKind, l.tick, func(r Read, c *runtimeapi.Container) bool {
		_, removed := l.sandboxes.gone[c.GetPodSandboxId()]
		return r.began <= l.ended[c.GetPodSandboxId()].at && (removed || ContainerPhase(c.GetState()) < Exited)
	})
	return l
}

func (l *Ledger) tick() Seq {
	l.seq++
	return l.seq
}

// SetMaxAge sets for how long a full list is enough to serve from.
func (l *Ledger) SetMaxAge(d time.Duration) { l.maxAge = d }

// Trust says whether the runtime's events are being received, so that a change would be heard of.
// When that begins, only full lists that begin later count.
func (l *Ledger) Trust(on bool) {
	if on && !l.trusted {
		l.connected = l.tick()
	}
	l.trusted = on
}

// Revision changes with everything that a list could show.
func (l *Ledger) Revision() uint64 { return l.sandboxes.changes + l.containers.changes }

// Len returns how many sandboxes and containers are known, and how many IDs are in doubt.
func (l *Ledger) Len() (sandboxes, containers, doubts int) {
	return len(l.sandboxes.items), len(l.containers.items), len(l.sandboxes.doubts) + len(l.containers.doubts)
}

// ServesAll says that lists of all sandboxes and of all containers can be told from memory, without
// making them.
func (l *Ledger) ServesAll(now time.Time) bool {
	return l.closed(filter{}, now) == "" && l.sandboxes.refuses(filter{}).Reason == "" && l.containers.refuses(filter{}).Reason == ""
}

// ServeSandboxes returns what the runtime would list, or says why that cannot be told from memory.
func (l *Ledger) ServeSandboxes(f *runtimeapi.PodSandboxFilter, now time.Time) ([]*runtimeapi.PodSandbox, Verdict) {
	by := sandboxFilter(f)
	if reason := l.closed(by, now); reason != "" {
		return nil, Verdict{Reason: reason}
	}
	return l.sandboxes.serve(by)
}

// ServeContainers returns what the runtime would list, or says why that cannot be told from memory.
func (l *Ledger) ServeContainers(f *runtimeapi.ContainerFilter, now time.Time) ([]*runtimeapi.Container, Verdict) {
	by := containerFilter(f)
	if reason := l.closed(by, now); reason != "" {
		return nil, Verdict{Reason: reason}
	}
	if by.sandbox != "" && l.sandboxes.items[by.sandbox] == nil {
		return nil, Verdict{Reason: UnknownID}
	}
	return l.containers.serve(by)
}

// closed says why nothing can be served with this filter, whatever the items are.
func (l *Ledger) closed(f filter, now time.Time) Reason {
	full := min(l.sandboxes.full, l.containers.full)
	switch {
	case !l.trusted || full <= l.connected:
		return Untrusted
	case full <= l.broken, l.awaits(f):
		return FailedCall
	case l.creating > 0:
		return Creating
	case now.Sub(l.sandboxes.fullAt) > l.maxAge || now.Sub(l.containers.fullAt) > l.maxAge:
		return Stale
	}
	return ""
}

// LogPath returns the path of a known container's log, if a status has told it.
func (l *Ledger) LogPath(id string) (string, bool) {
	path, ok := l.logPaths[id]
	return path, ok
}
