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
	"net"
	"os"
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
	err := c.conn.Invoke(ctx, methodPaths[m], req, reply)
	c.monitor.observe(ctx, err)
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

// A connection is closed, so that the next call makes another, when a call has met its deadline and
// the socket has been replaced by another server's; or when hungCalls consecutive calls, over
// hungTime or longer, have met theirs while nothing at all arrived from the runtime, not even an
// event. A hung server ends nothing by itself: its client would wait for ever while the successor
// listens beside it.
const (
	hungCalls = 3
	hungTime  = 5 * time.Second
)

// connMonitor watches over the present connection.
type connMonitor struct {
	kernel *kernel // looks at path
	path   string  // of the socket; empty with a dialer of the user's
	// received counts the messages and answers from the runtime.
	received atomic.Uint64
	// abandoned counts the connections closed because of a hung runtime.
	abandoned atomic.Uint64

	mu     sync.Mutex // guards the fields below
	conn   net.Conn
	socket os.FileInfo // the socket file at connect time, nil if not known
	// unanswered counts the connections made, one after another, since received was answered, but for
	// those that the client itself gave up, and since one has lasted for lasting. refused is set if
	// the last attempt was refused for them.
	unanswered int
	answered   uint64
	refused    bool
	// timeouts counts the calls that met their deadline since the last message from the runtime;
	// firstTimeout is the time of the first, receivedBefore the value of received then.
	timeouts       int
	firstTimeout   time.Time
	receivedBefore uint64
}

// unansweredConns is how many connections in a row may end before the runtime has answered
// anything. After a connection that was established grpc pauses for nothing, and sends a call that
// was not on its way yet over the next one: a server that greets and hangs up would be connected to
// for as long as the call may take, as fast as the processor can. From then on every other attempt
// is refused, which fails the calls that wait, and lets grpc pause.
const unansweredConns = 3

// lasting is how long a connection lasts whose server does not hang up as it greets. There may have
// been nothing to answer: on a quiet node, events are the only call; and a runtime that starts says
// Unavailable, which grpc says itself of a connection that has ended.
const lasting = time.Second

// connecting is asked before each connection is made. An error refuses it.
func (m *connMonitor) connecting() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if received := m.received.Load(); received != m.answered {
		m.answered = received
		m.unanswered = 0
	}
	m.refused = m.unanswered >= unansweredConns && !m.refused
	if m.refused {
		return fmt.Errorf("%d connections ended before the runtime answered: does it end as it starts (see its log), or does another server listen there", m.unanswered)
	}
	return nil
}

// ended notes the end of a connection that has lasted for a time.
func (m *connMonitor) ended(lasted time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if lasted >= lasting {
		m.unanswered = 0
	}
}

// connected notes a new connection, made at a socket.
func (m *connMonitor) connected(conn net.Conn, socket os.FileInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unanswered++
	m.conn = conn
	m.socket = socket
	m.timeouts = 0
}

// deadlineSlack is how early, by the client's clock, an answer DeadlineExceeded still counts as the
// call's deadline: the server knows the deadline too, and its clock may be ahead.
const deadlineSlack = 20 * time.Millisecond

// observe takes the result of a call: an answer, or a deadline met in silence.
func (m *connMonitor) observe(ctx context.Context, err error) {
	deadline, bound := ctx.Deadline()
	switch code := status.Code(err); {
	case err == nil || errors.Is(err, io.EOF):
		m.received.Add(1)
	case bound && code == codes.DeadlineExceeded && time.Until(deadline) <= deadlineSlack:
		m.timedOut(time.Now())
	case ctx.Err() == nil && code != codes.Unavailable:
		m.received.Add(1) // an error of the runtime's own
	}
}

// timedOut notes a call that met its deadline, and closes a hung connection. It waits for no more
// than [lookIn].
func (m *connMonitor) timedOut(now time.Time) {
	conn, socket, hung := m.late(now)
	if conn == nil || !hung && !m.replaced(socket) {
		return
	}
	m.abandon(conn)
}

// late counts a call that met its deadline. It returns the connection, nil if there is none, its
// socket file, and whether the connection hangs.
func (m *connMonitor) late(now time.Time) (conn net.Conn, socket os.FileInfo, hung bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if said := m.received.Load(); m.timeouts == 0 || said != m.receivedBefore {
		m.timeouts = 0
		m.firstTimeout = now
		m.receivedBefore = said
	}
	m.timeouts++
	hung = m.timeouts >= hungCalls && now.Sub(m.firstTimeout) >= hungTime
	return m.conn, m.socket, hung
}

// abandon closes a connection, unless it is not the present one any more.
func (m *connMonitor) abandon(conn net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != conn {
		return
	}
	_ = m.conn.Close() // grpc notices, and connects again
	m.conn = nil
	m.unanswered = 0
	m.timeouts = 0
	m.abandoned.Add(1)
}

// replaced reports whether another socket file has taken the path of the connection's. The old
// socket's inode stays in use while the old server listens, so a new socket never has the same
// inode. The caller does not hold mu: a look at the path may take [lookIn].
func (m *connMonitor) replaced(socket os.FileInfo) bool {
	if socket == nil {
		return false
	}
	now := m.kernel.look(m.path)
	return now != nil && !os.SameFile(socket, now)
}

var (
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
