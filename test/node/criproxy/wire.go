// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// A frame is the bytes of a message. The proxy never decodes it: any agreement of a client and a
// runtime passes, future methods and fields too.
type frame struct{ data []byte }

// rawCodec hands messages through as frames. It has no name, since the name goes on the wire, and
// CRI-O closes connections with a name.
type rawCodec struct{}

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return "" }

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("criproxy: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(f.data)}, nil
}

// Unmarshal implements encoding.CodecV2. It copies, because data is freed on return and a fault may
// keep the message.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("criproxy: cannot receive into a %T", v)
	}
	f.data = data.Materialize()
	return nil
}

type listener struct {
	net.Listener
	proxy *Proxy
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, proxy: l.proxy}
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.proxy.listener == nil { // went down meanwhile
		raw.Close()
	}
	l.proxy.conns[c] = true
	return c, nil
}

// A conn is a client's connection with cuts and freezes. It is its own remote address, by which a
// call finds it.
type conn struct {
	net.Conn
	proxy *Proxy
	half  atomic.Bool // the next write is the last, and ends in its middle
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.proxy.mu.Lock()
	delete(c.proxy.conns, c)
	c.proxy.mu.Unlock()
	return c.Conn.Close()
}

// Network implements net.Addr.
func (c *conn) Network() string { return "unix" }

// String implements net.Addr.
func (c *conn) String() string { return "client" }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c }

func (c *conn) waitThaw() {
	c.proxy.mu.Lock()
	frozen := c.proxy.frozen
	c.proxy.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

// Read implements net.Conn. Bytes read at the begin of a freeze are delivered after the thaw.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.waitThaw()
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.waitThaw()
	if !c.half.Load() {
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:len(b)/2])
	c.Close()
	return n, net.ErrClosed
}
