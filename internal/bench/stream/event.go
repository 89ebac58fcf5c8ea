// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// phase is how far a container or sandbox has come. Lives only go forward.
type phase uint8

const (
	unknown phase = iota
	created
	running // of a sandbox: ready
	exited  // of a sandbox: not ready
	removed
)

func (p phase) String() string {
	return [...]string{"UNKNOWN", "CREATED", "RUNNING", "EXITED", "REMOVED"}[p]
}

// phaseOf is the phase announced by an event of a type, unknown for a type outside the CRI.
func phaseOf(t runtimeapi.ContainerEventType) phase {
	switch t {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		return created
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return running
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		return exited
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return removed
	}
	return unknown
}

// typeName is the CRI's name of a type without its prefix and suffix, such as STARTED.
func typeName(t runtimeapi.ContainerEventType) string {
	return strings.TrimSuffix(strings.TrimPrefix(t.String(), "CONTAINER_"), "_EVENT")
}

// Item is a container or sandbox in an event's payload.
type Item struct {
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	Sandbox bool   `json:"sandbox,omitempty"`
	Phase   string `json:"phase"`

	phase phase
	// stamps are those of a container's status, by the phase begun then; 0 for none.
	stamps [exited + 1]int64
}

// Event is a message of the stream, parsed, with the judge's findings.
type Event struct {
	// Received is the time of receipt.
	Received time.Time `json:"received"`
	// Type is the CRI's, such as STARTED; a number if the CRI has no such type; empty if the message
	// is no event.
	Type string `json:"event"`
	ID   string `json:"id"`
	// Kind is container or sandbox.
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"`
	// CreatedAt is the runtime's stamp, the zero time if there is none.
	CreatedAt time.Time `json:"created_at"`
	// AgeSeconds is the time from CreatedAt to Received, nil without a stamp.
	AgeSeconds *float64 `json:"age_seconds"`
	// Bytes is the size of the message.
	Bytes int `json:"bytes"`
	// Payload is the rest of the event's content, the sandbox first.
	Payload []Item `json:"payload"`
	// Flaws are the flaws of the event, in words.
	Flaws []string `json:"flaws,omitempty"`
}

// read parses a message. It returns false if the message is no event.
func read(raw []byte, at time.Time) (e Event, of phase, ok bool) {
	e = Event{Received: at, Bytes: len(raw)}
	var m runtimeapi.ContainerEventResponse
	if proto.Unmarshal(raw, &m) != nil {
		return e, unknown, false
	}
	e.ID, e.Type, of = m.GetContainerId(), typeName(m.GetContainerEventType()), phaseOf(m.GetContainerEventType())
	if n := m.GetCreatedAt(); n > 0 {
		e.CreatedAt = time.Unix(0, n).UTC()
		e.AgeSeconds = new(at.Sub(e.CreatedAt).Seconds())
	}
	if s := m.GetPodSandboxStatus(); s != nil {
		e.Namespace, e.Pod, e.UID = s.GetMetadata().GetNamespace(), s.GetMetadata().GetName(), s.GetMetadata().GetUid()
		p := exited
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			p = running
		}
		e.Payload = append(e.Payload, Item{ID: s.GetId(), Sandbox: true, phase: p, Phase: p.String()})
	}
	for _, c := range m.GetContainersStatuses() {
		p := unknown
		switch c.GetState() {
		case runtimeapi.ContainerState_CONTAINER_CREATED:
			p = created
		case runtimeapi.ContainerState_CONTAINER_RUNNING:
			p = running
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			p = exited
		}
		e.Payload = append(e.Payload, Item{ID: c.GetId(), Name: c.GetMetadata().GetName(), phase: p, Phase: p.String(),
			stamps: [...]int64{created: c.GetCreatedAt(), running: c.GetStartedAt(), exited: c.GetFinishedAt()}})
	}
	return e, of, e.ID != ""
}
