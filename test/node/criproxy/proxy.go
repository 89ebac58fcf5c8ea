// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package criproxy stands between a CRI client and a CRI runtime and does to
// their calls what networks, hung processes and bugs do.
//
// # Model
//
// The proxy listens on one unix socket and forwards every call of every method
// to another, message by message, without decoding any. A Fault picks calls or
// messages, by method, place, bytes and count, and does one thing to them: delay, drop,
// duplicate, reorder, truncate, stall, fail or cut. Faults are put in
// and taken out while calls run; several act in the order they were put in.
//
// Below the calls there is the connection: Freeze stops all bytes without
// closing, as a hung peer does, and Down closes and refuses, as a runtime that
// is away.
//
// With no fault the proxy is transparent but for one thing: grpc buffers on both
// sides of it, so a client that does not read is felt some 64 KiB later.
//
// # Concurrency
//
// All methods may be called from anywhere at any time. Run owns the server; it
// returns once every call has ended and nothing it started runs.
//
// # Errors
//
// A call that the runtime fails is failed with the runtime's status. A fault
// that makes no sense is refused by Inject with the reason.
package criproxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// maxMessage is the receive limit of both sides, in bytes: above what any
// runtime sends, so that limits are the client's own.
const maxMessage = 256 << 20

// Config says between which sockets the proxy stands.
type Config struct {
	// Listen is the path of the socket to make.
	Listen string
	// Target is the path of the runtime's socket. It need not exist yet.
	Target string
}

// A Proxy forwards calls. mu guards faults, calls and up.
type Proxy struct {
	config Config
	conns  *conns
	ready  chan struct{} // closed at the first listen
	server *grpc.Server
	work   sync.WaitGroup // pumps and listeners

	mu     sync.Mutex
	target *grpc.ClientConn
	faults []*Injected
	calls  map[string]int
	up     bool
	ended  bool
}

// New makes a proxy. It binds nothing and starts nothing.
func New(c Config) (*Proxy, error) {
	if c.Listen == "" || c.Target == "" || c.Listen == c.Target {
		return nil, fmt.Errorf("criproxy: Listen %q and Target %q must be two different socket paths", c.Listen, c.Target)
	}
	p := &Proxy{
		config: c,
		conns:  &conns{path: c.Listen, open: map[int]*conn{}},
		ready:  make(chan struct{}),
		calls:  map[string]int{},
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
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	if err := p.Up(); err != nil {
		return err
	}
	close(p.ready)
	<-ctx.Done()

	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.Clear()
	p.conns.thaw()
	p.conns.shut()
	p.server.Stop()
	p.work.Wait()
	return nil
}

// Up binds the socket and serves. It does nothing where that is done already.
func (p *Proxy) Up() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.up {
		return nil
	}
	if p.ended {
		return errors.New("criproxy: the proxy has ended")
	}
	listener, err := p.conns.listen()
	if err != nil {
		return fmt.Errorf("criproxy: listen on %s: %w", p.config.Listen, err)
	}
	p.up = true
	p.work.Go(func() { _ = p.server.Serve(listener) })
	return nil
}

// Down closes the socket and every connection: to the client the runtime is
// away until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	p.up = false
	p.mu.Unlock()
	p.conns.shut()
}

// Freeze stops the bytes of every connection, without closing any, until Thaw.
// New connections are accepted and frozen too.
func (p *Proxy) Freeze() { p.conns.freeze() }

// Thaw ends Freeze.
func (p *Proxy) Thaw() { p.conns.thaw() }

// Inject puts a fault in force, behind those that are.
func (p *Proxy) Inject(f Fault) (*Injected, error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	injected := &Injected{fault: f, proxy: p, gone: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, injected)
	return injected, nil
}

func (p *Proxy) remove(i *Injected) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := slices.Index(p.faults, i); at >= 0 {
		p.faults = slices.Delete(p.faults, at, at+1)
		close(i.gone)
	}
}

// Clear removes every fault.
func (p *Proxy) Clear() {
	p.mu.Lock()
	faults := slices.Clone(p.faults)
	p.mu.Unlock()
	for _, injected := range faults {
		injected.Remove()
	}
}

// Calls is how many calls of each method have begun, by bare name.
func (p *Proxy) Calls() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.calls)
}

func (p *Proxy) began(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[path.Base(method)]++
}

// matching returns the faults that act here, in order.
func (p *Proxy) matching(method string, on Point, message []byte) []*Injected {
	p.mu.Lock()
	faults := slices.Clone(p.faults)
	p.mu.Unlock()
	return slices.DeleteFunc(faults, func(i *Injected) bool { return !i.takes(method, on, message) })
}
