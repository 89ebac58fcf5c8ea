// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Seq is a moment: the ledger's count of inputs.
type Seq uint64

// Kind is the kind of an ID.
type Kind uint8

// Kinds.
const (
	EitherKind Kind = iota
	SandboxKind
	ContainerKind
)

// Phase is a stage of a life. For a sandbox Running is ready and Exited is not ready.
type Phase = pleg.Phase

// Phases, by short names.
const (
	Unknown = pleg.PhaseUnknown
	Created = pleg.PhaseCreated
	Running = pleg.PhaseRunning
	Exited  = pleg.PhaseExited
	Gone    = pleg.PhaseRemoved
	// anything is claimed by a failed call: only a read answers.
	anything = pleg.PhaseRemoved + 1
)

// Reason is why a list is not served; the label of a metric.
type Reason string

// Reasons.
const (
	// Untrusted: there is no stream, or no full list since its start.
	Untrusted Reason = "untrusted"
	// Stale: the last full list is too old.
	Stale Reason = "stale"
	// Creating: the list would show a sandbox as not ready which an own call may still be making.
	Creating Reason = "creating"
	// FailedCall: the list could show what a creating call has made that failed or that the runtime
	// has not answered, and no list of its pod has begun since, or late enough.
	FailedCall Reason = "failed_call"
	// UnknownState: the list would show an item in the state UNKNOWN.
	UnknownState Reason = "unknown_state"
	// UnknownID: the filter names an ID unknown to the ledger.
	UnknownID Reason = "unknown_id"
	// InDoubt: a claim or a failed call wants an answer first; see [Verdict].
	InDoubt Reason = "doubt"
)

// Verdict says whether a list was served.
type Verdict struct {
	// Reason is empty for a served list.
	Reason Reason
	// Resolve are the lists after which the refused list can be served; empty if there is no such
	// list, or if there are too many.
	Resolve []Query
}

// Query is a list of one item, or of all items of one pod.
type Query struct {
	// ID is the item's, or Pod the pod's UID; the other is empty.
	ID, Pod string
}

func (q Query) compare(o Query) int {
	return cmp.Or(cmp.Compare(q.Pod, o.Pod), cmp.Compare(q.ID, o.ID))
}

// Bounds.
const (
	maxResolve = 4 // more queries cost more than the delayed list
	maxDoubts  = 4096
	maxGone    = 4 * maxDoubts
	forget     = 5 * time.Minute // after which a removed ID is no longer remembered
)

// LateCall is how long an unanswered call may still create or start an item: pleg.LateCall.
const LateCall = 10 * time.Minute

// PodUIDLabel is the label by which a kubelet's containers and sandboxes name their pod.
const PodUIDLabel = "io.kubernetes.pod.uid"

// Ledger holds the known items, made by [New].
type Ledger struct {
	maxAge     time.Duration
	seq        Seq
	sandboxes  *table[*runtimeapi.PodSandbox]
	containers *table[*runtimeapi.Container]
	logPaths   map[string]string // of known containers, and of some that have gone

	trusted   bool
	connected Seq           // when trusted became true
	late      time.Duration // how long an unanswered call may take effect

	// Calls under way, by the sandbox or container ID in the request.
	starting, stopping, removing map[string]int
	// ended are the sandboxes stopped or removed by own calls.
	ended map[string]tombstone
}

// New returns a ledger that serves nothing yet. A full list suffices for maxAge after its
// beginning.
func New(maxAge time.Duration) *Ledger {
	l := &Ledger{
		maxAge:   maxAge,
		late:     LateCall,
		logPaths: make(map[string]string),
		starting: make(map[string]int),
		stopping: make(map[string]int),
		removing: make(map[string]int),
		ended:    make(map[string]tombstone),
	}
	l.sandboxes = newTable(sandboxKind, l.tick, func(Read, *runtimeapi.PodSandbox) bool { return false })
	l.containers = newTable(containerKind, l.tick, func(r Read, c *runtimeapi.Container) bool {
		_, removed := l.sandboxes.gone[c.GetPodSandboxId()]
		return r.began <= l.ended[c.GetPodSandboxId()].at && (removed || criphase.OfContainer(c.GetState()) < Exited)
	})
	return l
}

