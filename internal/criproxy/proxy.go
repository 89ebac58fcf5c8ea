// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package criproxy stands between a CRI client and a CRI runtime and disturbs their calls like
// networks, hung processes and bugs.
//
// # Model
//
// The proxy listens on a unix socket and forwards every call of every method to another, message by
// message, without decoding any: future methods and fields pass too. A call has one request, as all
// of the CRI do. A Fault picks calls or replies, by method, bytes and count, and applies a single
// action. Faults come and go while calls run; several act in the order of Inject: what a Delay or
// Stall holds is dropped, failed or cut behind it, and behind the end of a call no fault acts, nor
// is it counted. An observer learns the fate of each call and reply ([Proxy.Observe]).
//
// Without a fault the proxy is transparent with an exception: grpc buffers on both sides, so the
// runtime notices an idle client some 64 KiB later. No fault acts on the header of a call: it
// passes as it comes, ahead of replies that are held.
//
// # Concurrency
//
// All methods are safe for concurrent use, but Up, Down and Close with each other. Close returns
// after every call has ended and nothing started runs.
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

	"github.com/evented-pleg/evented-pleg/internal/rawgrpc"
)

// reconnectAtOnce keeps the proxy's own backoff from hiding a returned runtime.
var reconnectAtOnce = grpc.ConnectParams{
	Backoff: backoff.Config{
		BaseDelay:  10 * time.Millisecond,
		Multiplier: 1.2,
		MaxDelay:   50 * time.Millisecond,
	},
	MinConnectTimeout: time.Second,
}

// A Fault selects calls, or replies of the runtime, and an action.
type Fault struct {
	// Method is a method's bare name, ListContainers. Empty: every method.
	Method string
	// Request picks calls by the bytes of their request, one at a time. Nil: all.
	Request func(request []byte) bool
	// Match picks replies by their bytes, as the faults before have left them, one at a time. Nil:
	// all. Hold and Refuse act on calls, and ignore Match.
	Match func(reply []byte) bool
	// Times is how often the fault acts. 0: until Remove.
	Times int
	// Do is the action.
	Do Action
}

// An Action is Hold, Refuse, Delay, Drop, Truncate, Stall, Fail or Cut.
type Action any

type (
	// Hold keeps the call itself from the runtime until the fault is removed.
	Hold struct{}
	// Refuse ends the call with the status. The runtime never sees the call.
	Refuse struct {
		Code    codes.Code
		Message string
	}
	// Delay holds each reply for a time, and what is behind it on the stream.
	Delay struct{ For time.Duration }
	// Drop swallows the message of a stream.
	Drop struct{}
	// Truncate drops the last byte of the reply, and does not act on an empty one. The frame stays
	// whole, so the decoding fails.
	Truncate struct{}
	// Stall keeps the reply, and everything behind it on the same stream, until the fault is
	// removed. The runtime goes on undisturbed, up to 64 MiB of replies held of one call, of which
	// each counts some bytes more than it has.
	Stall struct{}
	// Fail ends the call with the status. The runtime has done its work.
	Fail struct {
		Code    codes.Code
		Message string
	}
	// Cut closes the client's connection, and so every call on it.
	Cut struct{}
)

// An Injected fault is in force until Remove.
type Injected struct {
	fault Fault
	proxy *Proxy
	gone  chan struct{} // closed by Remove: releases what is held
	hits  int           // owned by the proxy's mutex
}

// Hits is how often the fault has acted.
func (i *Injected) Hits() int {
	i.proxy.mu.Lock()
	defer i.proxy.mu.Unlock()
	return i.hits
}

// Remove ends the fault and delivers all messages held. Further calls have no effect.
func (i *Injected) Remove() {
	i.proxy.mu.Lock()
	defer i.proxy.mu.Unlock()
	if at := slices.Index(i.proxy.faults, i); at >= 0 {
		i.proxy.faults = slices.Delete(i.proxy.faults, at, at+1)
		close(i.gone)
	}
}

// A Proxy forwards calls.
type Proxy struct {
	listen string
	target *grpc.ClientConn
	server *grpc.Server
	served chan struct{}  // closed when the server has left the socket
	work   sync.WaitGroup // serves and forwards

	mu      sync.Mutex // owns the fields below
	faults  []*Injected
	calls   map[string]int
	conns   map[*conn]bool // open ones of clients
	observe func(Outcome)
}

