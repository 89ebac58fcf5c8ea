// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package rawgrpc forwards messages of gRPC without decoding any, and reaches unix sockets by their
// paths.
//
// # Concurrency
//
// The codec has no state. A Frame has one owner. A pace has a mutex.
package rawgrpc

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// MaxMessage is a receive limit in bytes above the messages of any runtime, so that the limits of
// clients are their own.
const MaxMessage = 256 << 20

// Frame holds the bytes of a message.
type Frame struct{ Data []byte }

// Codec hands messages through as *[Frame]. It has no name, since the name goes on the wire, and
// CRI-O closes connections with a name.
type Codec struct{}

// Name implements encoding.CodecV2.
func (Codec) Name() string { return "" }

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*Frame).Data)}, nil
}

// Unmarshal implements encoding.CodecV2. It copies, because the caller frees data, and a frame may
// wait.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*Frame).Data = data.Materialize()
	return nil
}

// SocketTarget is the target of a client with [ToSocket].
const SocketTarget = "passthrough:///socket"

// ToSocket lets a client of [SocketTarget] connect to the unix socket with a path. gRPC's own
// targets of the scheme unix are URLs: there, a question mark or a percent sign in a path names
// another one.
//
// gRPC pauses after an attempt that failed, and not after a connection that was lost. A server that
// greets and hangs up would be connected to as fast as the processor can: connections begin apart.
func ToSocket(path string) grpc.DialOption {
	var p pace
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		if err := p.wait(ctx); err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, "unix", path)
	})
}

// apart is the time from the begin of one connection to the begin of the next.
const apart = 20 * time.Millisecond

// pace holds attempts apart. Its mutex guards next, the time from which the next may begin.
type pace struct {
	mu   sync.Mutex
	next time.Time
}

// wait returns when an attempt may begin, or with the error of ctx.
func (p *pace) wait(ctx context.Context) error {
	p.mu.Lock()
	now := time.Now()
	begin := p.next
	if begin.Before(now) {
		begin = now
	}
	p.next = begin.Add(apart)
	p.mu.Unlock()
	t := time.NewTimer(begin.Sub(now))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
