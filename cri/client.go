// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// A client from New to Close: its configuration, its connection, the socket behind an endpoint, and
// the first question to a runtime, Version.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// DefaultMaxMessageSize is the default of [Config.MaxMessageSize]: 256 MiB, enough for 100,000
// containers of 2.6 KB in one message.
const DefaultMaxMessageSize = 256 << 20

// messageSizeLeast is the least [Config.MaxMessageSize]: the status of a container, and a list of
// one, have more bytes.
const messageSizeLeast = 512

// Config configures a [Client]. Endpoint or Dialer is required; every other field's zero value is
// its default.
type Config struct {
	// Endpoint is the runtime's unix socket: "unix:///run/containerd/containerd.sock", or the bare
	// absolute path.
	Endpoint string
	// Dialer, when set, connects to the runtime in place of the socket in Endpoint, which is then only
	// a name for messages. Every reconnect calls Dialer again. It must return when ctx ends: until it
	// does the client makes no other connection.
	Dialer func(ctx context.Context) (net.Conn, error)
	// MaxMessageSize bounds one message of the runtime, in bytes. Runtimes without the streaming lists
	// send all containers in one message. Memory is taken as the message arrives, not up front. It is
	// no bound of all messages together: each answer under way, and each status kept, may be as large.
	// Default [DefaultMaxMessageSize], at least 512.
	MaxMessageSize int
	// Annotations keeps the annotations of sandboxes and containers in their statuses. Without it they
	// are dropped on arrival, and the Annotations fields stay nil: a pod may have 256 KiB of them,
	// which its sandbox repeats.
	Annotations bool
	// Filter, when set, chooses the pods that the client shows: lists leave out the others, events
	// about them make no claim, so no status of them is ever read. It is asked about a pod when a list
	// of everything first shows a sandbox of the pod, or containers alone, and with each list of the
	// pod alone and each event that show a sandbox; it must be quick, must always answer the same for
	// the same pod, and may be called from several goroutines at once. A field of the pod that may
	// change, such as a label, is seen as it was when the kubelet made the sandbox. Runtimes cannot
	// filter by anything that containers do not have, so lists cost the runtime as much as before.
	Filter func(PodMeta) bool
	// OnEvent, when set, receives every message of the event stream as the runtime sent it, broken
	// messages included: an encoded CRI ContainerEventResponse, before the client parses the message.
	// Tools that judge a runtime use OnEvent. Each subscription calls OnEvent sequentially and waits
	// for the return. The bytes belong to the client and must not be kept or changed.
	OnEvent func(message []byte)
}

const (
	windowSize     = 1 << 20
	readBufferSize = 128 << 10
)

// Client reads one container runtime over its CRI socket. It is made by [New] or [Dial]; the zero
// value cannot be used. A Client is safe for concurrent use.
type Client struct {
	config   Config
	endpoint string // for messages
	conn     *grpc.ClientConn
	// listing holds a value while a List runs; its holder owns index.
	listing chan struct{}
	index   *index
	// unlabelled has a lock of its own.
	unlabelled unlabelled
	excluded   excluded
	exits      exits
	late       lateItems
	// capabilities are those of the runtime behind the present connection; replaced at every
	// reconnect.
	capabilities atomic.Pointer[capabilities]
	monitor      connMonitor
	connects     atomic.Uint64
	broken       atomic.Uint64 // connections that have ended, or could not be made
	counter      counters
	closed       atomic.Bool // by Close
}

var (
	_ pleg.Source[PodStatus] = (*Client)(nil)
	_ pleg.Stream[PodStatus] = (*Client)(nil)
)

// New returns a client that connects on first use and reconnects as needed; the runtime need not be
// up yet. New makes no call. The caller must Close the client.
func New(config Config) (*Client, error) { return newClient(config, system) }

