// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Serve answers CRI calls on the listener until ctx ends or [Runtime.Close] is called, closes the
// listener, and returns nil when everything it started has ended; hung calls are broken off.
// Another reason to stop is returned. The pods outlive Serve: several listeners can be served one
// after another or at the same time.
func (rt *Runtime) Serve(ctx context.Context, lis net.Listener) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	s := &service{rt: rt, serving: serving}
	srv := grpc.NewServer(
		grpc.ForceServerCodecV2(newCodec()),
		grpc.WaitForHandlers(true),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxRecvMsgSize(16<<20),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge:      rt.cfg.ConnectionAge,
			MaxConnectionAgeGrace: rt.cfg.ConnectionGrace,
		}),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.streaming),
	)
	srv.RegisterService(withLists(runtimeapi.RuntimeService_ServiceDesc, runtimeLists), s)
	srv.RegisterService(withLists(runtimeapi.ImageService_ServiceDesc, imageLists), s)

	tracked := &listener{Listener: lis, rt: rt, conns: map[*conn]struct{}{}}
	rt.lock()
	rt.listeners[tracked] = struct{}{}
	rt.mu.Unlock()
	defer func() {
		rt.lock()
		delete(rt.listeners, tracked)
		rt.mu.Unlock()
	}()

	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-serving.Done():
		case <-rt.closing:
			stop()
		}
		srv.Stop()
	})
	err := srv.Serve(tracked)
	stop()
	wg.Wait()
	s.late.Wait()
	if err == nil || ctx.Err() != nil || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("fakeruntime: serve %v: %w", lis.Addr(), err)
}

// service is the CRI on a server.
type service struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	rt      *Runtime
	serving context.Context // ends when the server is being stopped
	late    sync.WaitGroup  // changes that are made later
}

// gate counts a call, refuses its content type, and lets the runtime's state and faults act. It
// returns the method, and the number of the call among those of its method.
func (s *service) gate(ctx context.Context, fullMethod string) (method string, n uint64, err error) {
	want := s.rt.cfg.Profile.ContentType
	if want != "" && !slices.Equal(metadata.ValueFromIncomingContext(ctx, "content-type"), []string{want}) {
		return "", 0, status.Error(codes.Unavailable, brokenStream)
	}
	method = path.Base(fullMethod)
	n, err = s.rt.enter(ctx, method)
	return method, n, err
}

