// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package crikit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// An Event is a message of the runtime's stream and its time of arrival.
type Event struct {
	*runtimeapi.ContainerEventResponse
	At time.Time
}

// A Recorder keeps the raw events of a stream in order. mu guards the events.
type Recorder struct {
	mu     sync.Mutex
	events []Event
	err    error
}

// Run reads the stream until its end or ctx's, and returns the reason. It always reads: an idle
// subscriber would stop the runtime.
func (r *Recorder) Run(ctx context.Context, c *Client) error {
	stream, err := c.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	for err == nil {
		var message *runtimeapi.ContainerEventResponse
		if message, err = stream.Recv(); err == nil {
			r.add(Event{message, time.Now()})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	return err
}

// Tap adds an event from the wire, for readers of the stream elsewhere.
func (r *Recorder) Tap(message []byte) error {
	var event runtimeapi.ContainerEventResponse
	if err := proto.Unmarshal(message, &event); err != nil {
		return fmt.Errorf("crikit: an event: %w", err)
	}
	r.add(Event{&event, time.Now()})
	return nil
}

func (r *Recorder) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Events returns the events recorded so far.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// A Regression is an event with a payload that shows an earlier phase of a container than an event
// before.
type Regression struct {
	Index      int // of the event
	Container  string
	Was, Is    string
	NewerStamp bool // created_at is later than the earlier event's: a comparison of stamps would accept it
}

// Regressions finds the stale payloads in a recorded stream. Where the stream
// has any, whoever believes its latest message moves a container backwards.
func Regressions(events []Event) []Regression {
	type seen struct {
		rank  int
		word  string
		stamp int64
	}
	latest := map[string]seen{}
	var found []Regression
	note := func(index int, id, word string, rank int, stamp int64) {
		if rank == 0 {
			return // UNKNOWN says nothing
		}
		before, ok := latest[id]
		if ok && rank < before.rank {
			found = append(found, Regression{index, id, before.word, word, stamp >= before.stamp})
			return
		}
		if !ok || rank > before.rank {
			latest[id] = seen{rank, word, stamp}
		}
	}
	for i, e := range events {
		for _, status := range e.ContainersStatuses {
			note(i, status.Id, status.State.String(), rank(status.State), e.CreatedAt)
		}
		if e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
			note(i, e.ContainerId, "REMOVED", 4, e.CreatedAt)
		}
	}
	return found
}

// rank orders a container's states. 0 stands for UNKNOWN.
func rank(state runtimeapi.ContainerState) int {
	switch state {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return 1
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return 2
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return 3
	default:
		return 0
	}
}
