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

// Item is one ID of a pod and the phase that a report shows it in.
type Item struct {
	// ID is the runtime's ID of the container or sandbox, never reused.
	ID    string
	Kind  Kind
	Phase Phase
	// Name is what people call the container, for events, reports and logs; empty where nobody says
	// it. It decides nothing: items that differ in their names only are the same.
	Name string
}

// same says that both show the same ID in the same phase.
func (a Item) same(b Item) bool { return a.ID == b.ID && a.Phase == b.Phase }

// Pod is what a report shows of one pod: every sandbox and container of it that the runtime has, in
// any order.
type Pod struct {
	UID       cache.UID
	Name      string
	Namespace string
	Items     []Item
}

// Revision names one listing that a [Source] returned. Zero names none.
type Revision uint64

// Listing is what one read of the whole runtime showed.
type Listing struct {
	// Revision names this listing, to be handed to the next List. Zero: the source always lists in
	// full.
	Revision Revision
	// Delta says that Pods holds only the pods that differ from the listing named by List's since,
	// each complete, and Gone the pods that it showed and this one does not. Without Delta, Pods
	// holds every pod.
	Delta bool
	Pods  []Pod
	Gone  []cache.UID
	// Total is the number of pods that the runtime has, for metrics.
	Total int
}

// Inspection is what one read of one pod's statuses showed.
type Inspection[S any] struct {
	// Status is the pod's status, never nil unless the error is not. It must not be changed after
	// it was returned.
	Status *S
	// Pod holds the phases that Status shows. An ID that was asked for and that the runtime no
	// longer has is left out of both.
	Pod Pod
}

// Source reads the runtime. Its calls may block on RPCs, must honour ctx, and may be made from
// several goroutines at once. A read is taken to be true at some moment after the call began.
type Source[S any] interface {
	// List reads every pod of the runtime. Since is the revision of the last listing that the
	// caller applied; a source that still knows it may answer with the difference. It is never
	// called twice at once.
	List(ctx context.Context, since Revision) (Listing, error)
	// ListPod reads the phases of one pod. A pod that the runtime does not have is a Pod without
	// Items, not an error.
	ListPod(ctx context.Context, uid cache.UID) (Pod, error)
	// Inspect reads the statuses of a pod that a List or ListPod just showed. IDs that have gone
	// since are left out. An error says that no status could be had: the last good one stays
	// readable beside it.
	Inspect(ctx context.Context, pod Pod) (Inspection[S], error)
}

// Updater is a [Source] that can bring a status up to date for less than a new one costs. In a pod
// of many containers, reading all of them for each one that starts is what makes a busy runtime
// busier.
type Updater[S any] interface {
	Source[S]
	// Update is Inspect for a pod whose last good status is prev: what prev says of an ID that pod
	// shows in the very phase in which prev has it may be taken over, all else is read. It is not
	// called when statuses are to be read whatever the phases are (RequestReinspect), nor after a
	// failure. Prev must not be changed.
	Update(ctx context.Context, pod Pod, prev *S) (Inspection[S], error)
}

// Claim is one event of the runtime's stream (CRI ContainerEventResponse): partial, perhaps old,
// perhaps false about anything but its own ID. It advances phases and never makes anything fresh.
type Claim[S any] struct {
	// Pod is the UID of the pod, empty when the event does not say (CRI pod_sandbox_status nil).
	Pod cache.UID
	// Item is the ID that the event is about and the phase that its type means (CRI container_id,
	// container_event_type). Kind is a guess when the event does not say.
	Item Item
	// Payload holds the phases that the event's statuses show, its own ID included if shown.
	Payload []Item
	// Status builds the pod's status from the payload. Nil when the payload has none. It is called
	// at most once, only when the payload dominates what is known, from the generator's loop; it
	// must be quick and must not block.
	Status func() (*S, error)
	// Release, when set, gives back the memory that Payload, and Status before it was called, lie
	// in, for the next claim. It is called at most once, from any goroutine, when neither will be
	// used any more, and must not block. A consumer that does not call it leaves them to the
	// garbage collector.
	Release func()
	// CreatedAt is the runtime's wall-clock stamp (CRI created_at), zero if absent. It serves the
	// latency metric and nothing else.
	CreatedAt time.Time
}

