// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync"

	"google.golang.org/grpc/peer"
)

// conns are the client connections and the listener. mu guards all its fields.
type conns struct {
	path string

	mu       sync.Mutex
	listener net.Listener
	open     map[int]*conn
	next     int
	frozen   chan struct{} // closed at thaw; nil: not frozen
}

// A conn is a client's connection that can be cut and frozen. mu guards budget.
type conn struct {
	net.Conn
	id     int
	owner  *conns
	closed chan struct{}
	once   sync.Once

	mu     sync.Mutex
	budget int // bytes that may still be written before the cut; -1: no cut
}

// connAddr tells conns apart: every unix client has the same, empty address.
type connAddr int

func (connAddr) Network() string  { return "unix" }
func (a connAddr) String() string { return strconv.Itoa(int(a)) }

// listen binds the socket. A leftover of an earlier process is replaced.
func (c *conns) listen() (net.Listener, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := os.Remove(c.path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.Listen("unix", c.path)
	if err != nil {
		return nil, err
	}
	c.listener = listener
	return &acceptor{listener, c}, nil
}

// shut closes the listener and every connection.
func (c *conns) shut() {
	c.mu.Lock()
	listener := c.listener
	c.listener = nil
	c.mu.Unlock()
	if listener != nil {
		listener.Close()
	}
	c.cutAll()
}

func (c *conns) cutAll() {
	c.mu.Lock()
	open := make([]*conn, 0, len(c.open))
	for _, one := range c.open {
		open = append(open, one)
	}
	c.mu.Unlock()
	for _, one := range open {
		one.Close()
	}
}

func (c *conns) freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen == nil {
		c.frozen = make(chan struct{})
	}
}

func (c *conns) thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen != nil {
		close(c.frozen)
		c.frozen = nil
	}
}

// of returns the connection that a call came on.
func (c *conns) of(ctx context.Context) *conn {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	addr, ok := from.Addr.(connAddr)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[int(addr)]
}

type acceptor struct {
	net.Listener
	conns *conns
}

// Accept implements net.Listener.
func (a *acceptor) Accept() (net.Conn, error) {
	raw, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := a.conns
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	one := &conn{Conn: raw, id: c.next, owner: c, closed: make(chan struct{}), budget: -1}
	c.open[one.id] = one
	return one, nil
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return connAddr(c.id) }

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.owner.mu.Lock()
	delete(c.owner.open, c.id)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// Read implements net.Conn. What was read when the freeze began is delivered
// after the thaw.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil {
		c.waitThaw()
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.waitThaw()
	c.mu.Lock()
	budget := c.budget
	if budget >= 0 {
		c.budget = max(0, budget-len(b))
	}
	c.mu.Unlock()
	if budget < 0 || len(b) <= budget {
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:budget])
	c.Close()
	return n, net.ErrClosed
}

func (c *conn) waitThaw() {
	c.owner.mu.Lock()
	frozen := c.owner.frozen
	c.owner.mu.Unlock()
	if frozen == nil {
		return
	}
	select {
	case <-frozen:
	case <-c.closed:
	}
}

// cutAfter lets n more bytes be written and then closes.
func (c *conn) cutAfter(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget = n
}
