// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// invalid is the answer to an incomplete request.
func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// RunPodSandbox makes a ready sandbox. It returns once its events were taken.
func (s *service) RunPodSandbox(
	_ context.Context,
	req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	cfg := req.GetConfig()
	meta := cfg.GetMetadata()
	if meta.GetName() == "" || meta.GetUid() == "" || meta.GetNamespace() == "" {
		return nil, invalid(
			"RunPodSandbox: config.metadata needs name, uid and namespace, and has %q, %q and %q",
			meta.GetName(),
			meta.GetUid(),
			meta.GetNamespace(),
		)
	}
	rt := s.rt
	options := cfg.GetLinux().GetSecurityContext().GetNamespaceOptions()
	sb := &sandbox{
		name:        meta.GetName(),
		namespace:   meta.GetNamespace(),
		uid:         meta.GetUid(),
		attempt:     meta.GetAttempt(),
		handler:     req.GetRuntimeHandler(),
		labels:      cfg.GetLabels(),
		annotations: cfg.GetAnnotations(),
		hostNetwork: options.GetNetwork() == runtimeapi.NamespaceMode_NODE,
		tail:        &tail{status: encode(&runtimeapi.PodSandboxStatus{Linux: namespaces(options)})},
		logDir:      cfg.GetLogDirectory(),
	}
	if !slices.Contains(handlers, sb.handler) {
		return nil, status.Errorf(codes.Unknown, "RunPodSandbox: no runtime for %q is configured", sb.handler)
	}
	err := s.perform(func() (*event, error) {
		sb.id = rt.ids.hex64()
		if old := rt.sandboxNamed(sb); old != nil && rt.cfg.Profile.NamesReturned {
			sb = old
			return nil, nil
		}
		if rt.roll(rollSandboxError, rt.faults.SandboxError, sb.id) {
			return nil, status.Errorf(
				codes.Unknown,
				"failed to create sandbox for pod %q: virtual failure",
				sb.name,
			)
		}
		return rt.runSandbox(sb)
	})
	if err != nil {
		return nil, s.refusal(err)
	}
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: sb.id}, nil
}

// refusal turns an error into the refusal of the profile's runtime.
func (s *service) refusal(err error) error {
	p := &s.rt.cfg.Profile
	code := codes.OK
	switch {
	case errors.Is(err, ErrExists):
		code = p.NameInUse
	case errors.Is(err, ErrNotFound):
		code = p.NoSandbox
	case errors.Is(err, ErrState):
		code = p.StoppedSandbox
	case errors.Is(err, errNoImage):
		code = cmp.Or(p.NoImage, codes.NotFound)
	}
	if code == codes.OK {
		return err
	}
	return status.Error(code, err.Error())
}

// endingLag waits until the end of a stopped container can be seen, if running. The mutex is held
// before and afterwards, and not meanwhile.
func (s *service) endingLag(ctx context.Context, runs bool) error {
	lag := s.rt.cfg.Profile.ExitLag
	life := s.rt.incarnation
	if !runs || lag == 0 {
		return nil
	}
	s.rt.mu.Unlock()
	err := wait(ctx, life, lag)
	s.rt.lock()
	return err
}

// StopPodSandbox does nothing to a stopped or absent sandbox. Its events may come after its answer.
func (s *service) StopPodSandbox(
	ctx context.Context,
	req *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	s.rt.lock()
	defer s.rt.mu.Unlock()
	if sb, err := s.rt.sandboxByID(req.GetPodSandboxId()); err == nil {
		if err := s.endingLag(ctx, sb.runs()); err != nil {
			return nil, err
		}
		s.rt.stopSandbox(sb)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// RemovePodSandbox removes the sandbox and its containers; an absent sandbox is removed already.
func (s *service) RemovePodSandbox(
	ctx context.Context,
	req *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	var gone, life <-chan struct{}
	err := s.perform(func() (ev *event, err error) {
		sb, missing := s.rt.sandboxByID(req.GetPodSandboxId())
		if missing != nil {
			return nil, nil
		}
		if err = s.endingLag(ctx, sb.runs()); err == nil {
			ev, gone = s.rt.removeSandbox(sb)
			life = s.rt.incarnation
		}
		return ev, err
	})
	if err == nil && gone != nil {
		err = until(ctx, life, gone)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, err
}

// UpdatePodSandboxResources changes nothing visible.
func (s *service) UpdatePodSandboxResources(
	_ context.Context,
	req *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, s.perform(func() (*event, error) {
		_, err := s.rt.sandboxByID(req.GetPodSandboxId())
		return nil, err
	})
}
