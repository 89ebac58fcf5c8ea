// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scene

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/criproxy"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/daemon"
	"github.com/evented-pleg/evented-pleg/test/node/unshare"
)

// real is a private containerd or CRI-O behind a proxy that counts the kubelet's calls and disturbs
// its event stream for a scenario. Its history is its events, and the lists beyond them.
type real struct {
	daemon *daemon.Daemon
	client *crikit.Client
	proxy  *criproxy.Proxy
	deafen func() // ends the listening

	mu      sync.Mutex              // owns the fields below
	changes []bench.Change          // unread
	state   map[string]bench.Change // the last change of each ID
}

// startReal starts the variant's runtime (see package runtimes) in the folder, and puts it with all
// shims to come into the cgroup, as a node has a runtime in a slice: in the root cgroup its
// descriptors would be read for the root's statistics.
func startReal(ctx context.Context, v *Variant, dir, slice string) (*real, error) {
	r := &real{state: make(map[string]bench.Change)}
	var err error
	config := daemon.Config{Base: filepath.Join(dir, "c"), StatsPeriod: v.StatsPeriod}
	if r.daemon, err = config.Run(ctx, v.Runtime, io.Discard); err != nil {
		return nil, err // what has started ends with the run
	}
	if err := unshare.MoveTo(slice, r.daemon.PID()); err != nil {
		return nil, errors.Join(err, r.close())
	}
	socket, err := criSocket(v.Runtime, dir)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	if r.client, err = crikit.Dial(crikit.Options{Endpoint: r.daemon.Endpoint(), Namespace: "default"}); err != nil {
		return nil, errors.Join(err, r.close())
	}
	if r.proxy, err = criproxy.Start(socket, strings.TrimPrefix(r.daemon.Endpoint(), "unix://")); err != nil {
		return nil, errors.Join(err, r.close())
	}
	r.deafen = r.client.Follow(context.Background(), r.heard)
	return r, nil
}

// heard notes an event.
func (r *real) heard(e *runtimeapi.ContainerEventResponse) {
	sb := e.GetPodSandboxStatus()
	change := bench.Change{
		Pod:     sb.GetMetadata().GetUid(),
		ID:      e.ContainerId,
		Sandbox: sb.GetId() == e.ContainerId,
		State:   criphase.OfEvent(e.ContainerEventType, pleg.Container),
		At:      e.CreatedAt,
		Told:    true,
	}
	for _, c := range e.ContainersStatuses {
		if c.Id == e.ContainerId {
			change.Name = c.GetMetadata().GetName()
		}
	}
	r.note(change)
}

// note appends a change unless something later is known of the ID.
func (r *real) note(c bench.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.state[c.ID]
	if known && c.State <= last.State {
		return
	}
	if known && c.Pod == "" {
		c.Pod = last.Pod
		c.Sandbox = last.Sandbox
	}
	c.Name = cmp.Or(c.Name, last.Name)
	r.state[c.ID] = c
	r.changes = append(r.changes, c)
}

func (r *real) logs() string { return r.daemon.Logs() }

func (r *real) socket() string { return strings.TrimPrefix(r.proxy.Endpoint(), "unix://") }

// news lists, to find changes without an event.
func (r *real) news(ctx context.Context) ([]bench.Change, error) {
	r.mu.Lock()
	before := maps.Clone(r.state)
	r.mu.Unlock()
	sandboxes, err := r.client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	containers, err := r.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	shown := make(map[string]bool)
	for _, s := range sandboxes.Items {
		shown[s.Id] = true
		r.note(bench.Change{
			Pod:     s.GetMetadata().GetUid(),
			ID:      s.Id,
			Sandbox: true,
			State:   criphase.OfSandbox(s.State),
			At:      bench.Now(),
			Inexact: true,
		})
	}
	for _, c := range containers.Containers {
		shown[c.Id] = true
		r.note(bench.Change{
			Pod:     c.Labels["io.kubernetes.pod.uid"],
			ID:      c.Id,
			Name:    c.GetMetadata().GetName(),
			State:   criphase.OfContainer(c.State),
			At:      bench.Now(),
			Inexact: true,
		})
	}
	for id, c := range before {
		if !shown[id] {
			r.note(bench.Change{
				Pod:     c.Pod,
				ID:      id,
				Sandbox: c.Sandbox,
				State:   pleg.PhaseRemoved,
				At:      bench.Now(),
				Inexact: true,
			})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.changes = nil }()
	return r.changes, nil
}

// restart kills the runtime, like a crash, and starts it again a second later.
func (r *real) restart(ctx context.Context) error {
	r.proxy.Down() // its connections go with it
	if err := r.daemon.Stop(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	if err := bench.Sleep(ctx, time.Second); err != nil {
		return err
	}
	if err := r.daemon.Start(ctx); err != nil {
		return err
	}
	return r.proxy.Up()
}

// disturb disturbs the stream between the runtime and the kubelet.
func (r *real) disturb(_ context.Context, how disturbance) error {
	r.proxy.Clear()
	if how != undisturbed {
		r.proxy.Inject(criproxy.Fault{Method: "GetContainerEvents", Do: map[disturbance]criproxy.Action{
			cut: criproxy.Fail{Code: codes.Unavailable, Message: "cut"}, deaf: criproxy.Stall{}, silent: criproxy.Drop{},
		}[how]})
	}
	return nil
}

func (r *real) usage(context.Context) (spent, map[string]uint64, error) {
	calls := make(map[string]uint64)
	for method, n := range r.proxy.Calls() {
		calls[method] = uint64(n)
	}
	cpu, err := r.daemon.CPUTime()
	return spent{cpu.Daemon.Seconds(), cpu.Monitors.Seconds()}, calls, err
}

// criSocket returns where the kubelet finds the runtime. CRI-O's ends as on a node: by that end a
// kubelet takes the statistics of containers from cAdvisor.
func criSocket(runtime, dir string) (string, error) {
	if !strings.HasPrefix(runtime, "crio") {
		return filepath.Join(dir, "cri"), nil
	}
	dir = filepath.Join(dir, "run", "crio")
	return filepath.Join(dir, "crio.sock"), os.MkdirAll(dir, 0o755)
}

func (r *real) close() error {
	if r.deafen != nil {
		r.deafen()
		r.proxy.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if r.client != nil {
		_ = r.client.RemoveAll(ctx) // for the next runtime to be alone; the rest ends with the run
		_ = r.client.Close()
	}
	return r.daemon.Stop(ctx, syscall.SIGTERM)
}