// newClient is [New] with another kernel.
func newClient(config Config, calls *kernel) (*Client, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	c := &Client{
		config:   config,
		endpoint: config.Endpoint,
		listing:  make(chan struct{}, 1),
		index:    newIndex(),
	}
	c.capabilities.Store(new(capabilities))
	c.excluded.filter = config.Filter
	c.index.excluded = &c.excluded
	dial := func(ctx context.Context) (net.Conn, os.FileInfo, error) {
		conn, err := config.Dialer(ctx)
		return conn, nil, err
	}
	if config.Dialer == nil {
		path, err := socketPath(config.Endpoint)
		if err != nil {
			return nil, err
		}
		c.endpoint = "unix://" + path
		c.monitor.kernel = calls
		c.monitor.path = path
		dial = func(ctx context.Context) (net.Conn, os.FileInfo, error) { return calls.dial(ctx, path) }
	} else if c.endpoint == "" {
		c.endpoint = "the given dialer"
	}
	conn, err := grpc.NewClient("passthrough:///cri",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := c.connect(ctx, dial)
			if err != nil {
				c.broken.Add(1)
			}
			return conn, err
		}),
		// A local socket answers or refuses at once. With grpc's default pauses, up to 120 s, a runtime
		// that is back would stay unseen. Calls end these pauses early (see resetBackoff).
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
		// No keepalive: a server with grpc's defaults ends a connection with pings more often than every
		// five minutes, and a dead peer of a unix socket is noticed at once. A fixed window spares the
		// pings by which grpc sizes a window, on a quiet stream a ping for every event, and bounds the
		// unread data here. The read buffer saves an eighth of the CPU of a large list.
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

// dialer makes a connection, at a socket if that is known.
type dialer func(context.Context) (net.Conn, os.FileInfo, error)

// connect makes a connection for grpc.
func (c *Client) connect(ctx context.Context, dial dialer) (net.Conn, error) {
	if err := c.monitor.connecting(); err != nil {
		return nil, err
	}
	conn, socket, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	if c.connects.Add(1) > 1 {
		c.capabilities.Store(new(capabilities))
	}
	c.monitor.connected(conn, socket)
	return &watchedConn{Conn: conn, broken: &c.broken}, nil
}

// Dial returns a client that has reached its runtime: Dial connects, asks for the runtime's
// version, and explains a failure plainly. Dial does not wait for an absent runtime; use [New] for
// waiting. A socket about which the kernel gives no answer, as on a dead mount, is an error after a
// second.
func Dial(ctx context.Context, config Config) (*Client, error) {
	return dialClient(ctx, config, system)
}

