// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// One call to the runtime: its method, the lessons of its outcome for capabilities and connection,
// and the error for the caller.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

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

// service begins the paths of the methods. The paths are spelled here because the CRI's module
// names the streaming lists only from v0.36 on, and would raise the gRPC of an agent on an older
// version.
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

// capabilities holds the learned capabilities of a runtime, for one connection: a runtime that
// comes back may have been upgraded.
type capabilities struct {
	// has says whether the runtime implements a method. Only list calls teach this.
	has [methods]capability
	// fillsStatuses says whether PodSandboxStatus brings the statuses of the containers along.
	fillsStatuses capability
}

// capability is a yes-or-no question about the runtime: 0 unknown, 1 yes, 2 no.
type capability struct{ v atomic.Int32 }

func (k *capability) learn(yes bool) {
	if yes {
		k.v.Store(1)
	} else {
		k.v.Store(2)
	}
}
func (k *capability) no() bool { return k.v.Load() == 2 }

func (k *capability) String() string { return [...]string{"unknown", "yes", "no"}[k.v.Load()] }

// method is a CRI call made by this package.
type method uint8

// reconnectWait is how long a call waits for the reconnect triggered by the call.
const reconnectWait = 100 * time.Millisecond

// resetBackoff ends grpc's pause between two attempts to connect, if any, and waits briefly for the
// next attempt. Callers pace themselves: a call that failed because of an attempt from before the
// runtime's return might not be repeated for a minute.
func (c *Client) resetBackoff(ctx context.Context) {
	if c.conn.GetState() != connectivity.TransientFailure {
		return
	}
	c.conn.ResetConnectBackoff()
	ctx, cancel := context.WithTimeout(ctx, reconnectWait)
	defer cancel()
	c.conn.WaitForStateChange(ctx, connectivity.TransientFailure)
}

// invoke makes a unary call and receives its answer into reply, a *owned or a *borrowed. The error
// is grpc's.
func (c *Client) invoke(ctx context.Context, m method, req request, reply any) error {
	c.counter.calls[m].Add(1)
	c.resetBackoff(ctx)
	begun := time.Now()
	err := c.conn.Invoke(ctx, methodPaths[m], req, reply)
	c.monitor.observe(ctx, begun, err)
	return err
}

// call is invoke with an explained error.
func (c *Client) call(ctx context.Context, m method, req request, reply any) error {
	if err := c.invoke(ctx, m, req, reply); err != nil {
		return c.explain(ctx, m, "", err)
	}
	return nil
}

// open begins a call with a stream of answers. Cancelling ctx ends the call.
func (c *Client) open(ctx context.Context, m method, req request) (grpc.ClientStream, error) {
	c.counter.calls[m].Add(1)
	c.resetBackoff(ctx)
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

// orStreaming is a further remedy for an answer that is too large, of a list that can be streamed.
func (m method) orStreaming(remedy string) string {
	if m == listPodSandbox || m == listContainers {
		return remedy
	}
	return ""
}

// explain adds the method, the subject if any, and the remedy to the error of a call.
func (c *Client) explain(ctx context.Context, m method, id string, err error) error {
	subject := m.String()
	if id != "" {
		subject += " of " + printable(id)
	}
	err = truncateError(err)
	st := status.Convert(err)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("cri: %s on %s: %w (%w)", subject, c.endpoint, context.Cause(ctx), err)
	case c.closed.Load() && st.Code() == codes.Canceled:
		return fmt.Errorf("cri: %s on %s: %w: %w", subject, c.endpoint, ErrClosed, err)
	case st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "received message larger than max"):
		return fmt.Errorf("cri: %s on %s: %w of %d bytes: raise Config.MaxMessageSize%s: %w", subject, c.endpoint,
			ErrMessageSize, c.config.MaxMessageSize, m.orStreaming(", or upgrade to a runtime that has the streaming lists"), err)
	case st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "trying to send message larger than max"):
		return fmt.Errorf("cri: %s on %s: the answer is larger than the runtime allows itself to send: raise the runtime's own grpc send limit%s: %w",
			subject, c.endpoint, m.orStreaming(", or upgrade to one that has the streaming lists"), err)
	}
	return fmt.Errorf("cri: %s on %s%s: %w", subject, c.endpoint, m.suspicion(st), err)
}

// suspicion tells which server may have failed a call like this, if not a runtime; empty for a
// failure of a runtime.
func (m method) suspicion(st *status.Status) string {
	switch {
	case st.Code() == codes.Unavailable && strings.Contains(st.Message(), notGRPC):
		return ": the server on the socket does not speak gRPC: name the socket of the CRI, which Docker's own is not"
	case st.Code() == codes.Unimplemented && (m == version || strings.HasPrefix(st.Message(), "unknown service")):
		return ": the server on the socket does not serve the CRI v1: a containerd does unless disabled_plugins of its configuration names the plugin, or the plugin has failed to load"
	}
	return ""
}

// parallel calls do for 0 to n-1, at most callsPerRead at once, and returns when all calls have
// returned. The first failure cancels the rest and is returned.
func (c *Client) parallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	if n == 1 {
		return do(ctx, 0)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		next   atomic.Int64
		failed sync.Once
		first  error
		group  sync.WaitGroup
	)
	work := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			if err := do(ctx, i); err != nil {
				failed.Do(func() { first = err; cancel() })
				return
			}
		}
	}
	for range min(n, callsPerRead) - 1 {
		group.Go(work)
	}
	work()
	group.Wait()
	return first
}

var (
	// ErrClosed is part of the error of a call after [Client.Close], or ended by it.
	ErrClosed = errors.New("the client was closed by this process: close it after Run has returned")
	// ErrMessageSize is part of an error about an answer larger than Config.MaxMessageSize. The read
	// has no result.
	ErrMessageSize = errors.New("the answer is larger than the message limit")
	// ErrTooMany is part of an error about an endless list: more than 1,048,576 sandboxes or
	// containers.
	ErrTooMany = errors.New("the runtime lists more than a node can have")
	// ErrMalformed is part of an error about invalid protobuf, or a status without the fields that
	// every runtime sets (metadata, creation time). A list with such a message has no result, because
	// missing items would be taken for removed; a stream ends with it; an item whose status is so is
	// unread.
	ErrMalformed = errors.New("malformed message")
)

// maxText bounds, in bytes, a text of the runtime (error, ID or name) in logs, reports and Events.
const maxText = 1024

// truncate returns text in valid UTF-8, cut at [maxText] with a note of its length.
func truncate(text string) string {
	if len(text) <= maxText {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	cut := maxText
	for cut > maxText-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:cut], "\uFFFD"), len(text))
}

// printable returns text with the characters escaped that a terminal obeys or a log takes for a new
// line: klog's text format prints values of several lines as they are.
func printable(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// truncateError returns a grpc error with the peer's text truncated and printable, and without long
// details.
func truncateError(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	text := printable(truncate(st.Message()))
	if text == st.Message() && proto.Size(st.Proto()) <= maxText {
		return err
	}
	return status.Error(st.Code(), text)
}
