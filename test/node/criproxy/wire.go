// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"net"

	"google.golang.org/grpc/mem"
)

// A frame is the bytes of a message.
type frame struct{ data []byte }

// rawCodec hands messages through as frames. It has no name, since the name goes on the wire, and
// CRI-O closes connections with a name.
type rawCodec struct{}

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return "" }

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*frame).data)}, nil
}

// Unmarshal implements encoding.CodecV2. It copies, because data is freed on return and a fault may
// keep the message.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*frame).data = data.Materialize()
	return nil
}

type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	return conn{raw}, err
}

// A conn is a connection of a client. It is its own remote address: so a call finds it.
type conn struct{ net.Conn }

// Network implements net.Addr.
func (conn) Network() string { return "unix" }

// String implements net.Addr.
func (conn) String() string { return "client" }

// RemoteAddr implements net.Conn.
func (c conn) RemoteAddr() net.Addr { return c }
