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

	"github.com/evented-pleg/evented-pleg/embed/ledger"
)

// observer is the runtime's client as a [Service] sees it: calls, answers and events reach the
// ledger. It stands below the service's [Calls], so the ledger knows of an answer before the
// generator is told.
type observer struct {
	internalapi.RuntimeService

	service *Service
}

// change makes a call that changes the runtime; the answer is a fact for the ledger. send makes the
// call and returns the ID of what it has made.
func (o *observer) change(op ledger.Op, about ledger.Subject, send func() (made string, err error)) {
	var c ledger.Call
	o.service.update(func(l *ledger.Ledger, _ time.Time) { c = l.Start(op, about) })
	err := errNoAnswer
	made := ""
	defer func() {
		answer := ledger.Answer{Failed: err != nil, Unanswered: unanswered(err)}
		if err == nil {
			answer.Made = made
		}
		o.service.update(func(l *ledger.Ledger, at time.Time) { l.End(c, answer, at) })
	}()
	made, err = send()
}

// changeByID is change for calls that name their subject and make nothing.
func (o *observer) changeByID(op ledger.Op, id string, send func() error) (err error) {
	o.change(op, ledger.Subject{ID: id}, func() (string, error) {
		err = send()
		return "", err
	})
	return err
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

// RunPodSandbox makes a sandbox.
func (o *observer) RunPodSandbox(
	ctx context.Context,
	config *runtimeapi.PodSandboxConfig,
	handler string,
) (id string, err error) {
	about := ledger.Subject{Pod: config.GetMetadata().GetUid()}
	o.change(ledger.RunPodSandbox, about, func() (string, error) {
		id, err = o.RuntimeService.RunPodSandbox(ctx, config, handler)
		return id, err
	})
	return id, err
}

// CreateContainer makes a container.
func (o *observer) CreateContainer(
	ctx context.Context,
	sandbox string,
	config *runtimeapi.ContainerConfig,
	sandboxConfig *runtimeapi.PodSandboxConfig,
) (id string, err error) {
	about := ledger.Subject{Pod: sandboxConfig.GetMetadata().GetUid(), Sandbox: sandbox}
	o.change(ledger.CreateContainer, about, func() (string, error) {
		id, err = o.RuntimeService.CreateContainer(ctx, sandbox, config, sandboxConfig)
		return id, err
	})
	return id, err
}

// StartContainer starts a container.
func (o *observer) StartContainer(ctx context.Context, id string) error {
	return o.changeByID(ledger.StartContainer, id,
		func() error { return o.RuntimeService.StartContainer(ctx, id) })
}

// StopContainer stops a container.
func (o *observer) StopContainer(ctx context.Context, id string, timeout int64) error {
	return o.changeByID(ledger.StopContainer, id,
		func() error { return o.RuntimeService.StopContainer(ctx, id, timeout) })
}

// RemoveContainer removes a container.
func (o *observer) RemoveContainer(ctx context.Context, id string) error {
	return o.changeByID(ledger.RemoveContainer, id,
		func() error { return o.RuntimeService.RemoveContainer(ctx, id) })
}

// StopPodSandbox stops a sandbox and its containers.
func (o *observer) StopPodSandbox(ctx context.Context, id string) error {
	return o.changeByID(ledger.StopPodSandbox, id,
		func() error { return o.RuntimeService.StopPodSandbox(ctx, id) })
}

// RemovePodSandbox removes a sandbox and its containers.
func (o *observer) RemovePodSandbox(ctx context.Context, id string) error {
	return o.changeByID(ledger.RemovePodSandbox, id,
		func() error { return o.RuntimeService.RemovePodSandbox(ctx, id) })
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
	var phase ledger.Phase
	switch e.ContainerEventType {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		phase = ledger.Created
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		phase = ledger.Running
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		phase = ledger.Exited
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		phase = ledger.Gone
	default:
		return // of a later CRI: lists show no more than before
	}
	o.service.update(func(l *ledger.Ledger, _ time.Time) { l.Claim(e.ContainerId, kind, phase, pod) })
}
