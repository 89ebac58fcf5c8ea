// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/embed/ledger"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// observer is the runtime's client as a [Service] sees it: answers and events reach the ledger.
type observer struct {
	internalapi.RuntimeService

	service *Service
}

// effect is what tells an own call from others.
type effect struct {
	kind  pleg.Kind
	phase pleg.Phase
}

// ops are the calls of which the ledger hears: all but UpdateContainerResources, which no list
// shows.
var ops = map[effect]ledger.Op{
	{pleg.Sandbox, pleg.PhaseRunning}:   ledger.RunPodSandbox,
	{pleg.Sandbox, pleg.PhaseExited}:    ledger.StopPodSandbox,
	{pleg.Sandbox, pleg.PhaseRemoved}:   ledger.RemovePodSandbox,
	{pleg.Container, pleg.PhaseCreated}: ledger.CreateContainer,
	{pleg.Container, pleg.PhaseRunning}: ledger.StartContainer,
	{pleg.Container, pleg.PhaseExited}:  ledger.StopContainer,
	{pleg.Container, pleg.PhaseRemoved}: ledger.RemoveContainer,
}

// hear tells the ledger of a call and of its answer, which is a fact for the ledger. The ledger
// knows of the answer before the generator is told.
func (s *Service) hear(call change) (answered func(made string, err error)) {
	op, heard := ops[effect{call.now.Kind, call.now.Phase}]
	if !heard {
		return func(string, error) {}
	}
	about := ledger.Subject{ID: call.now.ID, Pod: string(call.pod.UID), Sandbox: call.sandbox}
	var c ledger.Call
	s.update(func(l *ledger.Ledger, _ time.Time) { c = l.Start(op, about) })
	return func(made string, err error) {
		answer := ledger.Answer{Failed: err != nil, Unanswered: unanswered(err)}
		if err == nil {
			answer.Made = made
		}
		s.update(func(l *ledger.Ledger, at time.Time) { l.End(c, answer, at) })
	}
}

// unanswered reports whether a call ended without an answer of the runtime: given up, or with the
// runtime lost. The runtime may still carry out such a call; an answered call is finished.
func unanswered(err error) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, errNoAnswer)
}

// ContainerStatus reads a container's status from the runtime.
func (o *observer) ContainerStatus(
	ctx context.Context,
	id string,
	verbose bool,
) (*runtimeapi.ContainerStatusResponse, error) {
	read := o.service.beginRead()
	r, err := o.RuntimeService.ContainerStatus(ctx, id, verbose)
	if st := r.GetStatus(); err == nil && st != nil {
		o.service.update(func(l *ledger.Ledger, _ time.Time) { l.ContainerStatus(read, id, st) })
	}
	return r, err
}

// PodSandboxStatus reads a sandbox's status from the runtime.
func (o *observer) PodSandboxStatus(
	ctx context.Context,
	id string,
	verbose bool,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	read := o.service.beginRead()
	r, err := o.RuntimeService.PodSandboxStatus(ctx, id, verbose)
	if st := r.GetStatus(); err == nil && st != nil {
		o.service.update(func(l *ledger.Ledger, _ time.Time) { l.SandboxStatus(read, id, st) })
	}
	return r, err
}

// GetContainerEvents streams the runtime's events. Each event reaches the ledger before the caller.
func (o *observer) GetContainerEvents(
	ctx context.Context,
	events chan *runtimeapi.ContainerEventResponse,
	established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	in := make(chan *runtimeapi.ContainerEventResponse, eventBacklog)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range in { // to its end, because the client blocks in its send
			o.recordEvent(e)
			select {
			case events <- e:
			case <-ctx.Done():
			}
		}
	}()
	o.countStreams(1)
	err := o.RuntimeService.GetContainerEvents(ctx, in, established)
	o.countStreams(-1)
	close(in)
	<-done
	return err
}

// countStreams counts streams. While there is none nothing is trusted.
func (o *observer) countStreams(by int) {
	o.service.update(func(l *ledger.Ledger, _ time.Time) {
		o.service.streams += by
		if o.service.streams == 0 {
			l.Trust(false)
		}
	})
}

// recordEvent passes an event to the ledger as a claim.
func (o *observer) recordEvent(e *runtimeapi.ContainerEventResponse) {
	if e.GetContainerId() == "" {
		return
	}
	kind := ledger.EitherKind
	pod := ""
	if sb := e.PodSandboxStatus; sb != nil {
		kind = ledger.ContainerKind
		pod = sb.GetMetadata().GetUid()
		if sb.Id == e.ContainerId {
			kind = ledger.SandboxKind
		}
	}
	phase := criphase.OfEvent(e.ContainerEventType, pleg.Container) // the ledger knows sandboxes
	if phase == pleg.PhaseUnknown {
		return // of a later CRI: lists show no more than before
	}
	o.service.update(func(l *ledger.Ledger, _ time.Time) { l.Claim(e.ContainerId, kind, phase, pod) })
}