// An Outcome is the fate of a call, or of a reply.
type Outcome struct {
	// Method is the method's bare name, Request the call's request.
	Method  string
	Request []byte
	// Reply is the runtime's reply, nil if the outcome is the call's own or its end.
	Reply []byte
	// Ended reports the end of the call, as the runtime, its absence, the client or a fault ended it;
	// Err is the status. A call whose request has come has one end.
	Ended bool
	Err   error
	// GivenUp: the call was over for its client before the end, since the client canceled it, let its
	// deadline pass or lost the connection. Such an end says nothing of the runtime.
	GivenUp bool
	// Acted are the actions of the faults that acted, in order. None: the message passed unchanged.
	Acted []Action
}

// Start returns a proxy that listens on the socket with the path listen, which it makes, and
// forwards to the runtime at the other path, which need not exist yet.
func Start(listen, runtime string) (*Proxy, error) {
	target, err := grpc.NewClient(
		rawgrpc.SocketTarget,
		rawgrpc.ToSocket(runtime),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(rawgrpc.MaxMessage),
			grpc.ForceCodecV2(rawgrpc.Codec{}),
		),
		grpc.WithConnectParams(reconnectAtOnce),
	)
	if err != nil {
		return nil, fmt.Errorf("criproxy: dial %s: %w", runtime, err)
	}
	p := &Proxy{
		listen: listen,
		target: target,
		calls:  map[string]int{},
		conns:  map[*conn]bool{},
	}
	if err := p.Up(); err != nil {
		_ = target.Close()
		return nil, err
	}
	return p, nil
}

// Endpoint is the proxy's address for clients.
func (p *Proxy) Endpoint() string { return "unix://" + p.listen }

// Up binds the socket and serves, after Down.
func (p *Proxy) Up() error {
	bound, err := net.Listen("unix", p.listen)
	if err != nil {
		return fmt.Errorf("criproxy: listen on %s: %w", p.listen, err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawgrpc.Codec{}), grpc.UnknownServiceHandler(p.handle),
		grpc.MaxRecvMsgSize(rawgrpc.MaxMessage), grpc.WaitForHandlers(true))
	served := make(chan struct{})
	p.server = server
	p.served = served
	p.work.Go(func() {
		defer close(served)
		_ = server.Serve(&listener{Listener: bound, proxy: p}) // ends with Down
	})
	return nil
}

// Down closes the socket and every connection: to the client the runtime is away until Up.
func (p *Proxy) Down() {
	p.server.Stop()
	<-p.served // a server that is stopped before it has begun to serve closes the socket then
}

// Close ends the proxy.
func (p *Proxy) Close() {
	p.Clear()
	p.Down()
	p.work.Wait()
	_ = p.target.Close()
}

// Calls is how many calls of each method have begun, by bare name.
func (p *Proxy) Calls() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.calls)
}

// Observe sets the function that learns the fate of every call and reply from now on. Calls of the
// function are concurrent; its arguments must not be changed.
func (p *Proxy) Observe(observe func(Outcome)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observe = observe
}

// note tells the observer.
func (p *Proxy) note(o Outcome) {
	p.mu.Lock()
	observe := p.observe
	p.mu.Unlock()
	if observe != nil {
		observe(o)
	}
}

// noteEnd tells the observer of the end of a call that no fault has ended.
func (p *Proxy) noteEnd(ctx context.Context, c call, err error) {
	p.note(Outcome{
		Method:  c.method,
		Request: c.request,
		Ended:   true,
		Err:     err,
		GivenUp: over(ctx),
	})
}

// over reports whether a call is over for its client. The runtime may notice a deadline first.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// Clients is how many clients are connected.
func (p *Proxy) Clients() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// CutAll closes the connection of every client, and returns their number.
func (p *Proxy) CutAll() int {
	p.mu.Lock()
	open := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
	return len(open)
}

