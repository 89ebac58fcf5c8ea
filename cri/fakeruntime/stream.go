// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// GetContainerEvents streams events. It sends no header before the first event, and notices a lost
// client only with something to send, as real runtimes do.
func (s *service) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest,
	stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	rt := s.rt
	rt.lock()
	n := callNumber(stream.Context())
	support := rt.cfg.Profile.Events
	switch {
	case rt.roll(rollUnimplemented, rt.faults.Unimplemented, "stream", n):
		support = EventsUnimplemented
	case rt.roll(rollEOFAtOnce, rt.faults.EOFAtOnce, "stream", n):
		support = EventsOff
	}
	switch {
	case rt.process != processUp:
		rt.mu.Unlock()
		return status.Error(codes.Unavailable, notInitialized)
	case support == EventsUnimplemented:
		rt.mu.Unlock()
		return status.Error(
			codes.Unimplemented,
			"unknown method GetContainerEvents for service runtime.v1.RuntimeService",
		)
	case support == EventsOff:
		rt.mu.Unlock()
		return nil
	}
	sub := rt.subscribe()
	life := rt.incarnation
	rt.mu.Unlock()
	defer func() {
		rt.lock()
		defer rt.mu.Unlock()
		rt.leave(sub)
	}()

	for {
		rt.lock()
		ev := rt.take(sub)
		ended := sub.ended
		end := sub.end
		stalled := sub.stalled
		rt.mu.Unlock()
		switch {
		case ended:
			return end
		case ev != nil:
			err := stream.SendMsg(&reply{padded(ev)})
			if over, res := rt.finishSend(sub, ev, err); over {
				return res
			}
			continue
		}
		var gone <-chan struct{} // noticed by a stalled stream alone, which has nothing to send
		if stalled {
			gone = stream.Context().Done()
		}
		select {
		case <-sub.wake:
		case <-gone:
			return status.FromContextError(stream.Context().Err()).Err()
		case <-life:
			return status.Error(codes.Unavailable, brokenStream)
		case <-s.serving.Done():
			return status.Error(codes.Unavailable, brokenStream)
		}
	}
}

// finishSend notes the result of a send, and reports whether and how the stream ends after it. A
// stream that ends is no subscriber any more.
func (rt *Runtime) finishSend(sub *subscriber, ev *event, err error) (over bool, result error) {
	rt.lock()
	defer rt.mu.Unlock()
	defer func() {
		if over {
			rt.leave(sub)
		}
	}()
	sub.sending = false
	ev.delivered = ev.delivered || err == nil
	rt.forsake(ev)
	rt.pump()
	switch {
	case err != nil:
		return true, err
	case sub.ended:
		return true, sub.end
	case sub.replays(ev):
		return false, nil
	}
	f := &rt.faults
	seq := ev.seq
	switch {
	case rt.roll(rollStall, f.Stall, "stream", seq):
		rt.stall(sub)
	case rt.roll(rollCut, f.Cut, "stream", seq):
		return true, status.Error(codes.Unavailable, "virtual cut of the stream")
	case rt.roll(rollEOF, f.EOF, "stream", seq):
		return true, nil
	}
	return false, nil
}

// CutStreams ends every open event stream with the gRPC code; codes.OK ends them cleanly, so that
// clients see io.EOF. Events on their way are lost, as when a connection breaks; later ones are for
// the next streams. A client that does not read has blocked the runtime until now.
func (rt *Runtime) CutStreams(code Code) {
	rt.lock()
	defer rt.mu.Unlock()
	for _, s := range slices.Clone(rt.hub.subs) {
		s.ended = true
		if code != 0 {
			s.end = status.Error(codes.Code(code), "virtual cut of the stream")
		}
		rt.leave(s)
		s.poke()
	}
}

// StallStreams makes every open event stream hang: open and silent, without blocking the runtime.
func (rt *Runtime) StallStreams() {
	rt.lock()
	defer rt.mu.Unlock()
	for _, s := range rt.hub.subs {
		rt.stall(s)
		s.poke()
	}
}
