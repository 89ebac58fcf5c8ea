// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Errors of the direct methods. The gRPC calls answer with real runtimes' codes.
var (
	// ErrNotFound: no container or sandbox has the ID.
	ErrNotFound = errors.New("not found")
	// ErrState: the state of the container or sandbox does not allow the action.
	ErrState = errors.New("wrong state")
	// ErrExists: the name is taken by another sandbox or container.
	ErrExists = errors.New("name in use")
	// ErrStart: the start failed, by Faults.StartError. The container has ended with code 128.
	ErrStart = errors.New("start error")
	// ErrDown: the runtime is down or not ready yet (see [Runtime.Down]), or closed.
	ErrDown = errors.New("runtime is down")

	errNoImage = errors.New("no such image") // only calls can request an image
)

// toStatus turns an error of this package into a runtime's answer.
func toStatus(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNotFound):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, ErrDown):
		return status.Error(codes.Unavailable, notInitialized)
	case errors.Is(err, ErrExists):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, ErrState), errors.Is(err, ErrStart):
		return status.Error(codes.Unknown, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Unknown, err.Error())
}

// usable reports why a direct method cannot be served now.
func (rt *Runtime) usable(method string) error {
	if rt.closed || rt.phase != phaseUp {
		return fmt.Errorf("fakeruntime: %s: %w", method, ErrDown)
	}
	return nil
}

func (rt *Runtime) usableSandbox(method, id string) (*sandbox, error) {
	if err := rt.usable(method); err != nil {
		return nil, err
	}
	if sb := rt.store.sandboxes[id]; sb != nil {
		return sb, nil
	}
	return nil, fmt.Errorf("fakeruntime: %s: %w: sandbox %q", method, ErrNotFound, id)
}

func (rt *Runtime) usableContainer(method, id string) (*container, error) {
	if err := rt.usable(method); err != nil {
		return nil, err
	}
	if c := rt.store.containers[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("fakeruntime: %s: %w: container %q", method, ErrNotFound, id)
}