// Inject puts a fault in force, behind all others.
func (p *Proxy) Inject(f Fault) *Injected {
	injected := &Injected{fault: f, proxy: p, gone: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, injected)
	return injected
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

// A call is a call of a client.
type call struct {
	method  string
	request []byte
}

// inForce returns the faults in force, in order.
func (p *Proxy) inForce() []*Injected {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.faults)
}

// acts reports whether the fault acts on a call itself, or on a reply of it as the faults before
// have left that, and counts it. It is asked where the fault would act: a fault behind the end of a
// call is not used up, and one that was removed during a Hold acts no more.
func (i *Injected) acts(c call, onCall bool, reply []byte) bool {
	i.proxy.mu.Lock()
	defer i.proxy.mu.Unlock()
	f := i.fault
	_, truncates := f.Do.(Truncate)
	switch {
	case actsOnCall(f.Do) != onCall:
	case f.Method != "" && f.Method != c.method:
	case f.Times > 0 && i.hits >= f.Times:
	case !slices.Contains(i.proxy.faults, i):
	case truncates && len(reply) == 0:
	case f.Request != nil && !f.Request(c.request):
	case !onCall && f.Match != nil && !f.Match(reply):
	default:
		i.hits++
		return true
	}
	return false
}

// actsOnCall reports whether an action is applied to a call, before the runtime sees it.
func actsOnCall(a Action) bool {
	switch a.(type) {
	case Hold, Refuse:
		return true
	}
	return false
}

// A reply is on its way to the client.
type reply struct {
	rawgrpc.Frame
	gates []<-chan struct{} // not before their closes
	// dropped: nothing is sent, but what is behind waits for the gates.
	dropped bool
	last    bool // not a reply, but the end of the call with err
	err     error

	header  metadata.MD // of the runtime; not nil: not a reply, but what precedes all
	trailer metadata.MD // of the runtime, with the end
}

// handle forwards a call.
func (p *Proxy) handle(_ any, down grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(down)
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	c := call{method: path.Base(full)}
	p.mu.Lock()
	p.calls[c.method]++
	p.mu.Unlock()
	var request rawgrpc.Frame
	if err := down.RecvMsg(&request); err != nil {
		return err
	}
	c.request = request.Data
	if err := p.admit(ctx, c); err != nil {
		return err
	}
	up, err := p.begin(ctx, full, &request)
	if err != nil {
		p.noteEnd(ctx, c, err)
		return err
	}
	from, _ := peer.FromContext(ctx) // set by a server
	client := from.Addr.(*conn)
	replies := make(chan reply)
	p.work.Go(func() { p.forward(ctx, up, c, client, replies) })
	return deliver(ctx, replies, func(r reply) error {
		switch {
		case r.header != nil:
			_ = down.SendHeader(r.header) // fails if the client has gone, as the next message does
			return nil
		case r.last:
			down.SetTrailer(r.trailer)
			return r.err
		case r.dropped:
			return nil
		}
		return down.SendMsg(&r.Frame)
	})
}

// begin makes the call to the runtime, up to its replies.
func (p *Proxy) begin(ctx context.Context, full string, request *rawgrpc.Frame) (grpc.ClientStream, error) {
	up, err := p.target.NewStream(forwarded(ctx), &grpc.StreamDesc{ServerStreams: true}, full)
	if err != nil {
		return nil, err
	}
	err = errors.Join(up.SendMsg(request), up.CloseSend())
	if err != nil && !errors.Is(err, io.EOF) { // the replies' end says why
		return nil, err
	}
	return up, nil
}

// forward passes on the runtime's header as it comes, its replies through the faults, and the end.
func (p *Proxy) forward(ctx context.Context, up grpc.ClientStream, c call, client io.Closer, to chan<- reply) {
	send := func(r reply) (more bool) {
		select {
		case to <- r:
			return !r.last
		case <-ctx.Done():
		}
		if !r.last { // else its end is told already
			p.noteEnd(ctx, c, status.FromContextError(ctx.Err()).Err())
		}
		return false
	}
	header, _ := up.Header() // nil if the call has ended without one; its end says why
	if header != nil && !send(reply{header: header}) {
		return
	}
	for {
		r := p.receive(ctx, up, c, client)
		if r.dropped && len(r.gates) == 0 {
			continue
		}
		if !send(r) {
			return
		}
	}
}

