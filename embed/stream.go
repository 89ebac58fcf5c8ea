// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Events is the event stream of a kubelet's CRI client.
type Events interface {
	GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient)) error
}

// Stream returns the CRI client's events as claims for a generator of statuses S. The claims carry
// phases only: a kubelet takes statuses from reads.
func Stream[S any](events Events) pleg.Stream[S] { return stream[S]{events} }

// stream turns the CRI client's channel of events into claims.
type stream[S any] struct{ events Events }

// eventBacklog is how many events may wait between the client and the forwarding loop.
const eventBacklog = 64

// Events subscribes and yields claims until the stream ends. Nothing of the subscription is left on
// return.
func (s stream[S]) Events(ctx context.Context) iter.Seq2[pleg.Claim[S], error] {
	return func(yield func(pleg.Claim[S], error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		events := make(chan *runtimeapi.ContainerEventResponse, eventBacklog)
		var err error
		go func() {
			defer close(events) // after which err may be read
			err = s.events.GetContainerEvents(ctx, events, nil)
		}()
		defer func() {
			cancel()
			for range events { // the client blocks in its send until received from
			}
		}()
		for e := range events {
			if c, ok := claim[S](e); ok && !yield(c, nil) {
				return
			}
		}
		switch {
		case err == nil:
			err = io.EOF
		case status.Code(err) == codes.Unimplemented:
			err = fmt.Errorf("%w: %w", pleg.ErrNoEvents, err)
		}
		yield(pleg.Claim[S]{}, err)
	}
}

// claim returns the claim made by an event, or false for a useless event.
func claim[S any](e *runtimeapi.ContainerEventResponse) (pleg.Claim[S], bool) {
	var c pleg.Claim[S]
	if e.GetContainerId() == "" {
		return c, false
	}
	c.Item.ID = e.ContainerId
	if e.CreatedAt > 0 {
		c.CreatedAt = time.Unix(0, e.CreatedAt)
	}
	if sb := e.PodSandboxStatus; sb != nil {
		c.Pod = cache.UID(sb.GetMetadata().GetUid())
		c.Payload = append(c.Payload, pleg.Item{ID: sb.Id, Kind: pleg.Sandbox, Phase: criphase.OfSandbox(sb.State)})
		if sb.Id == e.ContainerId {
			c.Item.Kind = pleg.Sandbox
		}
	}
	for _, cs := range e.ContainersStatuses {
		c.Payload = append(
			c.Payload,
			pleg.Item{ID: cs.GetId(), Kind: pleg.Container, Phase: criphase.OfContainer(cs.GetState())},
		)
	}
	c.Item.Phase = criphase.OfEvent(e.ContainerEventType, c.Item.Kind)
	return c, true
}
