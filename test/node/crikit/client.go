// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package crikit drives a CRI runtime from a test: pods and containers made by single calls, and
// the runtime's whole state as a value.
//
// # Model
//
// A Client stands for the other side of a node agent, which creates, starts, stops and removes. It
// shares no code with the PLEG's own client, so that neither can hide a bug of the other.
// Everything made by a Client carries a namespace unique to the run, and RemoveAll removes exactly
// those items.
//
// # Concurrency
//
// A Client may be used from any number of goroutines.
//
// # Errors
//
// Errors name the call and the object, and wrap the grpc status.
package crikit

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Options configure a Client.
type Options struct {
	// Endpoint is the runtime's address, unix:///path.
	Endpoint string
	// Namespace is the pod namespace of everything the client makes.
	Namespace string
	// CgroupParent is the cgroup for pods, absolute. Empty: the runtime's choice.
	CgroupParent string
	// Image is the reference of the workload image.
	Image string
}

// A Client makes and inspects pods on a runtime.
type Client struct {
	runtimeapi.RuntimeServiceClient
	Options

	Conn *grpc.ClientConn
}

// Dial prepares a client. The first call connects.
func Dial(o Options) (*Client, error) {
	if !strings.HasPrefix(o.Endpoint, "unix://") {
		return nil, fmt.Errorf("crikit: the endpoint %q must begin with unix://", o.Endpoint)
	}
	conn, err := load.Connect(strings.TrimPrefix(o.Endpoint, "unix://"))
	if err != nil {
		return nil, fmt.Errorf("crikit: %w", err)
	}
	return &Client{RuntimeServiceClient: runtimeapi.NewRuntimeServiceClient(limited{conn, answerLimit}), Options: o, Conn: conn}, nil
}

// answerLimit bounds a call, so that a runtime that hangs ends a test with its name: beyond the two
// minutes for which CRI-O leaves calls unanswered that come soon after its start.
const answerLimit = 4 * time.Minute

// limited is a connection whose calls say what has not been answered. Streams have no limit.
type limited struct {
	*grpc.ClientConn
	most time.Duration
}

// Invoke implements grpc.ClientConnInterface.
func (l limited) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	within, cancel := standstill.WithTimeout(ctx, l.most)
	defer cancel()
	err := l.ClientConn.Invoke(within, method, args, reply, opts...)
	switch {
	case err == nil || within.Err() == nil:
		return err
	case ctx.Err() != nil:
		return status.Errorf(codes.DeadlineExceeded, "the runtime has not answered %s: %v", path.Base(method), context.Cause(ctx))
	}
	return status.Errorf(codes.DeadlineExceeded,
		"the runtime has not answered %s for %v: it hangs, see its log", path.Base(method), l.most)
}

// Images is the runtime's image service, on the same connection.
func (c *Client) Images() runtimeapi.ImageServiceClient {
	return runtimeapi.NewImageServiceClient(c.Conn)
}

// Close ends the connection with every call.
func (c *Client) Close() error { return c.Conn.Close() }

// Follow calls f with each event of the runtime's stream, and of the next stream after its end.
// Stop waits for the last call. Follow always reads: an idle subscriber would stop the runtime.
func (c *Client) Follow(ctx context.Context, f func(*runtimeapi.ContainerEventResponse)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		for ctx.Err() == nil {
			stream, err := c.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
			for err == nil {
				var message *runtimeapi.ContainerEventResponse
				if message, err = stream.Recv(); err == nil {
					f(message)
				}
			}
			_ = bench.Sleep(ctx, 100*time.Millisecond)
		}
	})
	return func() { cancel(); following.Wait() }
}

// Truth reads the runtime's state of the client's namespace: the expected content of a quiet cache,
// bare.
func (c *Client) Truth(ctx context.Context) ([]bench.Pod, error) {
	pods, err := load.Read(ctx, c.Conn, load.LabelPodNamespace, c.Namespace)
	for i := range pods {
		Bare(&pods[i])
	}
	return pods, err
}

// Bare removes the times, the addresses and the results of running containers, in which two correct
// observers may differ.
func Bare(pod *bench.Pod) {
	pod.IPs = nil
	for i, item := range pod.Items {
		item.StartedAt = 0
		item.FinishedAt = 0
		if item.State != pleg.PhaseExited {
			item.ExitCode = 0
			item.Reason = ""
		}
		pod.Items[i] = item
	}
}

// WaitState polls until the container is in the state, and returns its status.
func (c *Client) WaitState(
	ctx context.Context,
	id string,
	state runtimeapi.ContainerState,
) (*runtimeapi.ContainerStatus, error) {
	for {
		answer, err := c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err == nil && answer.Status.State == state {
			return answer.Status, nil
		}
		if cause := bench.Sleep(ctx, 20*time.Millisecond); cause != nil {
			return nil, fmt.Errorf(
				"crikit: container %s is %v, want %v (last error: %v): %w",
				id,
				answer.GetStatus().GetState(),
				state,
				err,
				cause,
			)
		}
	}
}