// forwarded returns the context of a call to the runtime, with the metadata of its client. gRPC
// itself leaves out what it sets anew, but for the compressions that a client knows.
func forwarded(ctx context.Context) context.Context {
	client, _ := metadata.FromIncomingContext(ctx)
	client.Delete("grpc-accept-encoding")
	return metadata.NewOutgoingContext(ctx, client)
}

// admit applies the faults on a call itself.
func (p *Proxy) admit(ctx context.Context, c call) error {
	for _, injected := range p.inForce() {
		if !injected.acts(c, true, nil) {
			continue
		}
		outcome := Outcome{Method: c.method, Request: c.request, Acted: []Action{injected.fault.Do}}
		if do, refused := injected.fault.Do.(Refuse); refused {
			outcome.Ended = true
			outcome.Err = status.Error(do.Code, do.Message)
		}
		p.note(outcome)
		if outcome.Ended {
			return outcome.Err
		}
		select {
		case <-injected.gone:
		case <-ctx.Done():
			err := status.FromContextError(ctx.Err()).Err()
			p.noteEnd(ctx, c, err)
			return err
		}
	}
	return nil
}

// receive takes the runtime's next reply, and puts it through the faults.
func (p *Proxy) receive(ctx context.Context, up grpc.ClientStream, c call, client io.Closer) (r reply) {
	err := up.RecvMsg(&r.Frame)
	if err != nil {
		r.last = true
		r.trailer = up.Trailer()
		if !errors.Is(err, io.EOF) {
			r.err = err
		}
		p.noteEnd(ctx, c, r.err)
		return r
	}
	outcome := Outcome{Method: c.method, Request: c.request, Reply: r.Data}
	for _, injected := range p.inForce() {
		if !injected.acts(c, false, r.Data) {
			continue
		}
		outcome.Acted = append(outcome.Acted, injected.fault.Do)
		switch do := injected.fault.Do.(type) {
		case Drop:
			r = reply{dropped: true, gates: r.gates}
		case Delay:
			due := make(chan struct{})
			time.AfterFunc(do.For, func() { close(due) })
			r.gates = append(r.gates, due)
		case Truncate:
			r.Data = r.Data[:max(0, len(r.Data)-1)]
		case Stall:
			r.gates = append(r.gates, injected.gone)
		case Fail:
			r = reply{last: true, err: status.Error(do.Code, do.Message), gates: r.gates}
		case Cut:
			pass(ctx, r.gates)
			_ = client.Close()
			r = reply{last: true, err: status.Error(codes.Unavailable, "criproxy: cut")}
		}
		if r.dropped || r.last {
			break
		}
	}
	outcome.Ended = r.last
	outcome.Err = r.err
	p.note(outcome)
	return r
}

// pass returns when all gates are open, or ctx has ended.
func pass(ctx context.Context, gates []<-chan struct{}) {
	for _, gate := range gates {
		select {
		case <-gate:
		case <-ctx.Done():
			return
		}
	}
}

// mostHeld is how many bytes of replies a call may hold, with the overhead of each, before the
// runtime has to wait.
const mostHeld = 64 << 20

// overhead is what a held reply counts beside its own bytes, some more than it costs.
const overhead = 512

// cost is what a held reply counts.
func (r reply) cost() int { return len(r.Data) + overhead }

// deliver sends replies in their order, and the end of the call behind them. It owns those that
// are held; a client that reads slowly holds none: the runtime notices.
func deliver(ctx context.Context, in <-chan reply, send func(reply) error) error {
	var waiting []reply
	held := 0 // cost of waiting
	for {
		var gate <-chan struct{}
		if len(waiting) > 0 {
			switch r := waiting[0]; {
			case len(r.gates) > 0:
				gate = r.gates[0]
			case r.last:
				return send(r)
			default:
				if err := send(r); err != nil {
					return err
				}
				held -= r.cost()
				waiting[0] = reply{}
				waiting = waiting[1:]
				continue
			}
		}
		next := in
		if held >= mostHeld {
			next = nil
		}
		select {
		case r := <-next:
			held += r.cost()
			waiting = append(waiting, r)
		case <-gate:
			waiting[0].gates = waiting[0].gates[1:]
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
