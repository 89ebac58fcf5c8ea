// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// One call to the runtime: its method, what its outcome teaches of the runtime and of the
// connection, and the error that a caller sees.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
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

// capabilities is what a client has learned of a runtime. It lives as long as one connection,
// because a runtime that comes back may have been upgraded.
type capabilities struct {
	// has says whether the runtime has a call. It is learned of the list calls.
	has [methods]capability
	// fillsStatuses says whether PodSandboxStatus brings the statuses of the containers along.
	fillsStatuses capability
}

// capability is a question about the runtime that is open until it has answered: 0 open, 1 yes, 2
// no.
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

// method is a call that this package makes.
type method uint8

// reconnectWait is how long a call waits for a connection that is made anew because of it.
const reconnectWait = 100 * time.Millisecond

// resetBackoff ends grpc's pause between two attempts to connect, if there is one, and gives the
// next attempt a moment. Our callers pace themselves: a call that failed because of an attempt made
// before the runtime came back might not be repeated for a minute.
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
	err := c.conn.Invoke(ctx, methodPaths[m], req, reply)
	c.monitor.observe(ctx, err)
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

// explain wraps an error of a call with its name, its subject if any, and what can be done about
// it.
func (c *Client) explain(ctx context.Context, m method, id string, err error) error {
	subject := m.String()
	if id != "" {
		subject += " of " + id
	}
	err = truncateError(err)
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

// parallel calls do for 0 to n-1, as many at once as status calls may be in flight, and returns
// when all have returned. The first failure cancels the rest and is what it returns.
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
	for range min(n, c.config.MaxStatusCalls) - 1 {
		group.Go(work)
	}
	work()
	group.Wait()
	return first
}

// A connection is given up, so that the next call makes another one, when a call has met its
// deadline and the socket has been replaced by another server's; or when hungCalls calls in a row,
// over hungTime or longer, have met theirs while the runtime said nothing at all, not even an
// event. A server that hangs ends nothing by itself: a client of it would wait for ever while its
// successor listens beside it.
const (
	hungCalls = 3
	hungTime  = 5 * time.Second
)

// connMonitor watches over the present connection.
type connMonitor struct {
	path string // of the socket; empty with a dialer of the user's
	// received counts what the runtime has said.
	received atomic.Uint64
	// abandoned counts the connections that were given up.
	abandoned atomic.Uint64

	mu     sync.Mutex // guards what follows
	conn   net.Conn
	socket os.FileInfo // of the socket that conn was made at, nil if not known
	// timeouts counts the calls that met their deadline since the runtime said its last, when heard
	// was said; first is when the first of them did.
	timeouts       int
	firstTimeout   time.Time
	receivedBefore uint64
}

// statSocket returns what identifies the socket file, nil if there is none.
func (l *connMonitor) statSocket() os.FileInfo {
	if l.path == "" {
		return nil
	}
	info, err := os.Stat(l.path)
	if err != nil {
		return nil
	}
	return info
}

// connected notes a new connection, made at a socket.
func (l *connMonitor) connected(conn net.Conn, socket os.FileInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.socket, l.timeouts = conn, socket, 0
}

// deadlineSlack is how long before a call's deadline an answer that it was exceeded may come: a
// server knows the deadline, and its clock may be first.
const deadlineSlack = 20 * time.Millisecond

// observe takes the result of a call: an answer, or a deadline met in silence.
func (l *connMonitor) observe(ctx context.Context, err error) {
	deadline, bound := ctx.Deadline()
	switch code := status.Code(err); {
	case err == nil || errors.Is(err, io.EOF):
		l.received.Add(1)
	case bound && code == codes.DeadlineExceeded && time.Until(deadline) <= deadlineSlack:
		l.timedOut(time.Now())
	case ctx.Err() == nil && code != codes.Unavailable:
		l.received.Add(1) // an error of the runtime's own
	}
}

// timedOut notes that a call has met its deadline, and gives the connection up if it must be.
func (l *connMonitor) timedOut(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if said := l.received.Load(); l.timeouts == 0 || said != l.receivedBefore {
		l.timeouts, l.firstTimeout, l.receivedBefore = 0, now, said
	}
	l.timeouts++
	hung := l.timeouts >= hungCalls && now.Sub(l.firstTimeout) >= hungTime
	if l.conn == nil || !hung && !l.replaced() {
		return
	}
	_ = l.conn.Close() // grpc sees the end of the connection, and makes another one
	l.conn, l.timeouts = nil, 0
	l.abandoned.Add(1)
}

// replaced reports whether another socket file is now where the connection was made. The old
// server's keeps its inode for as long as that listens, so that a new one is never taken for it.
// The caller holds mu.
func (l *connMonitor) replaced() bool {
	if l.socket == nil {
		return false
	}
	now := l.statSocket()
	return now != nil && !os.SameFile(l.socket, now)
}

var (
	// ErrMessageSize is part of an error about an answer that exceeds Config.MaxMessageSize. The
	// read that met it has no result.
	ErrMessageSize = errors.New("the answer is larger than the message limit")
	// ErrTooMany is part of an error about a list that does not end: more than 1,048,576 sandboxes
	// or containers.
	ErrTooMany = errors.New("the runtime lists more than a node can have")
	// ErrMalformed is part of an error about a message that is not valid protobuf, or a status that
	// lacks what every runtime fills in (metadata, the time of creation). The read that met it has
	// no result, because what is missing from it would be taken for removed, or be missing for
	// good.
	ErrMalformed = errors.New("malformed message")
)

// maxText bounds, in bytes, what a runtime may say in an error, an ID or a name that ends up in
// logs, reports and Events.
const maxText = 1024

// truncate returns text in valid UTF-8, cut at [maxText] with a note of how long it was.
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

// truncateError returns an error of grpc's with its text, which is the peer's, bounded, and without
// details if they are long.
func truncateError(err error) error {
	st, ok := status.FromError(err)
	if !ok || proto.Size(st.Proto()) <= maxText && utf8.ValidString(st.Message()) {
		return err
	}
	return status.Error(st.Code(), truncate(st.Message()))
}
