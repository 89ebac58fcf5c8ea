// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"errors"
	"net"
)

// A listener accepts connections that their proxy knows while they are open.
type listener struct {
	net.Listener
	proxy  *Proxy
	closed bool // owned by the proxy's mutex
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{raw, l.proxy}
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.closed {
		return nil, errors.Join(net.ErrClosed, raw.Close())
	}
	l.proxy.conns[c] = true
	return c, nil
}

// Close implements net.Listener, and closes the connections as well: a server that is stopped waits
// for the first bytes of each new client, two minutes for one that says nothing.
func (l *listener) Close() error {
	l.proxy.mu.Lock()
	l.closed = true
	l.proxy.mu.Unlock()
	err := l.Listener.Close()
	l.proxy.CutAll()
	return err
}

// A conn is a connection of a client. It is its own remote address: so a call finds it.
type conn struct {
	net.Conn
	proxy *Proxy
}

// Network implements net.Addr.
func (*conn) Network() string { return "unix" }

// String implements net.Addr.
func (*conn) String() string { return "client" }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c }

// Close implements net.Conn.
func (c *conn) Close() error {
	c.proxy.mu.Lock()
	delete(c.proxy.conns, c)
	c.proxy.mu.Unlock()
	return c.Conn.Close()
}
