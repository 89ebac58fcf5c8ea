// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (rt *Runtime) containerByID(id string) (*container, error) {
	return resolve(rt, &rt.store.containers, "container", id)
}

func (rt *Runtime) sandboxByID(id string) (*sandbox, error) {
	return resolve(rt, &rt.store.sandboxes, "sandbox", id)
}

// resolve returns the item of an ID as the profile does.
func resolve[T listed](rt *Runtime, in *items[T], kind, id string) (T, error) {
	item, ok, ambiguous := in.find(id, rt.cfg.Profile.ShortIDs)
	switch {
	case ok:
		return item, nil
	case ambiguous:
		return item, status.Errorf(codes.Unknown, "%s ID %q is the beginning of more than one ID", kind, id)
	}
	return item, fmt.Errorf("%w: %s %q", ErrNotFound, kind, id)
}

func (s *service) containerStatus(
	req *runtimeapi.ContainerStatusRequest,
	method string,
	call uint64,
) (any, error) {
	rt := s.rt
	bad := rt.corruption(method, call)
	rt.lock()
	defer rt.mu.Unlock()
	c, err := rt.containerByID(req.GetContainerId())
	if err != nil {
		return nil, toStatus(err)
	}
	st := make([]byte, 0, 2048)
	if bad.nilFields {
		st = appendInt(appendString(st, 1, c.id), 3, c.state.enum())
	} else {
		st = bad.spoil(c.appendStatus(st, c.view), 3, 11)
	}
	b := appendMessage(nil, 1, st)
	if req.GetVerbose() {
		b = append(
			b,
			encode(
				&runtimeapi.ContainerStatusResponse{
					Info: map[string]string{
						"info": infoJSON(
							map[string]any{"sandboxID": c.sb.id, "pid": pidOf(c.id, c.state == StateRunning)},
						),
					},
				},
			)...)
	}
	return encoded(b), nil
}

func (s *service) podSandboxStatus(
	req *runtimeapi.PodSandboxStatusRequest,
	method string,
	call uint64,
) (any, error) {
	rt := s.rt
	bad := rt.corruption(method, call)
	rt.lock()
	defer rt.mu.Unlock()
	sb, err := rt.sandboxByID(req.GetPodSandboxId())
	if err != nil {
		return nil, toStatus(err)
	}
	p := &rt.cfg.Profile
	var stamp int64
	if p.StatusStamp {
		stamp = rt.stamp()
	}
	st := make([]byte, 0, 2048)
	if bad.nilFields || sb.bare {
		st = sb.appendBareStatus(st)
	} else {
		st = bad.spoil(sb.appendStatus(st, sb.state, sb.createdAt), 3, 9)
	}
	b := appendMessage(nil, 1, st)
	if req.GetVerbose() {
		b = append(
			b,
			encode(
				&runtimeapi.PodSandboxStatusResponse{
					Info: map[string]string{
						"info": infoJSON(map[string]any{"pid": pidOf(sb.id, sb.state == StateReady)}),
					},
				},
			)...)
	}
	if p.StatusContainers {
		for _, c := range sb.containers {
			if rt.unreadable(c.id) {
				continue
			}
			b = appendMessage(b, 3, c.appendStatus(st[:0], c.view))
		}
	}
	b = appendInt(b, 4, stamp)
	return encoded(b), nil
}

// infoJSON is the verbose part of a status, of texts and numbers.
func infoJSON(info map[string]any) string {
	b, _ := json.Marshal(info)
	return string(b)
}

// pidOf is the process that a container would have. No process of a Linux host has a PID above
// 2^22.
func pidOf(id string, alive bool) uint64 {
	if !alive {
		return 0
	}
	return 1<<22 + 1 + hashOf(0, id)%(1<<30)
}
