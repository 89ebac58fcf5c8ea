// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/test/bufconn"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

// startFake serves a fake runtime in memory, on which the scene is played until stop.
func startFake(ctx context.Context) (dial func(context.Context) (net.Conn, error), stop func(), err error) {
	rt, err := fakeruntime.New(fakeruntime.Config{Seed: uint64(time.Now().UnixNano())})
	if err != nil {
		return nil, nil, err
	}
	listener := bufconn.Listen(1 << 16)
	ctx, cancel := context.WithCancel(ctx)
	serving, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = rt.Serve(serving, listener) }) // ends with serving
	running.Go(func() {
		s := scene{rt: rt, ctx: ctx}
		s.play()
		if s.failed != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(s.failed, "The scene on the fake runtime has ended")
		}
	})
	stop = func() {
		cancel()
		end()
		rt.Close()
		running.Wait()
	}
	dial = func(ctx context.Context) (net.Conn, error) { return listener.DialContext(ctx) }
	return dial, stop, nil
}

// scene makes containers end as they do on nodes. A single goroutine plays the scene.
type scene struct {
	rt     *fakeruntime.Runtime
	ctx    context.Context
	failed error
}

// do notes the first error.
func (s *scene) do(err error) {
	if s.failed == nil {
		s.failed = err
	}
}

func (s *scene) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
		s.do(context.Cause(s.ctx))
	}
}

func (s *scene) pod(namespace, name string) (sandbox string) {
	sandbox, err := s.rt.AddPod(fakeruntime.PodSpec{Namespace: namespace, Name: name})
	s.do(err)
	return sandbox
}

// container starts a container.
func (s *scene) container(sandbox, name string) (id string) {
	id, err := s.rt.AddContainer(sandbox, fakeruntime.ContainerSpec{Name: name})
	s.do(err)
	if err == nil {
		s.do(s.rt.Start(id))
	}
	return id
}

// oomLate is the time from an exit to its reason, as seen on containerd.
const oomLate = 20 * time.Millisecond

// play plays the scene again and again: a job completes, a worker crashes in a loop, a shop is
// killed for lack of memory, a sandbox dies, a pod is removed at once.
func (s *scene) play() {
	worker := s.pod("shop", "worker-5d9f7")
	cart := s.pod("shop", "cart-0")
	for round := 0; s.failed == nil; round++ {
		crash := s.container(worker, "app")
		leak := s.container(cart, "app")
		proxy := s.container(cart, "proxy")
		s.pass(2 * time.Second)
		s.do(s.rt.Exit(crash, 1))
		s.pass(time.Second)
		s.do(s.rt.OOMKill(leak, oomLate))
		s.pass(time.Second)
		s.do(s.rt.Exit(proxy, 0))
		switch round % 4 {
		case 0:
			job := s.pod("batch", "report-28190-x7k2p")
			id := s.container(job, "report")
			s.pass(2 * time.Second)
			s.do(s.rt.Exit(id, 0))
			s.pass(2 * time.Second)
			s.do(s.rt.RemoveSandbox(job))
		case 1:
			dns := s.pod("kube-system", "dns-7f6c9")
			id := s.container(dns, "dns")
			s.pass(2 * time.Second)
			s.do(s.rt.Exit(id, 139))
			s.pass(time.Second)
			s.do(s.rt.RemoveSandbox(dns))
		case 2:
			web := s.pod("shop", "web-84c7d")
			s.container(web, "web")
			s.pass(2 * time.Second)
			s.do(s.rt.KillShim(web))
			s.pass(3 * time.Second)
			s.do(s.rt.RemoveSandbox(web))
		case 3:
			short := s.pod("test", "short-lived")
			id := s.container(short, "probe")
			s.pass(time.Second)
			s.do(errors.Join(s.rt.Exit(id, 3), s.rt.RemoveSandbox(short)))
		}
		s.pass(time.Second)
	}
}
