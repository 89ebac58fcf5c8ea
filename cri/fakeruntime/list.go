// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerRow and sandboxRow are a list's needs of an item, copied under the lock: the rest never
// changes.
type containerRow struct {
	c     *container
	state State
}

type sandboxRow struct {
	sb    *sandbox
	state State
}

// findContainers selects by ID, sandbox, or pod UID through an index, and tests only the result
// against the rest of the filter.
func (rt *Runtime) findContainers(f *runtimeapi.ContainerFilter) []containerRow {
	rt.lock()
	defer rt.mu.Unlock()
	short := rt.cfg.Profile.ShortIDs
	candidates := rt.store.containerList
	sandboxID := f.GetPodSandboxId()
	if sandboxID != "" {
		sb, ok, _ := find(rt.store.sandboxes, sandboxID, short)
		if !ok {
			return nil
		}
		sandboxID, candidates = sb.id, sb.containers
	}
	selector := f.GetLabelSelector()
	if uid := selector[labelPodUID]; uid != "" && sandboxID == "" {
		p := rt.store.pods[uid]
		if p == nil {
			return nil
		}
		candidates = p.labelledC
	}
	if f.GetId() != "" {
		c, ok, _ := find(rt.store.containers, f.GetId(), short)
		if !ok || sandboxID != "" && c.sb.id != sandboxID {
			return nil
		}
		candidates = []*container{c}
	}
	rows := make([]containerRow, 0, len(candidates))
	for _, c := range candidates {
		if f.GetState() != nil && containerEnum(c.state) != int64(f.GetState().GetState()) {
			continue
		}
		if len(selector) > 0 && !matches(selector, c.labelUID, c.blob, 8) {
			continue
		}
		rows = append(rows, containerRow{c, c.state})
	}
	return rows
}

// findSandboxes is findContainers for sandboxes.
func (rt *Runtime) findSandboxes(f *runtimeapi.PodSandboxFilter) []sandboxRow {
	rt.lock()
	defer rt.mu.Unlock()
	candidates := rt.store.sandboxList
	selector := f.GetLabelSelector()
	if uid := selector[labelPodUID]; uid != "" {
		p := rt.store.pods[uid]
		if p == nil {
			return nil
		}
		candidates = p.labelledS
	}
	if f.GetId() != "" {
		sb, ok, _ := find(rt.store.sandboxes, f.GetId(), rt.cfg.Profile.ShortIDs)
		if !ok {
			return nil
		}
		candidates = []*sandbox{sb}
	}
	rows := make([]sandboxRow, 0, len(candidates))
	for _, sb := range candidates {
		if f.GetState() != nil && sandboxEnum(sb.state) != int64(f.GetState().GetState()) {
			continue
		}
		if len(selector) > 0 && !matches(selector, sb.labelUID, sb.blob, 5) {
			continue
		}
		rows = append(rows, sandboxRow{sb, sb.state})
	}
	return rows
}

// matches tests a label selector; labels are decoded from the blob only for selectors of more than
// the pod.
func matches(selector map[string]string, uid string, blob []byte, field int) bool {
	if want, ok := selector[labelPodUID]; ok && want != "" {
		if want != uid {
			return false
		}
		if len(selector) == 1 {
			return true
		}
	}
	labels := mapIn(blob, fieldNumber(field))
	for k, want := range selector {
		if have, ok := labels[k]; !ok || have != want {
			return false
		}
	}
	return true
}

// rowMargin exceeds the additions of a fault or the state to an item, tag and length included.
const rowMargin = 96

// containerPage writes a message with the containers in field 1. Faults are applied once a call, to
// its first page.
func (rt *Runtime) containerPage(rows []containerRow, first bool, method string, call uint64) mem.BufferSlice {
	bad := rt.corruption(first, method, call)
	total := 0
	for _, r := range rows {
		total += len(r.c.blob) + len(r.c.tail.item()) + rowMargin
	}
	victim := bad.victim(len(rows))
	p := newPages(total)
	for i, r := range rows {
		if i != victim {
			p.addRow(r.c.blob, r.c.tail.item(), 6, containerEnum(r.state))
			continue
		}
		size := len(r.c.blob) + len(r.c.tail.item()) + rowMargin
		state, twice := r.state, 1
		if bad.duplicate {
			twice = 2
		}
		for ; twice > 0; twice-- {
			p.add(1, size, func(b []byte) []byte {
				if bad.nilFields {
					b = appendString(b, 1, r.c.id)
					b = appendString(b, 2, r.c.sb.id)
					return appendInt(b, 6, containerEnum(state))
				}
				return bad.spoil(r.c.appendItem(b, state), 6, 5)
			})
			state = otherState(state)
		}
	}
	if bad.orphan {
		c := rt.orphan(call)
		p.add(1, len(c.blob)+rowMargin, func(b []byte) []byte { return c.appendItem(b, StateRunning) })
	}
	return p.done()
}

// sandboxPage writes a message with the sandboxes in field 1.
func (rt *Runtime) sandboxPage(rows []sandboxRow, first bool, method string, call uint64) mem.BufferSlice {
	bad := rt.corruption(first, method, call)
	total := 0
	for _, r := range rows {
		total += len(r.sb.blob) + len(r.sb.tail.item()) + rowMargin
	}
	victim := bad.victim(len(rows))
	p := newPages(total)
	for i, r := range rows {
		if i != victim {
			p.addRow(r.sb.blob, r.sb.tail.item(), 3, sandboxEnum(r.state))
			continue
		}
		size := len(r.sb.blob) + len(r.sb.tail.item()) + rowMargin
		state, twice := r.state, 1
		if bad.duplicate {
			twice = 2
		}
		for ; twice > 0; twice-- {
			p.add(1, size, func(b []byte) []byte {
				if bad.nilFields {
					b = appendString(b, 1, r.sb.id)
					return appendInt(b, 3, sandboxEnum(state))
				}
				return bad.spoil(r.sb.appendItem(b, state), 3, 7)
			})
			state = otherState(state)
		}
	}
	return p.done()
}

func otherState(s State) State {
	switch s {
	case StateReady:
		return StateNotReady
	case StateNotReady:
		return StateReady
	case StateRunning:
		return StateExited
	}
	return StateRunning
}

// sendBatches sends items in batches of the profile's size. No item is no message. A runtime
// without streaming lists answers Unimplemented.
func sendBatches[T any](s *service, method string, items []T, send func([]T) error) error {
	size := s.rt.cfg.Profile.StreamBatch
	if size == 0 {
		return status.Errorf(codes.Unimplemented, "unknown method %s for the service", method)
	}
	s.rt.lock()
	cut := s.rt.roll(rollCutList, s.rt.faults.CutList, method, s.rt.rpcs[method])
	s.rt.mu.Unlock()
	if cut {
		items = items[:len(items)/2]
	}
	for batch := range slices.Chunk(items, size) {
		if err := send(batch); err != nil {
			return err
		}
	}
	if cut {
		return status.Errorf(codes.Unavailable, "virtual cut of %s", method)
	}
	return nil
}
