// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/embed/ledger"
)

// call passes on a call that changes what the runtime has. Its answer is a fact.
func (s *Service) call(op ledger.Op, id string, send func() (ledger.Answer, error)) {
	var c ledger.Call
	s.tell(func(l *ledger.Ledger, _ time.Time) { c = l.Start(op, id) })
	failed := ledger.Answer{Failed: true} // so that a panic counts as a failure
	defer func() {
		s.tell(func(l *ledger.Ledger, now time.Time) { l.End(c, failed, now) })
	}()
	if answer, err := send(); err == nil {
		failed = answer
	}
}

// named is call for those that answer with nothing.
func (s *Service) named(op ledger.Op, id string, send func() error) (err error) {
	s.call(op, id, func() (ledger.Answer, error) {
		err = send()
		return ledger.Answer{}, err
	})
	return err
}

// RunPodSandbox makes a sandbox.
func (s *Service) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (id string, err error) {
	s.call(ledger.RunPodSandbox, "", func() (ledger.Answer, error) {
		id, err = s.RuntimeService.RunPodSandbox(ctx, config, handler)
		return ledger.Answer{Made: id, Pod: config.GetMetadata().GetUid()}, err
	})
	return id, err
}

// CreateContainer makes a container.
func (s *Service) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (id string, err error) {
	s.call(ledger.CreateContainer, "", func() (ledger.Answer, error) {
		id, err = s.RuntimeService.CreateContainer(ctx, sandbox, config, sandboxConfig)
		return ledger.Answer{Made: id, Pod: sandboxConfig.GetMetadata().GetUid()}, err
	})
	return id, err
}

// StartContainer starts a container.
func (s *Service) StartContainer(ctx context.Context, id string) error {
	return s.named(ledger.StartContainer, id, func() error { return s.RuntimeService.StartContainer(ctx, id) })
}

// StopContainer stops a container.
func (s *Service) StopContainer(ctx context.Context, id string, timeout int64) error {
	return s.named(ledger.StopContainer, id, func() error { return s.RuntimeService.StopContainer(ctx, id, timeout) })
}

// RemoveContainer removes a container.
func (s *Service) RemoveContainer(ctx context.Context, id string) error {
	return s.named(ledger.RemoveContainer, id, func() error { return s.RuntimeService.RemoveContainer(ctx, id) })
}

// StopPodSandbox stops a sandbox and what runs in it.
func (s *Service) StopPodSandbox(ctx context.Context, id string) error {
	return s.named(ledger.StopPodSandbox, id, func() error { return s.RuntimeService.StopPodSandbox(ctx, id) })
}

// RemovePodSandbox removes a sandbox and what is in it.
func (s *Service) RemovePodSandbox(ctx context.Context, id string) error {
	return s.named(ledger.RemovePodSandbox, id, func() error { return s.RuntimeService.RemovePodSandbox(ctx, id) })
}

// ContainerStatus reads a container's status from the runtime.
func (s *Service) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	read := s.begin()
	r, err := s.RuntimeService.ContainerStatus(ctx, id, verbose)
	if st := r.GetStatus(); err == nil && st != nil {
		s.tell(func(l *ledger.Ledger, _ time.Time) { l.ContainerStatus(read, id, st.State, st.LogPath) })
	}
	return r, err
}

// PodSandboxStatus reads a sandbox's status from the runtime.
func (s *Service) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	read := s.begin()
	r, err := s.RuntimeService.PodSandboxStatus(ctx, id, verbose)
	if st := r.GetStatus(); err == nil && st != nil {
		s.tell(func(l *ledger.Ledger, _ time.Time) { l.SandboxStatus(read, id, st.State) })
	}
	return r, err
}

// GetContainerEvents streams the runtime's events. The ledger has each of them before who asked for
// them.
func (s *Service) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	in := make(chan *runtimeapi.ContainerEventResponse, received)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range in { // to its end, because the client blocks in its send
			s.claim(e)
			select {
			case events <- e:
			case <-ctx.Done():
			}
		}
	}()
	s.open(1)
	err := s.RuntimeService.GetContainerEvents(ctx, in, established)
	s.open(-1)
	close(in)
	<-done
	return err
}

// open counts streams. While there is none nothing is trusted.
func (s *Service) open(by int) {
	s.tell(func(l *ledger.Ledger, _ time.Time) {
		if s.streams += by; s.streams == 0 {
			l.Trust(false)
		}
	})
}

// claim tells the ledger of an event.
func (s *Service) claim(e *runtimeapi.ContainerEventResponse) {
	if e.GetContainerId() == "" {
		return
	}
	kind, pod := ledger.EitherKind, ""
	if sb := e.PodSandboxStatus; sb != nil {
		kind, pod = ledger.ContainerKind, sb.GetMetadata().GetUid()
		if sb.Id == e.ContainerId {
			kind = ledger.SandboxKind
		}
	}
	phase := ledger.Gone
	switch e.ContainerEventType {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		phase = ledger.Created
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		phase = ledger.Running
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		phase = ledger.Exited
	}
	s.tell(func(l *ledger.Ledger, _ time.Time) { l.Claim(e.ContainerId, kind, phase, pod) })
}
