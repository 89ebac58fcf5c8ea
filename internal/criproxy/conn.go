// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import "net"

// A listener accepts connections that their proxy knows while they are open.
type listener struct {
	net.Listener
	proxy *Proxy
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{raw, l.proxy}
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.proxy.conns[c] = true
	return c, nil
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
