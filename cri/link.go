// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A connection is given up, so that the next call makes another one, when a call has met its
// deadline and the socket has been replaced by another server's; or when hungCalls calls in a row,
// over hungTime or longer, have met theirs while the runtime said nothing at all, not even an
// event. A server that hangs ends nothing by itself: a client of it would wait for ever while its
// successor listens beside it.
const (
	hungCalls = 3
	hungTime  = 5 * time.Second
)

// link watches over the present connection.
type link struct {
	path string // of the socket; empty with a dialer of the user's
	// heard counts what the runtime has said.
	heard atomic.Uint64
	// abandoned counts the connections that were given up.
	abandoned atomic.Uint64

	mu     sync.Mutex // guards what follows
	conn   net.Conn
	socket os.FileInfo // of the socket that conn was made at, nil if not known
	// silent counts the calls that met their deadline since the runtime said its last, when heard
	// was said; first is when the first of them did.
	silent int
	first  time.Time
	said   uint64
}

// look returns what identifies the socket file, nil if there is none.
func (l *link) look() os.FileInfo {
	if l.path == "" {
		return nil
	}
	info, err := os.Stat(l.path)
	if err != nil {
		return nil
	}
	return info
}

// made notes a new connection, made at a socket.
func (l *link) made(conn net.Conn, socket os.FileInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.socket, l.silent = conn, socket, 0
}

// deadlineSlack is how long before a call's deadline an answer that it was exceeded may come: a
// server knows the deadline, and its clock may be first.
const deadlineSlack = 20 * time.Millisecond

// note takes the result of a call: an answer, or a deadline met in silence.
func (l *link) note(ctx context.Context, err error) {
	deadline, bound := ctx.Deadline()
	switch code := status.Code(err); {
	case err == nil || errors.Is(err, io.EOF):
		l.heard.Add(1)
	case bound && code == codes.DeadlineExceeded && time.Until(deadline) <= deadlineSlack:
		l.expired(time.Now())
	case ctx.Err() == nil && code != codes.Unavailable:
		l.heard.Add(1) // an error of the runtime's own
	}
}

// expired notes that a call has met its deadline, and gives the connection up if it must be.
func (l *link) expired(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if said := l.heard.Load(); l.silent == 0 || said != l.said {
		l.silent, l.first, l.said = 0, now, said
	}
	l.silent++
	hung := l.silent >= hungCalls && now.Sub(l.first) >= hungTime
	if l.conn == nil || !hung && !l.replaced() {
		return
	}
	_ = l.conn.Close() // grpc sees the end of the connection, and makes another one
	l.conn, l.silent = nil, 0
	l.abandoned.Add(1)
}

// replaced reports whether another socket file is now where the connection was made. The old
// server's keeps its inode for as long as that listens, so that a new one is never taken for it.
// The caller holds mu.
func (l *link) replaced() bool {
	if l.socket == nil {
		return false
	}
	now := l.look()
	return now != nil && !os.SameFile(l.socket, now)
}