// Stream is the runtime's event stream.
type Stream[S any] interface {
	// Events subscribes and yields claims until the stream ends; the last pair carries the reason
	// (io.EOF for an orderly end, an error matching [ErrNoEvents] for a runtime without the call).
	// It returns when ctx ends. The consumer never blocks.
	Events(ctx context.Context) iter.Seq2[Claim[S], error]
}

// Phase is how far a container or a sandbox has come in its life. Phases of one ID only move
// forward, because runtimes never reuse an ID: a container is Created, Running, Exited, Removed; a
// sandbox is Running (the CRI's READY), Exited (the CRI's NOTREADY), Removed. Two reports of one ID
// are therefore merged by taking the later phase.
type Phase uint8

const (
	// PhaseUnknown is an ID that the runtime shows without knowing its state (CRI CONTAINER_UNKNOWN).
	// It says nothing of how far the life has come: it neither confirms nor overrules another phase.
	// But it is what the runtime shows, and so what readers of the cache get.
	PhaseUnknown Phase = iota
	// PhaseCreated is a container that has not been started (CRI CONTAINER_CREATED).
	PhaseCreated
	// PhaseRunning is a running container (CRI CONTAINER_RUNNING) or a ready sandbox (CRI
	// SANDBOX_READY).
	PhaseRunning
	// PhaseExited is an ended container (CRI CONTAINER_EXITED) or a sandbox that is not ready (CRI
	// SANDBOX_NOTREADY).
	PhaseExited
	// PhaseRemoved is an ID that the runtime no longer has.
	PhaseRemoved
)

// String returns the name that logs and scripts use.
func (p Phase) String() string {
	switch p {
	case PhaseUnknown:
		return "Unknown"
	case PhaseCreated:
		return "Created"
	case PhaseRunning:
		return "Running"
	case PhaseExited:
		return "Exited"
	case PhaseRemoved:
		return "Removed"
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
	// PodSync: something of the pod has changed that no other event tells: events that found the
	// outbox full, or a phase that a read took back; or a status that RequestReinspect wanted has
	// been read. The pod's status in the cache tells all.
	PodSync EventType = "PodSync"
)

// Cause is the kind of observation that an event comes from.
type Cause uint8

const (
	// CauseRead: a list or an inspection showed the change first.
	CauseRead Cause = iota
	// CauseClaim: the runtime's stream told of the change first.
	CauseClaim
	// CauseAck: a call of the agent's own made the change, and told of it first: see
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

// Event is a pod lifecycle event. An event tells of its own phase and of all before it: a container
// that was found dead tells ContainerDied only, as the kubelet's does.
type Event struct {
	Pod  cache.UID
	Type EventType
	// Namespace and PodName are what the pod is called, ContainerName what the container is, also
	// of what has been removed: for logs and people. Empty where no read has said it; ContainerName
	// also of sandboxes, and with PodSync.
	Namespace, PodName, ContainerName string
	// ID is the container or sandbox that changed; empty with PodSync.
	ID   string
	Kind Kind
	// Cause says how the change became known.
	Cause Cause
	// Stamp is the runtime's wall-clock time of the claim (CRI created_at), zero when a read found
	// the change.
	Stamp time.Time
	// Seen is when the generator learned of the change, with a monotonic reading.
	Seen time.Time
}

var (
	// ErrNoEvents is what a [Stream] ends with when the runtime does not offer events (CRI
	// Unimplemented).
	ErrNoEvents = errors.New("the runtime does not offer container events")
	// ErrAlreadyRun is returned by Run when the generator has run before. A generator runs once;
	// make a new one with the same cache.
	ErrAlreadyRun = errors.New("pleg: Run was called before: a generator runs once, make a new one over the same cache")
)
