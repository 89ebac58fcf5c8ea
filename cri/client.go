// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/evented-pleg/evented-pleg/pleg"
)

const (
	windowSize     = 1 << 20
	readBufferSize = 128 << 10
)

// Client reads one container runtime over its CRI socket. It is safe for use by several goroutines
// at once.
type Client struct {
	config   Config
	endpoint string // for messages
	conn     *grpc.ClientConn
	// slots holds one value for each status call in flight (Config.MaxStatusCalls).
	slots chan struct{}
	// listing holds one value while a List runs; its holder owns index.
	listing chan struct{}
	index   *index
	// byID is shared: it has its own lock.
	byID unlabelled
	// traits is what has been learned of the runtime behind the present connection; replaced at
	// every reconnect.
	traits  atomic.Pointer[traits]
	link    link
	dials   atomic.Uint64
	counter counters
}

var (
	_ pleg.Source[PodStatus] = (*Client)(nil)
	_ pleg.Stream[PodStatus] = (*Client)(nil)
)

// traits is what a client has learned of a runtime. It lives as long as one connection, because a
// runtime that comes back may have been upgraded.
type traits struct {
	// has says whether the runtime has a call. It is learned of the list calls.
	has [methods]knowledge
	// fillsStatuses says whether PodSandboxStatus brings the statuses of the containers along.
	fillsStatuses knowledge
}

// knowledge is a question about the runtime that is open until it has answered: 0 open, 1 yes, 2
// no.
type knowledge struct{ v atomic.Int32 }

func (k *knowledge) learn(yes bool) {
	if yes {
		k.v.Store(1)
	} else {
		k.v.Store(2)
	}
}
func (k *knowledge) no() bool { return k.v.Load() == 2 }

func (k *knowledge) String() string { return [...]string{"unknown", "yes", "no"}[k.v.Load()] }

// New returns a client that connects when it is first used, and reconnects for as long as it is
// used, so the runtime need not be up yet. It makes no call. The caller must Close it.
func New(config Config) (*Client, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	c := &Client{
		config:   config,
		endpoint: config.Endpoint,
		slots:    make(chan struct{}, config.MaxStatusCalls),
		listing:  make(chan struct{}, 1),
		index:    newIndex(),
	}
	c.traits.Store(new(traits))
	dial := config.Dialer
	if dial == nil {
		path, err := socketPath(config.Endpoint)
		if err != nil {
			return nil, err
		}
		c.endpoint = "unix://" + path
		c.link.path = path
		dial = func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, path) }
	} else if c.endpoint == "" {
		c.endpoint = "the given dialer"
	}
	conn, err := grpc.NewClient("passthrough:///cri",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			socket := c.link.look() // before dialing: if the socket is replaced in between, the next look sees it
			conn, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			if c.dials.Add(1) > 1 {
				c.traits.Store(new(traits))
			}
			c.link.made(conn, socket)
			return conn, nil
		}),
		// A local socket answers or refuses at once. The default pauses, up to 120 s, would keep a
		// runtime that is back unseen. Calls cut these short as well (see awake).
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
		// No keepalive: a server with grpc's defaults ends a connection that pings more often than
		// every five minutes, and a dead peer of a unix socket is noticed at once. A fixed window
		// makes grpc do without the pings by which it would size one, one for every event on a
		// quiet stream; it also bounds what waits here unread. The read buffer saves an eighth of
		// the CPU of a large list.
		grpc.WithInitialWindowSize(windowSize),
		grpc.WithInitialConnWindowSize(windowSize),
		grpc.WithReadBufferSize(readBufferSize),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(config.MaxMessageSize)),
	)
	if err != nil {
		return nil, fmt.Errorf("cri: cannot make a client for %s: %w", c.endpoint, err)
	}
	c.conn = conn
	return c, nil
}

// Dial returns a client that has reached its runtime: it connects, asks for the runtime's version,
// and reports plainly why that failed. It does not wait for a runtime that is not there; use [New]
// for that.
func Dial(ctx context.Context, config Config) (*Client, error) {
	c, err := New(config)
	if err != nil {
		return nil, err
	}
	if config.Dialer == nil {
		// The connection that grpc makes reports its failures with less care.
		path, _ := socketPath(config.Endpoint)
		probe, err := dialSocket(ctx, path)
		if err != nil {
			_ = c.Close()
			return nil, err
		}
		_ = probe.Close()
	}
	if _, err := c.Version(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the connection and every call that is under way. The client cannot be used afterwards.
func (c *Client) Close() error { return c.conn.Close() }

// Endpoint returns what the client is connected to, for messages.
func (c *Client) Endpoint() string { return c.endpoint }