// streaming passes the gate before a stream.
func (s *service) streaming(
	srv any,
	stream grpc.ServerStream,
	info *grpc.StreamServerInfo,
	next grpc.StreamHandler,
) error {
	_, n, err := s.gate(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return next(srv, numbered{stream, context.WithValue(stream.Context(), numberKey{}, n)})
}

// numbered is a stream that knows the number of its call among those of its method: others may have
// begun since.
type numbered struct {
	grpc.ServerStream
	ctx context.Context
}

func (n numbered) Context() context.Context { return n.ctx }

type numberKey struct{}

// callNumber returns the number of a streaming call.
func callNumber(ctx context.Context) uint64 {
	n, _ := ctx.Value(numberKey{}).(uint64)
	return n
}

// unary passes the gate, and answers the hot reads in wire format.
func (s *service) unary(
	ctx context.Context,
	req any,
	info *grpc.UnaryServerInfo,
	next grpc.UnaryHandler,
) (any, error) {
	method, n, err := s.gate(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	if by := s.rt.late(method, n); by > 0 {
		return nil, s.postpone(ctx, by, func(ctx context.Context) { _, _ = next(ctx, req) })
	}
	switch req := req.(type) {
	case *runtimeapi.ListContainersRequest:
		rows := s.rt.findContainers(req.GetFilter())
		if s.rt.showsNothing(method, n, len(rows)) {
			return &reply{}, nil
		}
		return &reply{s.rt.containerPage(rows, s.rt.corruption(method, n))}, nil
	case *runtimeapi.ListPodSandboxRequest:
		rows := s.rt.findSandboxes(req.GetFilter())
		if s.rt.showsNothing(method, n, len(rows)) {
			return &reply{}, nil
		}
		return &reply{s.rt.sandboxPage(rows, s.rt.corruption(method, n))}, nil
	case *runtimeapi.ContainerStatusRequest:
		if err := s.rt.suffer(ctx, req.GetContainerId()); err != nil {
			return nil, err
		}
		return s.containerStatus(req, method, n)
	case *runtimeapi.PodSandboxStatusRequest:
		return s.podSandboxStatus(req, method, n)
	}
	res, err := next(ctx, req)
	if err != nil {
		return nil, toStatus(err)
	}
	return res, nil
}

// callKind is a call's part of [Faults].
type callKind uint8

const (
	callOther callKind = iota
	callList
	callStatus
	callWrite
)

var callKinds = map[string]callKind{
	"ListPodSandbox":            callList,
	"ListContainers":            callList,
	"StreamPodSandboxes":        callList,
	"StreamContainers":          callList,
	"ListContainerStats":        callList,
	"ListPodSandboxStats":       callList,
	"StreamContainerStats":      callList,
	"StreamPodSandboxStats":     callList,
	"ListImages":                callList,
	"StreamImages":              callList,
	"PodSandboxStatus":          callStatus,
	"ContainerStatus":           callStatus,
	"ContainerStats":            callStatus,
	"PodSandboxStats":           callStatus,
	"ImageStatus":               callStatus,
	"ImageFsInfo":               callStatus,
	"RunPodSandbox":             callWrite,
	"StopPodSandbox":            callWrite,
	"RemovePodSandbox":          callWrite,
	"CreateContainer":           callWrite,
	"StartContainer":            callWrite,
	"StopContainer":             callWrite,
	"RemoveContainer":           callWrite,
	"UpdateContainerResources":  callWrite,
	"UpdatePodSandboxResources": callWrite,
	"ReopenContainerLog":        callWrite,
	"ExecSync":                  callWrite,
	"PullImage":                 callWrite,
	"RemoveImage":               callWrite,
}

// ofCall returns how much longer a call of the method takes, and how probably it fails or hangs;
// hangOne is of the faults that strike only one of the two lists that make up the pods.
func (f *Faults) ofCall(method string) (slow time.Duration, fail, hang, hangOne float64) {
	switch callKinds[method] {
	case callList:
		slow = f.SlowList
		fail = f.FailList
		hang = f.HangList
	case callStatus:
		slow = f.SlowStatus
		fail = f.FailStatus
		hang = f.HangStatus
	case callWrite:
		slow = f.SlowWrite
		fail = f.FailWrite
		hang = f.HangWrite
	}
	switch method {
	case "ListPodSandbox", "StreamPodSandboxes":
		slow += f.SlowSandboxList
		hangOne = f.HangSandboxList
	case "ListContainers", "StreamContainers":
		slow += f.SlowContainerList
		hangOne = f.HangContainerList
	case "ContainerStatus":
		slow += f.SlowContainer
	}
	return slow, fail, hang, hangOne
}

// lacks reports whether the profile's runtime has no such method, and so no fault of it.
func (rt *Runtime) lacks(method string) bool {
	return rt.cfg.Profile.StreamBatch == 0 && strings.HasPrefix(method, "Stream")
}

// enter counts a call, and makes it fail, wait or hang by the runtime's state or its faults. It
// returns the number of the call among those of its method.
func (rt *Runtime) enter(ctx context.Context, method string) (n uint64, err error) {
	rt.lock()
	rt.rpcs[method]++
	n = rt.rpcs[method]
	life := rt.incarnation
	if rt.process != processUp {
		text := notInitialized
		if rt.process == processDown {
			text = brokenStream
		}
		rt.mu.Unlock()
		return n, status.Error(codes.Unavailable, text)
	}
	if rt.lacks(method) {
		rt.mu.Unlock()
		return n, status.Errorf(codes.Unimplemented, "unknown method %s for the service", method)
	}
	f := &rt.faults
	slow, fail, hang, hangOne := f.ofCall(method)
	hangs := rt.roll(rollHang, hang, method, n) || rt.roll(rollHangOneList, hangOne, method, n)
	fails := rt.roll(rollFail, fail, method, n)
	code := cmp.Or(codes.Code(f.FailCode), codes.Unknown)
	var work time.Duration
	if kind := callKinds[method]; kind == callList || kind == callStatus {
		work = f.Work
		slow += rt.throttled(method, n)
	}
	rt.mu.Unlock()

	if hangs {
		return n, until[struct{}](ctx, life, nil)
	}
	if err := rt.work(ctx, life, work); err != nil {
		return n, err
	}
	if err := wait(ctx, life, slow); err != nil {
		return n, err
	}
	if fails {
		return n, status.Errorf(code, "virtual failure of %s, call %d", method, n)
	}
	return n, nil
}

// wait lets time pass for a call.
func wait(ctx context.Context, life <-chan struct{}, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	return until(ctx, life, time.After(d))
}

// until waits for a moment in a call, and fails if the caller or the runtime ends first.
func until[T any](ctx context.Context, life <-chan struct{}, moment <-chan T) error {
	select {
	case <-moment:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-life:
		return status.Error(codes.Unavailable, brokenStream)
	}
}

// perform makes a change under the lock, and holds the caller until its event has found room with
// every subscriber. As in a real runtime the caller's own deadline does not matter: its client
// gives up, and the event is sent all the same.
func (s *service) perform(change func() (*event, error)) error {
	s.rt.lock()
	ev, err := change()
	if err != nil || ev == nil || !ev.stuck {
		s.rt.mu.Unlock()
		return err
	}
	room := make(chan struct{})
	life := s.rt.incarnation
	ev.room = room
	s.rt.mu.Unlock()
	select {
	case <-room:
		return nil
	case <-life:
	case <-s.serving.Done():
	}
	return status.Error(codes.Unavailable, brokenStream)
}

// handlers are the names of the runtime handlers.
var handlers = []string{"", "runc"}

// userNamespacesHostNetwork is the field of the same name in RuntimeFeatures, in the CRI's module
// only from v0.36 on.
const userNamespacesHostNetwork = 2

// Version answers with the profile's names.
func (s *service) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	p := &s.rt.cfg.Profile
	return &runtimeapi.VersionResponse{
		Version:           "0.1.0",
		RuntimeName:       p.RuntimeName,
		RuntimeVersion:    p.RuntimeVersion,
		RuntimeApiVersion: "v1",
	}, nil
}

// Status is always ready: an unready runtime answers no call at all.
func (s *service) Status(_ context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	f := &s.rt.cfg.Profile.Features
	res := &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: "RuntimeReady", Status: true},
			{Type: "NetworkReady", Status: true},
		}},
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: f.SupplementalGroupsPolicy},
	}
	if f.UserNamespacesHostNetwork {
		res.Features.ProtoReflect().SetUnknown(appendInt(nil, userNamespacesHostNetwork, 1))
	}
	if f.Handlers {
		for _, name := range handlers {
			res.RuntimeHandlers = append(res.RuntimeHandlers, &runtimeapi.RuntimeHandler{
				Name: name,
				Features: &runtimeapi.RuntimeHandlerFeatures{
					RecursiveReadOnlyMounts: f.RecursiveReadOnlyMounts,
					UserNamespaces:          f.UserNamespaces,
				},
			})
		}
	}
	if req.GetVerbose() {
		res.Info = map[string]string{
			"config": infoJSON(
				map[string]any{"profile": s.rt.cfg.Profile.Name, "faults": s.rt.Faults().Strings()},
			),
		}
	}
	return res, nil
}

// RuntimeConfig says how cgroups are driven.
func (s *service) RuntimeConfig(
	context.Context,
	*runtimeapi.RuntimeConfigRequest,
) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS},
	}, nil
}

// UpdateRuntimeConfig takes the pod CIDR, without a visible change.
func (s *service) UpdateRuntimeConfig(
	context.Context,
	*runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}
