// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/embed/ledger"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Calling receives the kubelet's own calls: see [pleg.Generator.Calling].
type Calling func(pleg.OwnCall) (returned func(err error, now ...pleg.Item))

// TellCalls sets the receiver of the kubelet's calls that change the runtime, so that the generator
// need not discover their effects.
func (s *Service) TellCalls(calling Calling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calling = calling
}

// announce reports the start of an own call, and returns the function that reports its end.
func (s *Service) announce(call pleg.OwnCall) (returned func(err error, now ...pleg.Item)) {
	s.mu.Lock()
	calling := s.calling
	s.mu.Unlock()
	if calling == nil {
		return func(error, ...pleg.Item) {}
	}
	return calling(call)
}

// errNoAnswer is the reported error of a call that ended in a panic.
var errNoAnswer = errors.New("embed: the call has not been answered")

// ownCall is a call that changes the runtime, as the ledger and the generator see the call.
type ownCall struct {
	op  ledger.Op
	id  string // in the request; empty if the call makes an item
	pod pleg.PodRef
	// sandbox is that of a container to be made.
	sandbox string
}

// change forwards a call that changes the runtime. The answer is a fact for the ledger. send makes
// the call and returns its effect.
func (s *Service) change(own ownCall, send func() (pleg.Item, error)) {
	var c ledger.Call
	about := ledger.Subject{ID: own.id, Pod: string(own.pod.UID), Sandbox: own.sandbox}
	s.update(func(l *ledger.Ledger, _ time.Time) { c = l.Start(own.op, about) })
	returned := s.announce(pleg.OwnCall{Pod: own.pod, ID: own.id})
	err := errNoAnswer
	now := pleg.Item{}
	defer func() {
		answer := ledger.Answer{Failed: err != nil, Unanswered: unanswered(err)}
		if own.id == "" && err == nil {
			answer.Made = now.ID
		}
		s.update(func(l *ledger.Ledger, at time.Time) { l.End(c, answer, at) })
		if err != nil {
			returned(err)
			return
		}
		returned(nil, now)
	}()
	now, err = send()
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

// changeByID is change for calls that name their subject and have no result.
func (s *Service) changeByID(op ledger.Op, now pleg.Item, send func() error) (err error) {
	s.change(ownCall{op: op, id: now.ID}, func() (pleg.Item, error) {
		err = send()
		return now, err
	})
	return err
}

// podOf returns the pod in a sandbox's configuration.
func podOf(config *runtimeapi.PodSandboxConfig) pleg.PodRef {
	m := config.GetMetadata()
	return pleg.PodRef{UID: cache.UID(m.GetUid()), Name: m.GetName(), Namespace: m.GetNamespace()}
}

// RunPodSandbox makes a sandbox.
func (s *Service) RunPodSandbox(
	ctx context.Context,
	config *runtimeapi.PodSandboxConfig,
	handler string,
) (id string, err error) {
	s.change(ownCall{op: ledger.RunPodSandbox, pod: podOf(config)}, func() (pleg.Item, error) {
		id, err = s.RuntimeService.RunPodSandbox(ctx, config, handler)
		return pleg.Item{ID: id, Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}, err
	})
	return id, err
}

// CreateContainer makes a container.
func (s *Service) CreateContainer(
	ctx context.Context,
	sandbox string,
	config *runtimeapi.ContainerConfig,
	sandboxConfig *runtimeapi.PodSandboxConfig,
) (id string, err error) {
	own := ownCall{op: ledger.CreateContainer, pod: podOf(sandboxConfig), sandbox: sandbox}
	s.change(own, func() (pleg.Item, error) {
		id, err = s.RuntimeService.CreateContainer(ctx, sandbox, config, sandboxConfig)
		return pleg.Item{ID: id, Phase: pleg.PhaseCreated, Name: config.GetMetadata().GetName()}, err
	})
	return id, err
}

// StartContainer starts a container.
func (s *Service) StartContainer(ctx context.Context, id string) error {
	return s.changeByID(ledger.StartContainer, pleg.Item{ID: id, Phase: pleg.PhaseRunning},
		func() error { return s.RuntimeService.StartContainer(ctx, id) })
}

// StopContainer stops a container.
func (s *Service) StopContainer(ctx context.Context, id string, timeout int64) error {
	return s.changeByID(ledger.StopContainer, pleg.Item{ID: id, Phase: pleg.PhaseExited},
		func() error { return s.RuntimeService.StopContainer(ctx, id, timeout) })
}

// RemoveContainer removes a container.
func (s *Service) RemoveContainer(ctx context.Context, id string) error {
	return s.changeByID(ledger.RemoveContainer, pleg.Item{ID: id, Phase: pleg.PhaseRemoved},
		func() error { return s.RuntimeService.RemoveContainer(ctx, id) })
}

// StopPodSandbox stops a sandbox and its containers.
func (s *Service) StopPodSandbox(ctx context.Context, id string) error {
	return s.changeByID(ledger.StopPodSandbox, pleg.Item{ID: id, Kind: pleg.Sandbox, Phase: pleg.PhaseExited},
		func() error { return s.RuntimeService.StopPodSandbox(ctx, id) })
}

// RemovePodSandbox removes a sandbox and its containers.
func (s *Service) RemovePodSandbox(ctx context.Context, id string) error {
	return s.changeByID(
		ledger.RemovePodSandbox,
		pleg.Item{ID: id, Kind: pleg.Sandbox, Phase: pleg.PhaseRemoved},
		func() error { return s.RuntimeService.RemovePodSandbox(ctx, id) },
	)
}

// UpdateContainerResources changes a container's limits. No phase changes, no event comes and no
// list shows the change: the announced call has the generator read the pod's statuses, of which the
// answer tells nothing.
func (s *Service) UpdateContainerResources(
	ctx context.Context,
	id string,
	resources *runtimeapi.ContainerResources,
) (err error) {
	returned := s.announce(pleg.OwnCall{ID: id})
	err = errNoAnswer
	defer func() { returned(err) }()
	err = s.RuntimeService.UpdateContainerResources(ctx, id, resources)
	return err
}

// ContainerStatus reads a container's status from the runtime.
func (s *Service) ContainerStatus(
	ctx context.Context,
	id string,
	verbose bool,
) (*runtimeapi.ContainerStatusResponse, error) {
	read := s.beginRead()
	r, err := s.RuntimeService.ContainerStatus(ctx, id, verbose)
	if st := r.GetStatus(); err == nil && st != nil {
		s.update(func(l *ledger.Ledger, _ time.Time) { l.ContainerStatus(read, id, st) })
	}
	return r, err
}

// PodSandboxStatus reads a sandbox's status from the runtime.
func (s *Service) PodSandboxStatus(
	ctx context.Context,
	id string,
	verbose bool,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	read := s.beginRead()
	r, err := s.RuntimeService.PodSandboxStatus(ctx, id, verbose)
	if st := r.GetStatus(); err == nil && st != nil {
		s.update(func(l *ledger.Ledger, _ time.Time) { l.SandboxStatus(read, id, st) })
	}
	return r, err
}

// GetContainerEvents streams the runtime's events. Each event reaches the ledger before the caller.
func (s *Service) GetContainerEvents(
	ctx context.Context,
	events chan *runtimeapi.ContainerEventResponse,
	established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	in := make(chan *runtimeapi.ContainerEventResponse, eventBacklog)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range in { // to its end, because the client blocks in its send
			s.recordEvent(e)
			select {
			case events <- e:
			case <-ctx.Done():
			}
		}
	}()
	s.countStreams(1)
	err := s.RuntimeService.GetContainerEvents(ctx, in, established)
	s.countStreams(-1)
	close(in)
	<-done
	return err
}

// countStreams counts streams. While there is none nothing is trusted.
func (s *Service) countStreams(by int) {
	s.update(func(l *ledger.Ledger, _ time.Time) {
		s.streams += by
		if s.streams == 0 {
			l.Trust(false)
		}
	})
}

// recordEvent passes an event to the ledger as a claim.
func (s *Service) recordEvent(e *runtimeapi.ContainerEventResponse) {
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
	s.update(func(l *ledger.Ledger, _ time.Time) { l.Claim(e.ContainerId, kind, phase, pod) })
}
