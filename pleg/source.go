// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// Item is an ID of a pod, in its phase in a report.
type Item struct {
	// ID is the runtime's ID of the container or sandbox, never reused.
	ID    string
	Kind  Kind
	Phase Phase
	// Name is the container's name, for events, reports and logs; empty where no source has the name.
	// No decision depends on names: items with different names only are the same.
	Name string
}

// Pod is one pod in a report: every sandbox and container of the pod in the runtime, in any order.
type Pod struct {
	UID       cache.UID
	Name      string
	Namespace string
	Items     []Item
}

// Revision names a listing of a [Source]. Zero names none.
type Revision uint64

// Listing is the result of a read of the whole runtime.
type Listing struct {
	// Revision names this listing, for the next List. Zero: the source always lists in full.
	Revision Revision
	// Delta reports whether Pods holds only the pods different from the listing named by List's since,
	// each complete, and Gone the pods in the earlier listing and not in this listing. Without Delta,
	// Pods holds every pod.
	Delta bool
	Pods  []Pod
	Gone  []cache.UID
	// Total is the number of pods in the runtime, for metrics.
	Total int
}

// Inspection is the result of a read of a pod's statuses.
type Inspection[S any] struct {
	// Status is the pod's status, immutable once returned, never nil unless the error is set.
	Status *S
	// Pod holds the phases in Status, and the IDs in Unread. An ID asked for, but no longer in the
	// runtime, is in neither.
	Pod Pod
	// Unread holds the IDs the runtime has, or may have, and whose statuses could not be read. In
	// Pod they stand in the phase that was asked for, in Status they are missing. The error of Inspect
	// says why; an Inspection with a Status beside the error is good for all other IDs.
	Unread []string
}

// Source reads the runtime. Its calls may block on RPCs, must honour ctx, and may come from several
// goroutines at once. A read is taken to be true at some moment after the call began.
type Source[S any] interface {
	// List reads every pod of the runtime. Since is the revision of the last listing applied by the
	// caller; a source that still has the listing may answer with the difference. Calls of List never
	// overlap.
	List(ctx context.Context, since Revision) (Listing, error)
	// ListPod reads the phases of one pod. For a pod not in the runtime it returns a Pod without
	// Items, and no error.
	ListPod(ctx context.Context, uid cache.UID) (Pod, error)
	// Inspect reads the statuses of a pod just shown by a List or ListPod, or of IDs events have
	// named while lists do not answer. IDs gone since, and IDs of other pods, are left out. An error
	// means no status could be had: the last good status stays readable beside the error.
	Inspect(ctx context.Context, pod Pod) (Inspection[S], error)
}

// Updater is a [Source] that can update a status for less than the cost of a new one. In a pod of
// many containers, reading all of them for each start makes a busy runtime busier.
type Updater[S any] interface {
	Source[S]
	// Update is Inspect for a pod whose last good status is prev: for an ID in the same phase in pod
	// and in prev, the entry of prev may be reused; everything else is read. Update is not called when
	// statuses must be read whatever the phases are (RequestReinspect), nor after a failure. Prev must
	// not be changed.
	Update(ctx context.Context, pod Pod, prev *S) (Inspection[S], error)
}

// Claim is one event of the runtime's stream (CRI ContainerEventResponse): partial, perhaps old,
// perhaps false about anything but its own ID. A claim causes reads and never makes anything
// fresh.
type Claim[S any] struct {
	// Pod is the UID of the pod; empty when the event has none (CRI pod_sandbox_status nil).
	Pod cache.UID
	// Item is the ID of the event and the phase that its type means (CRI container_id,
	// container_event_type). Kind is a guess when the event does not say.
	Item Item
	// Payload holds the phases in the event's statuses, its own ID included if shown.
	Payload []Item
	// Status builds the pod's status from the payload, on the status prev in the cache: an ID in a
	// later phase in the payload is taken from the payload, every other ID from prev, because a
	// payload's other statuses may be older than those last read. With prev nil, all is taken from
	// the payload. Status is nil when the payload has none. It is called at most once, only when the
	// payload dominates, from the generator's loop, and must be quick and not block. It must not
	// change prev.
	Status func(prev *S) (*S, error)
	// Release, when set, gives back the memory of Payload, and of Status before its call, for the next
	// claim. It is called at most once, from any goroutine, after the last use of both, and must not
	// block. Without a call, the memory is left to the garbage collector.
	Release func()
	// CreatedAt is the runtime's wall-clock stamp (CRI created_at), zero if absent, for the latency
	// metric and nothing else.
	CreatedAt time.Time
}

// Stream is the runtime's event stream.
type Stream[S any] interface {
	// Events subscribes and yields claims until the stream ends; the last pair has the reason (io.EOF
	// for an orderly end, an error matching [ErrNoEvents] for a runtime without the call). It returns
	// when ctx ends. The consumer never blocks.
	Events(ctx context.Context) iter.Seq2[Claim[S], error]
}

