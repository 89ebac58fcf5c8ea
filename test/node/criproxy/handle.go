// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// reconnectAtOnce keeps the proxy's own backoff from hiding a runtime that is
// back: what the client sees must be the runtime's doing.
var reconnectAtOnce = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.2, MaxDelay: 50 * time.Millisecond},
	MinConnectTimeout: time.Second,
}

// errCut ends a call whose connection is being closed.
var errCut = status.Error(codes.Unavailable, "criproxy: cut")

// A call is one call on its way through.
type call struct {
	proxy  *Proxy
	method string
	conn   *conn
	ctx    context.Context
}

// handle forwards one call. Two pumps read, two senders write; the call ends
// with the replies.
func (p *Proxy) handle(_ any, down grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(down)
	if !ok {
		return status.Error(codes.Internal, "criproxy: a call without a method")
	}
	p.began(method)
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	c := &call{proxy: p, method: method, conn: p.conns.of(ctx), ctx: ctx}
	if err := c.onCall(); err != nil {
		return err
	}
	if headers, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, headers)
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	up, err := target.NewStream(ctx, desc, method, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return err
	}

	requests, replies := newPipe(), newPipe()
	// The pumps end with the streams, which end when this handler returns.
	p.work.Go(func() { c.pump(down.RecvMsg, requests, c.forward) })
	p.work.Go(func() {
		if err := requests.drain(ctx, func(data []byte) error { return up.SendMsg(&frame{data}) }); err == nil {
			_ = up.CloseSend()
		}
	})
	p.work.Go(func() {
		c.pump(func(m any) error {
			err := up.RecvMsg(m)
			if err == nil {
				c.header(up, down)
			}
			return err
		}, replies, c.put)
	})
	err = replies.drain(ctx, func(data []byte) error { return down.SendMsg(&frame{data}) })
	if err == nil {
		down.SetTrailer(up.Trailer())
	}
	return err
}

// header forwards the headers with the first reply; to ask earlier would block.
func (c *call) header(up grpc.ClientStream, down grpc.ServerStream) {
	if headers, err := up.Header(); err == nil && len(headers) > 0 {
		_ = down.SetHeader(headers)
	}
}

// onCall applies the faults that act before the runtime hears of the call.
func (c *call) onCall() error {
	for _, injected := range c.proxy.matching(c.method, OnCall, nil) {
		switch do := injected.fault.Do.(type) {
		case Delay:
			timer := time.NewTimer(do.For + jitter(do.Jitter))
			select {
			case <-timer.C:
			case <-c.ctx.Done():
				timer.Stop()
				return c.ctx.Err()
			}
		case Stall:
			select {
			case <-injected.gone:
			case <-c.ctx.Done():
				return c.ctx.Err()
			}
		case Fail:
			return status.Error(do.Code, do.Message)
		case Cut:
			c.cut()
			return errCut
		}
	}
	return nil
}

// pump reads messages until the stream ends, or hand fails, and hands each on.
func (c *call) pump(receive func(any) error, out *pipe, hand func([]byte, *pipe) error) {
	for {
		if err := out.waitRoom(c.ctx); err != nil {
			out.end(err)
			return
		}
		var message frame
		if err := receive(&message); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			out.end(err)
			return
		}
		if err := hand(message.data, out); err != nil {
			out.end(err)
			return
		}
	}
}

// forward puts a message to the runtime into the pipe.
func (c *call) forward(data []byte, out *pipe) error {
	out.put(&item{data: data})
	return nil
}

// put sends one message from the runtime through the faults into the pipe.
func (c *call) put(data []byte, out *pipe) error {
	items := []*item{{data: data}}
	var window *Reorder
	for _, injected := range c.proxy.matching(c.method, OnReply, data) {
		switch do := injected.fault.Do.(type) {
		case Drop:
			out.dropped()
			return nil
		case Duplicate:
			for range do.Copies {
				twin := *items[0]
				items = append(items, &twin)
			}
		case Delay:
			for _, i := range items {
				i.due = time.Now().Add(do.For + jitter(do.Jitter))
				if do.Jitter == 0 {
					out.keepOrder(i)
				}
			}
		case Reorder:
			window = &do
		case Truncate:
			for _, i := range items {
				i.data = i.data[:max(0, len(i.data)-1)]
			}
		case Stall:
			for _, i := range items {
				i.gate = injected.gone
			}
		case Fail:
			return status.Error(do.Code, do.Message)
		case Cut:
			if !do.MidMessage {
				c.cut()
				return errCut
			}
			half := len(items[0].data) / 2
			items[0].cut = func() {
				if c.conn != nil {
					c.conn.cutAfter(frameOverhead + half)
				}
			}
		}
	}
	for _, i := range items {
		switch {
		case window != nil:
			out.collect(i, window.Window, window.Within)
		default:
			if i.due.IsZero() && i.gate == nil {
				out.keepOrder(i)
			}
			out.put(i)
		}
	}
	return nil
}

// frameOverhead is what HTTP/2 and grpc write before a message's first byte.
const frameOverhead = 9 + 5

func (c *call) cut() {
	if c.conn != nil {
		c.conn.Close()
	}
}

func jitter(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return rand.N(most)
}
