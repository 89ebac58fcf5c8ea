// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listed is a sandbox or a container, as its list shows it.
type listed interface {
	*sandbox | *container
	ident() string
	// isBare reports whether the item has lost its metadata.
	isBare() bool
	current() State
	// encoded returns the two parts of the item that never change, which lack the state.
	encoded() (blob, tail []byte)
	// fields are the numbers of the state and of a text without meaning.
	fields() (state, text protowire.Number)
	podLabel() string
	labelMap() map[string]string
	appendIDs(b []byte) []byte
	appendItem(b []byte, state State) []byte
}

// row is a list's needs of an item, copied under the lock: the rest never changes.
type row[T listed] struct {
	item  T
	state State
	bare  bool // without metadata
}

// findContainers returns the containers of a filter.
func (rt *Runtime) findContainers(f *runtimeapi.ContainerFilter) []row[*container] {
	rt.lock()
	defer rt.mu.Unlock()
	rows := find(
		rt,
		&rt.store.containers,
		f.GetId(),
		f.GetLabelSelector(),
		func(p *pod) []*container { return p.labelledC },
	)
	if f.GetPodSandboxId() != "" {
		sb, ok, _ := rt.store.sandboxes.find(f.GetPodSandboxId(), rt.cfg.Profile.ShortIDs)
		rows = slices.DeleteFunc(rows, func(r row[*container]) bool { return !ok || r.item.sb != sb })
	}
	for _, c := range rt.leftovers {
		ofSandbox := f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.sb.id
		named := f.GetId() == "" || f.GetId() == c.id
		if ofSandbox && named && (len(f.GetLabelSelector()) == 0 || matches(f.GetLabelSelector(), c)) {
			rows = append(rows, row[*container]{item: c, state: c.current()})
		}
	}
	return inState(rows, f.GetState() != nil, int64(f.GetState().GetState()))
}

// findSandboxes returns the sandboxes of a filter.
func (rt *Runtime) findSandboxes(f *runtimeapi.PodSandboxFilter) []row[*sandbox] {
	rt.lock()
	defer rt.mu.Unlock()
	rows := find(
		rt,
		&rt.store.sandboxes,
		f.GetId(),
		f.GetLabelSelector(),
		func(p *pod) []*sandbox { return p.labelledS },
	)
	return inState(rows, f.GetState() != nil, int64(f.GetState().GetState()))
}

// find returns the items with the ID and the labels, if requested: an ID or a pod's UID through an
// index, tested against the rest of the labels.
func find[T listed](
	rt *Runtime,
	in *items[T],
	id string,
	selector map[string]string,
	ofPod func(*pod) []T,
) (rows []row[T]) {
	candidates := in.list
	if uid := selector[labelPodUID]; uid != "" {
		candidates = nil
		if p := rt.store.pods[uid]; p != nil {
			candidates = ofPod(p)
		}
	}
	if id != "" {
		candidates = nil
		if item, ok, _ := in.find(id, rt.cfg.Profile.ShortIDs); ok {
			candidates = []T{item}
		}
	}
	rows = make([]row[T], 0, len(candidates))
	for _, item := range candidates {
		if len(selector) == 0 || matches(selector, item) {
			rows = append(rows, row[T]{item, item.current(), item.isBare()})
		}
	}
	return rows
}

// inState returns the rows in a state, if there is one to ask for.
func inState[T listed](rows []row[T], ask bool, state int64) []row[T] {
	return slices.DeleteFunc(rows, func(r row[T]) bool { return ask && r.state.enum() != state })
}

// matches tests a label selector; labels are decoded from the blob only for selectors of more than
// the pod.
func matches[T listed](selector map[string]string, item T) bool {
	if want, ok := selector[labelPodUID]; ok && want != "" {
		if want != item.podLabel() {
			return false
		}
		if len(selector) == 1 {
			return true
		}
	}
	labels := item.labelMap()
	for k, want := range selector {
		if have, ok := labels[k]; !ok || have != want {
			return false
		}
	}
	return true
}

// rowMargin exceeds the additions of the state to an item, tag and length included.
const rowMargin = 32

// containerPage writes a message with the containers in field 1.
func (rt *Runtime) containerPage(rows []row[*container], bad corruption) mem.BufferSlice {
	victim := bad.victim(len(rows))
	if bad.orphan {
		rows = append(slices.Clip(rows), row[*container]{item: rt.orphan(bad.call), state: StateRunning})
	}
	return page(rows, bad, victim)
}

// sandboxPage writes a message with the sandboxes in field 1.
func (rt *Runtime) sandboxPage(rows []row[*sandbox], bad corruption) mem.BufferSlice {
	return page(rows, bad, bad.victim(len(rows)))
}