// Phase is how far a container or a sandbox has come in its life. Phases of an ID only move
// forward, because runtimes never reuse an ID: a container is Created, Running, Exited, Removed; a
// sandbox is Running (the CRI's READY), Exited (the CRI's NOTREADY), Removed. Two reports of an ID
// are therefore merged by taking the later phase.
type Phase uint8

const (
	// PhaseUnknown is an ID in a state unknown to the runtime (CRI CONTAINER_UNKNOWN), without
	// evidence of the life's progress: PhaseUnknown neither confirms nor overrules another phase. But
	// the runtime shows the state, and readers of the cache get it, too.
	PhaseUnknown Phase = iota
	// PhaseCreated is a container before its start (CRI CONTAINER_CREATED).
	PhaseCreated
	// PhaseRunning is a running container (CRI CONTAINER_RUNNING) or a ready sandbox (CRI
	// SANDBOX_READY).
	PhaseRunning
	// PhaseExited is an ended container (CRI CONTAINER_EXITED) or a sandbox that is not ready (CRI
	// SANDBOX_NOTREADY).
	PhaseExited
	// PhaseRemoved is an ID no longer in the runtime.
	PhaseRemoved
)

var phaseNames = [...]string{
	PhaseUnknown: "Unknown",
	PhaseCreated: "Created",
	PhaseRunning: "Running",
	PhaseExited:  "Exited",
	PhaseRemoved: "Removed",
}

// String returns the name that logs and scripts use.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "Phase(?)"
}

// Kind tells a container from a sandbox.
type Kind uint8

const (
	// Container is an application, init or ephemeral container.
	Container Kind = iota
	// Sandbox is a pod sandbox.
	Sandbox
)

// String returns the name that logs and scripts use.
func (k Kind) String() string {
	if k == Sandbox {
		return "sandbox"
	}
	return "container"
}

// EventType is the type of a pod lifecycle event. Types and meaning are the kubelet's.
type EventType string

const (
	// ContainerStarted: the container or sandbox is running.
	ContainerStarted EventType = "ContainerStarted"
	// ContainerDied: the container has exited, or the sandbox is no longer ready.
	ContainerDied EventType = "ContainerDied"
	// ContainerRemoved: the runtime no longer has the container or sandbox.
	ContainerRemoved EventType = "ContainerRemoved"
	// PodSync: a change of the pod without an event of its own: events that found the outbox full, a
	// phase taken back by a read, a state that the runtime has lost or found again, a status with
	// another content and no phase changed (see Same in [Config]), or a status read for
	// RequestReinspect. The pod's status in the cache has the details.
	PodSync EventType = "PodSync"
)

// Cause is the kind of report behind an event.
type Cause uint8

const (
	// CauseRead: a list or an inspection showed the change first.
	CauseRead Cause = iota
	// CauseClaim: the runtime's stream announced the change first.
	CauseClaim
	// CauseAck: a call of the agent's own made the change, and reported it first: see
	// [Generator.Calling].
	CauseAck
)

// String returns the name that logs and outputs use.
func (c Cause) String() string {
	switch c {
	case CauseClaim:
		return "claim"
	case CauseAck:
		return "ack"
	}
	return "read"
}

// Event is a pod lifecycle event. An event stands for its own phase and all earlier ones: a
// container found dead causes ContainerDied only, as in the kubelet.
type Event struct {
	Pod  cache.UID
	Type EventType
	// Namespace and PodName name the pod, ContainerName the container, also after removal: for logs
	// and people. Empty where no read has shown the name; ContainerName is also empty for sandboxes,
	// and with PodSync.
	Namespace, PodName, ContainerName string
	// ID is the changed container or sandbox; empty with PodSync.
	ID string
	// Kind is what ID names; Container with PodSync, which may concern both.
	Kind Kind
	// Cause is how the change became known.
	Cause Cause
	// Stamp is the runtime's wall-clock time of the claim (CRI created_at), zero when a read found
	// the change.
	Stamp time.Time
	// Seen is when the generator learned of the change, with a monotonic reading.
	Seen time.Time
}

var (
	// ErrNoEvents ends a [Stream] of a runtime that does not offer events (CRI Unimplemented).
	ErrNoEvents = errors.New("the runtime does not offer container events")
	// ErrAlreadyRun is returned by Run when the generator has run before. A generator runs once; make
	// a new one with the same cache.
	ErrAlreadyRun = errors.New("pleg: Run was called before: a generator runs once, make a new one over the same cache")
	// ErrCacheInUse is returned by Run while another generator runs over the same cache. Each would
	// refuse writes of the other, and take the demands of its waiters. Watch is closed then; make a
	// new generator once Run of the other has returned.
	ErrCacheInUse = errors.New("pleg: another generator runs over the cache: wait for the end of its Run and make a new generator, or give each a cache of its own")
)
