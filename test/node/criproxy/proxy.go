// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package criproxy stands between a CRI client and a CRI runtime and disturbs their calls like
// networks, hung processes and bugs.
//
// # Model
//
// The proxy listens on a unix socket and forwards every call of every method to another, message by
// message, without decoding any. A Fault picks calls or replies, by method, place, bytes and count,
// and applies a single action. Faults come and go while calls run; several act in the order of
// Inject. Freeze stops the bytes of all connections without closing any, like a hung peer.
//
// Without a fault the proxy is transparent with an exception: grpc buffers on both sides, so the
// runtime notices an idle client some 64 KiB later.
//
// # Concurrency
//
// All methods are safe for concurrent use. Run owns the server; it returns after every call has
// ended and nothing started runs.
//
// # Errors
//
// Errors of the runtime reach the client with their status.
package criproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// maxMessage is the receive limit of both sides, in bytes: above any runtime's messages, so that
// limits are the client's own.
const maxMessage = 256 << 20

// reconnectAtOnce keeps the proxy's own backoff from hiding a returned runtime.
var reconnectAtOnce = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.2, MaxDelay: 50 * time.Millisecond},
	MinConnectTimeout: time.Second,
}

// Config says between which sockets the proxy stands.
type Config struct {
	// Listen is the path of the socket to make.
	Listen string
	// Target is the path of the runtime's socket, which need not exist yet.
	Target string
}

// A Proxy forwards calls.
type Proxy struct {
	config Config
	ready  chan struct{} // closed once the socket is bound
	server *grpc.Server
	target *grpc.ClientConn // set by Run before the first call
	work   sync.WaitGroup   // serves and forwards

	mu       sync.Mutex   // owns the fields below
	listener net.Listener // nil: down
	conns    map[*conn]bool
	faults   []*Injected
	calls    map[string]int
	frozen   chan struct{} // closed by Thaw; nil: not frozen
}

// New returns a proxy and starts nothing.
func New(c Config) (*Proxy, error) {
	if c.Listen == "" || c.Target == "" || c.Listen == c.Target {
		return nil, fmt.Errorf("criproxy: Listen %q and Target %q must be two different socket paths", c.Listen, c.Target)
	}
	p := &Proxy{
		config: c, ready: make(chan struct{}), conns: map[*conn]bool{}, calls: map[string]int{},
	}
	p.server = grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(p.handle),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.WaitForHandlers(true),
	)
	return p, nil
}

// Endpoint is the proxy's address for clients.
func (p *Proxy) Endpoint() string { return "unix://" + p.config.Listen }

// Ready is closed once the socket is bound.
func (p *Proxy) Ready() <-chan struct{} { return p.ready }

// Run serves until ctx ends. A Proxy runs once.
func (p *Proxy) Run(ctx context.Context) error {
	target, err := grpc.NewClient("unix:"+p.config.Target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(reconnectAtOnce))
	if err != nil {
		return fmt.Errorf("criproxy: dial %s: %w", p.config.Target, err)
	}
	defer target.Close()
	p.target = target
	if err := p.Up(); err != nil {
		return err
	}
	close(p.ready)
	<-ctx.Done()
	p.Clear()
	p.Thaw()
	p.Down()
	p.server.Stop()
	p.work.Wait()
	return nil
}

// Up binds the socket and serves, unless the proxy is up.
func (p *Proxy) Up() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	bound, err := net.Listen("unix", p.config.Listen)
	if err != nil {
		return fmt.Errorf("criproxy: listen on %s: %w", p.config.Listen, err)
	}
	l := &listener{bound, p}
	p.listener = l
	p.work.Go(func() { _ = p.server.Serve(l) }) // ends with Down
	return nil
}

// Down closes the socket and every connection: to the client the runtime is away until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	if p.listener != nil {
		p.listener.Close()
	}
	p.listener = nil
	open := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

// Freeze stops the bytes of every connection, without closing any, until Thaw.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

// Thaw ends a Freeze, if any.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
	}
	p.frozen = nil
}

// Calls is how many calls of each method have begun, by bare name.
func (p *Proxy) Calls() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.calls)
}

var (
	// errCut ends a call on a closed connection.
	errCut     = status.Error(codes.Unavailable, "criproxy: cut")
	errDropped = errors.New("criproxy: the reply is dropped")
)

// A call is a forwarded call.
type call struct {
	proxy  *Proxy
	method string // its bare name
	conn   *conn
	ctx    context.Context
}

