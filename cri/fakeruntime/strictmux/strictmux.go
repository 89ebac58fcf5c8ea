// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package strictmux makes a gRPC server in a test as choosy as CRI-O's about its clients.
//
// CRI-O serves gRPC and HTTP/1 on a single socket and tells the two apart by the header
// content-type of a connection's first call: "application/grpc", exactly. A client that writes
// "application/grpc+proto", as gRPC allows, finds its connection closed: every call ends with
// Unavailable, "error reading from server: EOF". A server of grpc-go alone takes both and so hides
// such a client.
package strictmux

import (
	"bytes"
	"io"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// ContentType is the required content type of a connection's first call.
const ContentType = "application/grpc"

// Listener returns a listener with connections from l, which end with io.EOF for readers unless
// their first call carries [ContentType]. It starts nothing: the first Read examines a connection.
func Listener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// conn is a connection examined before the server behind it sees it.
type conn struct {
	net.Conn
	once sync.Once
	// seen holds the examined bytes of the connection, for the server to read again. It belongs to
	// the reader.
	seen    bytes.Buffer
	refused bool
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	c.once.Do(func() {
		if c.refused = !admits(io.TeeReader(c.Conn, &c.seen)); c.refused {
			_ = c.Conn.Close()
		}
	})
	switch {
	case c.refused:
		return 0, io.EOF
	case c.seen.Len() > 0:
		return c.seen.Read(b)
	}
	return c.Conn.Read(b)
}

// admits reads an HTTP/2 connection up to the headers of its first call and reports whether CRI-O
// would accept them.
func admits(r io.Reader) bool {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(r, preface); err != nil || string(preface) != http2.ClientPreface {
		return false
	}
	framer := http2.NewFramer(nil, r)
	framer.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return false
		}
		headers, ok := frame.(*http2.MetaHeadersFrame)
		if !ok {
			continue
		}
		for _, field := range headers.Fields {
			if field.Name == "content-type" {
				return field.Value == ContentType
			}
		}
		return false
	}
}
