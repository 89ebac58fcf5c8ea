// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// method is a call that this package makes.
type method uint8

const (
	version method = iota
	listPodSandbox
	streamPodSandboxes
	listContainers
	streamContainers
	podSandboxStatus
	containerStatus
	getContainerEvents
	methods // how many there are
)

// service begins the paths of the methods. They are spelled here, because the CRI's module names
// the streaming lists only from v0.36 on, and would raise the gRPC of an agent that is on an older
// one.
const service = "/runtime.v1.RuntimeService/"

var (
	methodNames = [methods]string{
		"Version", "ListPodSandbox", "StreamPodSandboxes", "ListContainers", "StreamContainers", "PodSandboxStatus", "ContainerStatus", "GetContainerEvents",
	}
	methodPaths = [methods]string{
		service + "Version",
		service + "ListPodSandbox",
		service + "StreamPodSandboxes",
		service + "ListContainers",
		service + "StreamContainers",
		service + "PodSandboxStatus",
		service + "ContainerStatus",
		service + "GetContainerEvents",
	}
	serverStreams = grpc.StreamDesc{ServerStreams: true}
)

func (m method) String() string { return methodNames[m] }

// connectPatience is how long a call waits for a connection that is made anew because of it.
const connectPatience = 100 * time.Millisecond

// awake ends grpc's pause between two attempts to connect, if there is one, and gives the next
// attempt a moment. Our callers pace themselves: a call that failed because of an attempt made
// before the runtime came back might not be repeated for a minute.
func (c *Client) awake(ctx context.Context) {
	if c.conn.GetState() != connectivity.TransientFailure {
		return
	}
	c.conn.ResetConnectBackoff()
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	c.conn.WaitForStateChange(ctx, connectivity.TransientFailure)
}

// invoke makes a unary call and receives its answer into reply, a *owned or a *borrowed. The error
// is grpc's.
func (c *Client) invoke(ctx context.Context, m method, req request, reply any) error {
	c.counter.calls[m].Add(1)
	c.awake(ctx)
	err := c.conn.Invoke(ctx, methodPaths[m], req, reply)
	c.link.note(ctx, err)
	return err
}

// call is invoke with an error that explains.
func (c *Client) call(ctx context.Context, m method, req request, reply any) error {
	if err := c.invoke(ctx, m, req, reply); err != nil {
		return c.explain(ctx, m, "", err)
	}
	return nil
}

// open begins a call whose answer is a stream of messages. Cancelling ctx ends it.
func (c *Client) open(ctx context.Context, m method, req request) (grpc.ClientStream, error) {
	c.counter.calls[m].Add(1)
	c.awake(ctx)
	stream, err := c.conn.NewStream(ctx, &serverStreams, methodPaths[m])
	if err == nil {
		if err = stream.SendMsg(req); errors.Is(err, io.EOF) {
			err = nil // the stream has ended: why comes with the first receive
		}
	}
	if err == nil {
		err = stream.CloseSend()
	}
	return stream, err
}

// explain wraps an error of a call with its name, its subject if any, and what can be done about
// it.
func (c *Client) explain(ctx context.Context, m method, id string, err error) error {
	subject := m.String()
	if id != "" {
		subject += " of " + id
	}
	err = shortened(err)
	st := status.Convert(err)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("cri: %s on %s: %w (%w)", subject, c.endpoint, context.Cause(ctx), err)
	case st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "received message larger than max"):
		return fmt.Errorf("cri: %s on %s: %w of %d bytes: raise Config.MaxMessageSize, or upgrade to a runtime that has the streaming lists: %w",
			subject, c.endpoint, ErrMessageSize, c.config.MaxMessageSize, err)
	case st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "trying to send message larger than max"):
		return fmt.Errorf("cri: %s on %s: the answer is larger than the runtime allows itself to send: raise the runtime's own grpc send limit, or upgrade to one that has the streaming lists: %w",
			subject, c.endpoint, err)
	}
	return fmt.Errorf("cri: %s on %s: %w", subject, c.endpoint, err)
}
