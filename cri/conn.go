// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// The life of a connection: whether it may be made, how its server greets, whether it hangs, and
// its end.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A connection is closed, so that the next call makes another, when a call has met its deadline and
// the socket has been replaced by another server's; or when hungCalls misses, over hungTime or
// longer, were consecutive, and nothing at all arrived from the runtime meanwhile, not even an
// event. A hung server ends nothing by itself: its client would wait for ever while the successor
// listens beside it.
//
// A miss is a call that has met its deadline after hungWait or longer: a runtime that takes longer
// than a caller's impatience answers all the same. Calls of one read end together, and tell no more
// than one of them: calls that end within hungWait of a miss belong to it.
const (
	hungCalls = 3
	hungTime  = 5 * time.Second
	hungWait  = time.Second
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
	// row counts the connections made at made and before, each within apart of the one before, since
	// a call has taken an answer, with which received became taken, or the client itself has given one
	// up. refused is set if the last attempt was refused for them.
	row     int
	made    time.Time
	taken   uint64
	refused bool
	// timeouts counts the misses since the last message from the runtime; firstTimeout is the time of
	// the first, lastTimeout that of the last, receivedBefore the value of received at the first.
	timeouts                  int
	firstTimeout, lastTimeout time.Time
	receivedBefore            uint64
}

// connsInRow is how many connections may be made in a row, each within apart of the one before,
// while no call takes an answer. After a connection that was established grpc pauses for nothing,
// and sends a call that was not on its way yet over the next one: a server that greets and hangs up
// would be connected to for as long as the call may take, as fast as the processor can. From then
// on every other attempt is refused, which fails the calls that wait, and lets grpc pause.
//
// It is a rate that is bounded, and no judgement of the server. A connection over which nothing was
// answered need not be one that was hung up on: events are the only call of a quiet node, and
// nothing answers them before the first event. And a runtime that starts says Unavailable, as often
// as it is asked. Such connections are apart, or few.
const (
	connsInRow = 16
	apart      = time.Second
)

// connecting is asked before each connection is made. An error refuses it.
func (m *connMonitor) connecting() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if received := m.received.Load(); received != m.taken || time.Since(m.made) >= apart {
		m.taken = received
		m.row = 0
	}
	m.refused = m.row >= connsInRow && !m.refused
	if m.refused {
		return fmt.Errorf("%d connections ended before the runtime answered: does it end as it starts (see its log), or does another server listen there", m.row)
	}
	return nil
}

// connected notes a new connection, made at a socket.
func (m *connMonitor) connected(conn net.Conn, socket os.FileInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.row++
	m.made = time.Now()
	m.conn = conn
	m.socket = socket
	m.timeouts = 0
}

// deadlineSlack is how early, by the client's clock, an answer DeadlineExceeded still counts as the
// call's deadline: the server knows the deadline too, and its clock may be ahead.
const deadlineSlack = 20 * time.Millisecond

// observe takes the result of a call begun at a time: an answer, or a deadline met in silence.
func (m *connMonitor) observe(ctx context.Context, begun time.Time, err error) {
	deadline, bound := ctx.Deadline()
	switch code := status.Code(err); {
	case err == nil || errors.Is(err, io.EOF):
		m.received.Add(1)
	case bound && code == codes.DeadlineExceeded && time.Until(deadline) <= deadlineSlack:
		now := time.Now()
		m.timedOut(now, now.Sub(begun))
	case ctx.Err() == nil && code != codes.Unavailable:
		m.received.Add(1) // an error of the runtime's own
	}
}

// timedOut notes a call that met its deadline after it had waited for a time, and closes a hung
// connection. It waits for no more than [lookIn].
func (m *connMonitor) timedOut(now time.Time, waited time.Duration) {
	conn, socket, hung := m.late(now, waited)
	if conn == nil || !hung && !m.replaced(socket) {
		return
	}
	m.abandon(conn)
}

// late counts a call that met its deadline after it had waited for a time, if that is a miss of its
// own. It returns the connection, nil if there is none, its socket file, and whether the connection
// hangs.
func (m *connMonitor) late(now time.Time, waited time.Duration) (conn net.Conn, socket os.FileInfo, hung bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if waited < hungWait {
		return m.conn, m.socket, false
	}
	if said := m.received.Load(); m.timeouts == 0 || said != m.receivedBefore {
		m.timeouts = 0
		m.firstTimeout = now
		m.receivedBefore = said
	}
	if m.timeouts == 0 || now.Sub(m.lastTimeout) >= hungWait {
		m.timeouts++
		m.lastTimeout = now
	}
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
	m.row = 0
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

// watchedConn counts its end before anybody else hears of it, for the state of a grpc connection
// follows some time after the calls on it have failed; and it hears how the server greets. A server
// that does not speak gRPC hangs up, and which of the client's calls notices that first is chance:
// until the server has spoken, a failed write is left for the read to tell.
type watchedConn struct {
	net.Conn
	once   sync.Once
	broken *atomic.Uint64

	// heard is how many bytes of the greeting have come. Read alone uses it, which grpc calls from one
	// goroutine.
	heard int
	// spoken is set when the server has spoken gRPC.
	spoken atomic.Bool
}

// Read implements net.Conn.
func (c *watchedConn) Read(b []byte) (n int, err error) {
	n, err = c.Conn.Read(b)
	if foreign := c.hear(b[:n]); foreign != nil {
		n = 0
		err = foreign
	}
	if err != nil {
		c.once.Do(func() { c.broken.Add(1) })
	}
	return n, err
}

// A server begins with a frame of the type SETTINGS, and short (RFC 9113, sections 3.4 and 4.1): of
// its head the first byte, of the length, is zero, and the fourth is the type.
const (
	frameType    = 3
	typeSettings = 0x4
)

// notGRPC is in the error of a connection to a server that does not speak gRPC.
const notGRPC = "what the server says is not gRPC"

// hear takes what the server says next. An error means that it is no gRPC.
func (c *watchedConn) hear(said []byte) error {
	for _, b := range said[:min(len(said), frameType+1-c.heard)] {
		if c.heard == 0 && b != 0 || c.heard == frameType && b != typeSettings {
			line, _, _ := bytes.Cut(said, []byte("\r\n"))
			return fmt.Errorf("%s: %.40q", notGRPC, line)
		}
		c.heard++
		c.spoken.Store(c.heard > frameType)
	}
	return nil
}

// Write implements net.Conn.
func (c *watchedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil && !c.spoken.Load() {
		return len(b), nil
	}
	return n, err
}
