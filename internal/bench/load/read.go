// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/rawgrpc"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// maxMessage lets a runtime without streaming lists send 100,000 containers in a message.
const maxMessage = 1 << 30

// Connect returns a connection to the runtime's socket. It finds a restarted runtime within a
// fraction of a second, where grpc's default could wait for two minutes.
func Connect(socket string) (*grpc.ClientConn, error) {
	quick := backoff.Config{
		BaseDelay:  20 * time.Millisecond,
		Multiplier: 1.5,
		Jitter:     0.1,
		MaxDelay:   200 * time.Millisecond,
	}
	conn, err := grpc.NewClient(rawgrpc.SocketTarget, rawgrpc.ToSocket(socket),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0), // a connection that is lost was ended by the runtime
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: 2 * time.Second}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", socket, err)
	}
	return conn, nil
}

// list lists the sandboxes and containers with a label of this value, all for an empty label.
func list(
	ctx context.Context,
	client runtimeapi.RuntimeServiceClient,
	label, value string,
) ([]*runtimeapi.PodSandbox, []*runtimeapi.Container, error) {
	var selector map[string]string
	if label != "" {
		selector = map[string]string{label: value}
	}
	limit := grpc.MaxCallRecvMsgSize(maxMessage)
	sandboxes, err := client.ListPodSandbox(
		ctx,
		&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: selector}},
		limit,
	)
	if err != nil {
		return nil, nil, fmt.Errorf("load: list the sandboxes: %w", err)
	}
	containers, err := client.ListContainers(
		ctx,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: selector}},
		limit,
	)
	if err != nil {
		return nil, nil, fmt.Errorf("load: list the containers: %w", err)
	}
	return sandboxes.GetItems(), containers.GetContainers(), nil
}

// FactsOf returns the state of a pod's items in the runtime's lists.
func FactsOf(ctx context.Context, conn grpc.ClientConnInterface, uid string) (facts []Fact, err error) {
	sandboxes, containers, err := list(ctx, runtimeapi.NewRuntimeServiceClient(conn), LabelPodUID, uid)
	for _, s := range sandboxes {
		facts = append(facts, Fact{
			Pod:     uid,
			ID:      s.GetId(),
			Sandbox: true,
			State:   criphase.OfSandbox(s.GetState()),
		})
	}
	for _, c := range containers {
		facts = append(facts, Fact{Pod: uid, ID: c.GetId(), State: criphase.OfContainer(c.GetState())})
	}
	return facts, err
}

// Read reads every pod with a label of this value, all pods for an empty label, with the statuses
// of the containers. Items that go away between two calls are left out.
func Read(ctx context.Context, conn grpc.ClientConnInterface, label, value string) ([]bench.Pod, error) {
	client := runtimeapi.NewRuntimeServiceClient(conn)
	sandboxes, containers, err := list(ctx, client, label, value)
	if err != nil {
		return nil, err
	}
	r := reader{client: client, pods: make(map[string]*bench.Pod)}
	podOf := make(map[string]string)
	var tasks errgroup.Group
	tasks.SetLimit(defaultParallel)
	for _, s := range sandboxes {
		uid := s.GetMetadata().GetUid()
		podOf[s.GetId()] = uid
		state := criphase.OfSandbox(s.GetState())
		r.add(uid, nil, bench.Item{ID: s.GetId(), Sandbox: true, State: state})
		if state == pleg.PhaseRunning {
			tasks.Go(func() error { return r.readIPs(ctx, uid, s.GetId()) })
		}
	}
	for _, c := range containers {
		uid, ok := podOf[c.GetPodSandboxId()]
		if !ok {
			uid = c.GetLabels()[LabelPodUID]
		}
		tasks.Go(func() error { return r.readContainer(ctx, uid, c.GetId()) })
	}
	if err := tasks.Wait(); ctx.Err() != nil {
		return nil, context.Cause(ctx)
	} else if err != nil {
		return nil, err
	}
	pods := make([]bench.Pod, 0, len(r.pods))
	for _, p := range r.pods {
		pods = append(pods, *p)
	}
	return pods, nil
}

type reader struct {
	client runtimeapi.RuntimeServiceClient

	mu   sync.Mutex // owns pods
	pods map[string]*bench.Pod
}

// add adds the result for a pod. Ips are nil unless requested.
func (r *reader) add(uid string, ips []string, items ...bench.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[uid]
	if p == nil {
		p = &bench.Pod{UID: uid}
		r.pods[uid] = p
	}
	if ips != nil {
		p.IPs = ips
	}
	p.Items = append(p.Items, items...)
}

func (r *reader) readIPs(ctx context.Context, uid, id string) error {
	answer, err := r.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load: status of sandbox %s: %w", id, err)
	}
	network := answer.GetStatus().GetNetwork()
	var ips []string
	if ip := network.GetIp(); ip != "" {
		ips = append(ips, ip)
	}
	for _, ip := range network.GetAdditionalIps() {
		ips = append(ips, ip.GetIp())
	}
	r.add(uid, ips)
	return nil
}

func (r *reader) readContainer(ctx context.Context, uid, id string) error {
	answer, err := r.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load: status of container %s: %w", id, err)
	}
	s := answer.GetStatus()
	r.add(uid, nil, bench.Item{
		ID:         id,
		State:      criphase.OfContainer(s.GetState()),
		Name:       s.GetMetadata().GetName(),
		ExitCode:   s.GetExitCode(),
		Reason:     s.GetReason(),
		StartedAt:  s.GetStartedAt(),
		FinishedAt: s.GetFinishedAt(),
	})
	return nil
}