// page writes a message with the items in field 1; the fault strikes the victim.
func page[T listed](rows []row[T], bad corruption, victim int) mem.BufferSlice {
	var out pages
	for i, r := range rows {
		blob, tail := r.item.encoded()
		stateField, textField := r.item.fields()
		size := len(blob) + len(tail)
		if r.state.enum() != 0 {
			size += 2 // field numbers and states are small
		}
		b := out.room(size + rowMargin)
		if i != victim && !r.bare {
			b = protowire.AppendTag(b, 1, protowire.BytesType)
			b = protowire.AppendVarint(b, uint64(size))
			b = append(b, blob...)
			b = append(b, tail...)
			*out.buf = appendInt(b, stateField, r.state.enum())
			continue
		}
		states := []State{r.state}
		if bad.duplicate && i == victim {
			states = append(states, otherState(r.state))
		}
		for _, state := range states {
			hit := corruption{}
			if i == victim {
				hit = bad
			}
			item := hit.spoil(r.item.appendItem(nil, state), stateField, textField)
			if bad.nilFields && i == victim || r.bare {
				item = appendInt(r.item.appendIDs(nil), stateField, state.enum())
			}
			b = protowire.AppendTag(b, 1, protowire.BytesType)
			b = protowire.AppendBytes(b, item)
		}
		*out.buf = b // a doubled item may have outgrown its page
	}
	return out.done()
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

// sendBatches sends items in batches of the profile's size. No item is no message.
func sendBatches[T any](
	s *service,
	stream grpc.ServerStream,
	method string,
	items []T,
	send func([]T) error,
) error {
	size := s.rt.cfg.Profile.StreamBatch
	s.rt.lock()
	cut := s.rt.roll(rollCutList, s.rt.faults.CutList, method, callNumber(stream.Context()))
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

// The streaming lists are described here, because the CRI's module has them only from v0.36 on, and
// would raise an agent's older gRPC. Request and batch of a streaming list have the wire format of
// the plain list's request and answer.
var (
	runtimeLists = []grpc.StreamDesc{
		streamingList("StreamPodSandboxes", (*service).streamPodSandboxes),
		streamingList("StreamContainers", (*service).streamContainers),
		streamingList("StreamContainerStats", (*service).streamContainerStats),
		streamingList("StreamPodSandboxStats", (*service).streamPodSandboxStats),
	}
	imageLists = []grpc.StreamDesc{streamingList("StreamImages", (*service).streamImages)}
)

// streamingList describes a method with a request and a stream of answers.
func streamingList[R any](name string, serve func(*service, *R, grpc.ServerStream) error) grpc.StreamDesc {
	return grpc.StreamDesc{
		StreamName:    name,
		ServerStreams: true,
		Handler: func(srv any, stream grpc.ServerStream) error {
			request := new(R)
			if err := stream.RecvMsg(request); err != nil {
				return err
			}
			return serve(srv.(*service), request, stream)
		},
	}
}

// withLists returns a generated service with our lists in place of those of the same name.
func withLists(desc grpc.ServiceDesc, ours []grpc.StreamDesc) *grpc.ServiceDesc {
	others := slices.DeleteFunc(slices.Clone(desc.Streams), func(g grpc.StreamDesc) bool {
		return slices.ContainsFunc(ours, func(o grpc.StreamDesc) bool { return o.StreamName == g.StreamName })
	})
	desc.Streams = append(others, ours...)
	return &desc
}

func (s *service) streamContainers(req *runtimeapi.ListContainersRequest, stream grpc.ServerStream) error {
	return streamRows(s, "StreamContainers", s.rt.findContainers(req.GetFilter()), s.rt.containerPage, stream)
}

func (s *service) streamPodSandboxes(req *runtimeapi.ListPodSandboxRequest, stream grpc.ServerStream) error {
	return streamRows(s, "StreamPodSandboxes", s.rt.findSandboxes(req.GetFilter()), s.rt.sandboxPage, stream)
}

// streamRows sends the list in batches of the profile's size. An empty list is no message. Faults
// strike the first batch.
func streamRows[T listed](
	s *service,
	method string,
	rows []row[T],
	page func(rows []row[T], bad corruption) mem.BufferSlice,
	stream grpc.ServerStream,
) error {
	call := callNumber(stream.Context())
	bad := s.rt.corruption(method, call)
	if s.rt.showsNothing(method, call, len(rows)) {
		return nil
	}
	return sendBatches(s, stream, method, rows, func(batch []row[T]) error {
		answer := &reply{page(batch, bad)}
		bad = corruption{}
		return stream.SendMsg(answer)
	})
}

// streamContainerStats is ListContainerStats in batches.
func (s *service) streamContainerStats(
	req *runtimeapi.ListContainerStatsRequest,
	stream grpc.ServerStream,
) error {
	return sendBatches(
		s,
		stream,
		"StreamContainerStats",
		s.listContainerStats(req.GetFilter()),
		func(batch []*runtimeapi.ContainerStats) error {
			return stream.SendMsg(&runtimeapi.ListContainerStatsResponse{Stats: batch})
		},
	)
}

// streamPodSandboxStats is ListPodSandboxStats in batches.
func (s *service) streamPodSandboxStats(
	req *runtimeapi.ListPodSandboxStatsRequest,
	stream grpc.ServerStream,
) error {
	return sendBatches(
		s,
		stream,
		"StreamPodSandboxStats",
		s.listSandboxStats(req.GetFilter()),
		func(batch []*runtimeapi.PodSandboxStats) error {
			return stream.SendMsg(&runtimeapi.ListPodSandboxStatsResponse{Stats: batch})
		},
	)
}

// streamImages is ListImages in batches.
func (s *service) streamImages(req *runtimeapi.ListImagesRequest, stream grpc.ServerStream) error {
	return sendBatches(
		s,
		stream,
		"StreamImages",
		s.rt.listImages(req.GetFilter()),
		func(batch []*runtimeapi.Image) error {
			return stream.SendMsg(&runtimeapi.ListImagesResponse{Images: batch})
		},
	)
}