// dialClient is [Dial] with another kernel.
func dialClient(ctx context.Context, config Config, calls *kernel) (*Client, error) {
	c, err := newClient(config, calls)
	if err != nil {
		return nil, err
	}
	if config.Dialer == nil {
		// grpc's own connection reports failures with less care.
		probe, _, err := calls.dial(ctx, c.monitor.path)
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

// Close ends the connection and every call in flight. The client cannot be used afterwards: its
// calls return [ErrClosed], as do those that Close has ended. A second Close does nothing, and
// returns nil.
func (c *Client) Close() error {
	again := c.closed.Swap(true)
	if again {
		return nil
	}
	return c.conn.Close()
}

// Endpoint returns the endpoint of the client, for messages.
func (c *Client) Endpoint() string { return c.endpoint }

// Version identifies a runtime (CRI VersionResponse).
type Version struct {
	// RuntimeName is the runtime's name, such as "containerd" or "cri-o".
	RuntimeName string
	// RuntimeVersion is the runtime's version.
	RuntimeVersion string
	// APIVersion is the version of the CRI spoken by the runtime, such as "v1".
	APIVersion string
}

// String returns the runtime's name and version in a single line, for logs: either is cut if long,
// has no character that a terminal obeys, and is "unknown" if the runtime has not said it.
func (v Version) String() string {
	const unsaid = "unknown"
	return cmp.Or(oneLine(v.RuntimeName), unsaid) + " " + cmp.Or(oneLine(v.RuntimeVersion), unsaid)
}

// Version asks the runtime for its name and version, the cheapest check of whether the runtime
// answers.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var reply owned
	if err := c.call(ctx, version, nil, &reply); err != nil {
		return Version{}, err
	}
	var v runtimeapi.VersionResponse
	if err := proto.Unmarshal(reply.data, &v); err != nil {
		return Version{}, fmt.Errorf("cri: Version on %s: %w: %w", c.endpoint, ErrMalformed, err)
	}
	return Version{RuntimeName: v.GetRuntimeName(), RuntimeVersion: v.GetRuntimeVersion(), APIVersion: v.GetRuntimeApiVersion()}, nil
}

// withDefaults returns the configuration with every zero field at its default.
func (c Config) withDefaults() Config {
	c.MaxMessageSize = cmp.Or(c.MaxMessageSize, DefaultMaxMessageSize)
	return c
}

// validate reports every unusable field by name and value. Defaults must be filled in.
func (c Config) validate() error {
	var errs []error
	if c.Endpoint == "" && c.Dialer == nil {
		errs = append(errs, errors.New(`cri: Config.Endpoint is empty: name the runtime's socket, such as "unix:///run/containerd/containerd.sock"`))
	}
	if c.MaxMessageSize < 0 {
		errs = append(errs, fmt.Errorf("cri: Config.MaxMessageSize is %d: it must not be negative (zero means %d)", c.MaxMessageSize, DefaultMaxMessageSize))
	}
	if 0 < c.MaxMessageSize && c.MaxMessageSize < messageSizeLeast {
		errs = append(errs, fmt.Errorf("cri: Config.MaxMessageSize is %d: no list fits; it is in bytes, %[1]d<<20 is %[1]d MiB", c.MaxMessageSize))
	}
	if c.Endpoint != "" && c.Dialer == nil {
		if _, err := socketPath(c.Endpoint); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// maxSocketPath is the capacity of sockaddr_un's sun_path beside its closing NUL.
const maxSocketPath = 107

// socketPath returns the unix socket path in an endpoint, without touching the file system.
func socketPath(endpoint string) (string, error) {
	path := endpoint
	if scheme, rest, ok := strings.Cut(endpoint, ":"); ok && !strings.Contains(scheme, "/") {
		switch {
		case scheme != "unix" && !strings.HasPrefix(rest, "//"):
			return "", fmt.Errorf("cri: endpoint %q looks like the address of a host: a runtime listens on a unix socket, write unix:///path/to/socket", endpoint)
		case scheme != "unix":
			return "", fmt.Errorf("cri: endpoint %q has scheme %q: only unix sockets are supported, write unix:///path/to/socket", endpoint, scheme)
		case rest == "", rest == "//":
			return "", fmt.Errorf("cri: endpoint %q has no path: write unix:///path/to/socket", endpoint)
		case strings.HasPrefix(rest, "///"):
			path = rest[2:]
		case strings.HasPrefix(rest, "//"):
			return "", fmt.Errorf("cri: endpoint %q names the host %q: a unix endpoint has three slashes, unix:///path/to/socket", endpoint, strings.SplitN(rest[2:], "/", 2)[0])
		default:
			path = rest
		}
	}
	switch {
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("cri: endpoint %q is not an absolute path: write unix:///path/to/socket", endpoint)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("cri: endpoint %q holds a NUL byte: no path can", endpoint)
	case strings.TrimSpace(path) != path:
		return "", fmt.Errorf("cri: endpoint %q ends in white space: remove it, it may be the line break of a file", endpoint)
	case len(path) > maxSocketPath:
		return "", fmt.Errorf("cri: the socket path of endpoint %q has %d bytes: a unix socket address holds at most %d, use a shorter path or a symbolic link", endpoint, len(path), maxSocketPath)
	}
	return path, nil
}

// explainDial adds the likely cause and the remedy to an error of the operating system. It may look
// at the path, and hang.
func explainDial(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cri: there is no socket %s: is the runtime running, is the path right: %w", path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("cri: no permission to connect to %s: where SELinux or another security module enforces, it may deny the socket also to root, until the pod has a type that may connect (spc_t); else run as root, or as a member of the group that owns the socket: %w", path, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		if info, serr := os.Stat(path); serr == nil && info.Mode().Type() != fs.ModeSocket {
			return fmt.Errorf("cri: %s is %s, not a socket: name the runtime's socket: %w", path, fileKind(info.Mode()), err)
		}
		return fmt.Errorf("cri: nothing listens on %s: the runtime is not running, or left its socket behind: %w", path, err)
	}
	for _, other := range []struct {
		is  error
		why string
	}{
		{syscall.ENOTDIR, "a part of its path is a file"},
		{syscall.ELOOP, "it is, or lies behind, a loop of links"},
		{syscall.EPROTOTYPE, "it is a socket of another kind"},
	} {
		if errors.Is(err, other.is) {
			return fmt.Errorf("cri: cannot connect to %s: %s: name the runtime's socket: %w", path, other.why, err)
		}
	}
	return fmt.Errorf("cri: cannot connect to %s: %w", path, err)
}

// fileKind names the kind of a file.
func fileKind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode.IsRegular():
		return "a regular file"
	}
	return "a special file (" + mode.Type().String() + ")"
}
