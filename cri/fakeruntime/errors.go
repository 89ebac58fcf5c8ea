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
	// ErrStart: the start failed, by Faults.StartError, for a command that does not exist or for a log
	// file that cannot be written. The container has ended with code 128.
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
	if rt.process != processUp {
		return fmt.Errorf("fakeruntime: %s: %w", method, ErrDown)
	}
	return nil
}

// onSandbox serves a direct method: it calls do with the sandbox, under the lock.
func (rt *Runtime) onSandbox(method, id string, do func(*sandbox) error) error {
	return on(rt, method, "sandbox", &rt.store.sandboxes, id, do)
}

// onContainer is onSandbox for a container.
func (rt *Runtime) onContainer(method, id string, do func(*container) error) error {
	return on(rt, method, "container", &rt.store.containers, id, do)
}

func on[T listed](rt *Runtime, method, kind string, in *items[T], id string, do func(T) error) error {
	rt.lock()
	defer rt.mu.Unlock()
	if err := rt.usable(method); err != nil {
		return err
	}
	item, ok := in.get(id)
	if !ok {
		return fmt.Errorf("fakeruntime: %s: %w: %s %q", method, ErrNotFound, kind, id)
	}
	return do(item)
}