func (l *Ledger) tick() Seq {
	l.seq++
	return l.seq
}

// SetMaxAge sets for how long a full list is enough to serve from.
func (l *Ledger) SetMaxAge(d time.Duration) { l.maxAge = d }

// Trust sets whether the runtime's events are being received, so that every change is heard of.
// When trust begins, earlier full lists no longer count.
func (l *Ledger) Trust(on bool) {
	if on && !l.trusted {
		l.connected = l.tick()
	}
	l.trusted = on
}

// Revision changes with every change that a list could show.
func (l *Ledger) Revision() uint64 { return l.sandboxes.changes + l.containers.changes }

// Len returns how many sandboxes and containers are known, and how many IDs are in doubt.
func (l *Ledger) Len() (sandboxes, containers, doubts int) {
	return len(l.sandboxes.items), len(l.containers.items), len(l.sandboxes.doubts) + len(l.containers.doubts)
}

// ServesAll reports whether lists of all sandboxes and of all containers could be served, without
// making them.
func (l *Ledger) ServesAll(now time.Time) bool {
	return l.recent(now) == "" && l.sandboxes.refuses(filter{}).Reason == "" && l.containers.refuses(filter{}).Reason == ""
}

// ServeSandboxes returns the runtime's list, or the reason to refuse.
func (l *Ledger) ServeSandboxes(f *runtimeapi.PodSandboxFilter, now time.Time) ([]*runtimeapi.PodSandbox, Verdict) {
	if reason := l.recent(now); reason != "" {
		return nil, Verdict{Reason: reason}
	}
	return l.sandboxes.serve(sandboxFilter(f))
}

// ServeContainers returns the runtime's list, or the reason to refuse.
func (l *Ledger) ServeContainers(f *runtimeapi.ContainerFilter, now time.Time) ([]*runtimeapi.Container, Verdict) {
	by := containerFilter(f)
	if reason := l.recent(now); reason != "" {
		return nil, Verdict{Reason: reason}
	}
	if by.sandbox != "" && l.sandboxes.items[by.sandbox] == nil {
		return nil, Verdict{Reason: UnknownID}
	}
	return l.containers.serve(by)
}

// recent returns the reason not to answer anything from memory: events are not received, or the
// last full lists are too old.
func (l *Ledger) recent(now time.Time) Reason {
	switch {
	case !l.trusted || min(l.sandboxes.full, l.containers.full) <= l.connected:
		return Untrusted
	case now.Sub(l.sandboxes.fullAt) > l.maxAge || now.Sub(l.containers.fullAt) > l.maxAge:
		return Stale
	}
	return ""
}

// Recent reports whether what is known and never changes may be answered from memory: events are
// received, and full lists have been made within the age limit.
func (l *Ledger) Recent(now time.Time) bool { return l.recent(now) == "" }

// SandboxOf returns the sandbox of an item, which is itself if it is a sandbox; empty if the ledger
// knows the item neither from a read nor from an own call that made the item.
func (l *Ledger) SandboxOf(id string) string {
	if x := l.containers.items[id]; x != nil {
		return x.element.GetPodSandboxId()
	}
	if l.sandboxes.items[id] != nil || l.sandboxes.doubts[id].made {
		return id
	}
	return l.containers.doubts[id].sandbox
}

// LogPath returns the log path of a known container, if known from a status.
func (l *Ledger) LogPath(id string) (path string, ok bool) {
	if l.containers.items[id] != nil { // a path may be left over: see dropPaths
		path, ok = l.logPaths[id]
	}
	return path, ok
}