// handle forwards a call, which ends with the last reply.
func (p *Proxy) handle(_ any, down grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(down)
	if !ok {
		return status.Error(codes.Internal, "criproxy: a call without a method")
	}
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	from, _ := peer.FromContext(ctx) // set by a server
	c := &call{proxy: p, method: path.Base(method), conn: from.Addr.(*conn), ctx: ctx}
	p.mu.Lock()
	p.calls[c.method]++
	p.mu.Unlock()
	if err := c.before(); err != nil {
		return err
	}
	if headers, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, headers)
	}
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	up, err := p.target.NewStream(ctx, desc, method, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return err
	}
	// Both end with the streams, which end when this handler returns.
	p.work.Go(func() {
		for {
			var request frame
			if err := down.RecvMsg(&request); err != nil {
				_ = up.CloseSend()
				return
			}
			if up.SendMsg(&request) != nil {
				return // the replies' end says why
			}
		}
	})
	replies, ended := make(chan reply), make(chan error, 1)
	p.work.Go(func() {
		ended <- c.pump(up, down, replies)
		close(replies)
	})
	if err := deliver(ctx, replies, func(r reply) error {
		if r.cut != nil {
			r.cut.half.Store(true)
		}
		return down.SendMsg(&frame{r.data})
	}); err != nil {
		return err
	}
	down.SetTrailer(up.Trailer())
	return <-ended
}

// before applies the faults on the call itself.
func (c *call) before() error {
	for _, injected := range c.proxy.matching(c.method, OnCall, nil) {
		var held <-chan time.Time
		switch do := injected.fault.Do.(type) {
		case Fail:
			return status.Error(do.Code, do.Message)
		case Cut:
			c.conn.Close()
			return errCut
		case Delay:
			held = time.After(do.For)
		}
		select {
		case <-held: // never, if stalled
		case <-injected.gone:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
	return nil
}

// pump puts the runtime's replies through the faults, until they end.
func (c *call) pump(up grpc.ClientStream, down grpc.ServerStream, out chan<- reply) error {
	for dropped, passed := 0, 0; ; {
		var got frame
		if err := up.RecvMsg(&got); errors.Is(err, io.EOF) {
			if dropped > 0 && passed == 0 {
				<-c.ctx.Done() // without its only reply, a call hangs
			}
			return nil
		} else if err != nil {
			return err
		}
		// With the first reply; to ask earlier would block.
		if headers, err := up.Header(); err == nil && len(headers) > 0 {
			_ = down.SetHeader(headers)
		}
		r, err := c.disturbed(got.data)
		if errors.Is(err, errDropped) {
			dropped++
			continue
		} else if err != nil {
			return err
		}
		passed++
		select {
		case out <- r:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
}

// disturbed puts a reply through the faults.
func (c *call) disturbed(data []byte) (reply, error) {
	r := reply{data: data, due: time.Now()}
	for _, injected := range c.proxy.matching(c.method, OnReply, data) {
		switch do := injected.fault.Do.(type) {
		case Drop:
			return r, errDropped
		case Delay:
			r.due = r.due.Add(do.For)
		case Truncate:
			r.data = data[:max(0, len(data)-1)]
		case Stall:
			r.gate = injected.gone
		case Fail:
			return r, status.Error(do.Code, do.Message)
		case Cut:
			if !do.MidMessage {
				c.conn.Close()
				return r, errCut
			}
			r.cut = c.conn
		}
	}
	return r, nil
}

// Inject puts a fault in force, behind all others.
func (p *Proxy) Inject(f Fault) (*Injected, error) {
	switch f.Do.(type) {
	case Delay, Stall, Fail, Cut:
	case Drop, Truncate:
		if f.On == OnCall {
			return nil, fmt.Errorf("criproxy: %T acts on messages: set On to OnReply", f.Do)
		}
	default:
		return nil, errors.New("criproxy: the fault does nothing: set Do")
	}
	injected := &Injected{fault: f, proxy: p, gone: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, injected)
	return injected, nil
}

// Clear removes every fault.
func (p *Proxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, injected := range p.faults {
		close(injected.gone)
	}
	p.faults = nil
}

// matching returns the faults for a message, in order, and counts their hits.
func (p *Proxy) matching(method string, on Point, message []byte) (found []*Injected) {
	p.mu.Lock()
	faults := slices.Clone(p.faults)
	p.mu.Unlock()
	for _, i := range faults {
		if i.takes(method, on, message) {
			found = append(found, i)
		}
	}
	return found
}
