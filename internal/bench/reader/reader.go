// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package reader keeps an observer that stops from holding up the runtime that it observes.
//
// # Model
//
// Some runtimes wait for a subscriber of their event stream that does not read: containerd 2 then
// creates and removes nothing more, for anybody. An observer that prints is stopped by a terminal,
// a pipe, a debugger or a Ctrl-Z. So the connection to the runtime belongs to a process of its own,
// the reader ([Serve]), which has no terminal, no disk and no process group in common with the
// observer. The reader forwards the calls that read, and refuses all others. It takes every message
// of the runtime at once, into a bounded buffer, and hands it on when the observer takes it. An
// event carries the time at which the reader received it ([Received]).
//
// Three things end a reader that could hold the runtime up, and so close its connection:
//
//   - its buffer: when the observer has not taken enough of the stream, or nothing for [HandOn],
//     the reader leaves the stream, and says how many events it dropped;
//   - a timer in the kernel, which the reader puts off while it reads, kills it otherwise after
//     [Patience], also when stopped (Linux);
//   - the supervisor in the observer ([Supervisor]) kills it when it has not reported for as long.
//
// # Concurrency
//
// A Supervisor is safe for concurrent use. Serve returns when everything it started has ended.
//
// # Errors
//
// A stream that the reader left ends with Unavailable and the reason. [Supervisor.Why] tells why
// the latest reader ended, if not at the observer's wish.
package reader

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/evented-pleg/evented-pleg/internal/rawgrpc"
)

const (
	// Patience is how long a reader may not read, in spite of its work.
	Patience = 2 * time.Second
	// HandOn is how long the observer may take nothing while something waits.
	HandOn = time.Minute
	// beat is how often a reader puts its end off, and reports.
	beat = 200 * time.Millisecond
	// maxEvents and maxEventBytes bound the waiting events, maxReply the bytes of any other reply.
	maxEvents     = 50_000
	maxEventBytes = 16 << 20
	maxReply      = rawgrpc.MaxMessage
)

// Files of a reader's process, beyond the standard ones.
const (
	runtimeFile  = 3 // the connection to the runtime
	observerFile = 4 // the connection to the observer
	beatFile     = 5 // reports of life to the supervisor
)

const events = "GetContainerEvents"

// reads are the methods without changes. Others are refused.
var reads = []string{
	"Version",
	"Status",
	"ListPodSandbox",
	"StreamPodSandboxes",
	"ListContainers",
	"StreamContainers",
	"PodSandboxStatus",
	"ContainerStatus",
	events,
	"ContainerStats",
	"ListContainerStats",
	"PodSandboxStats",
	"ListPodSandboxStats",
	"RuntimeConfig",
	"ImageFsInfo",
}

// Main is the reader's process.
func Main(ctx context.Context) error {
	runtime, err := inherited(runtimeFile)
	if err != nil {
		return err
	}
	observer, err := inherited(observerFile)
	if err != nil {
		return err
	}
	beats := os.NewFile(beatFile, "beats")
	if beats == nil {
		return errors.New("reader: no file for the reports of life")
	}
	defer beats.Close()
	guard, err := newGuard(Patience)
	if err != nil {
		return err
	}
	alive := func() {
		guard.putOff()
		_, _ = beats.Write([]byte{1}) // a full pipe: the supervisor does not read
	}
	return Serve(ctx, Config{Runtime: runtime, Observer: observer, Alive: alive})
}

// inherited is a connection among the inherited files of a process.
func inherited(fd uintptr) (net.Conn, error) {
	file := os.NewFile(fd, "connection")
	if file == nil {
		return nil, fmt.Errorf("reader: no file %d: only pleg-bench starts this command", fd)
	}
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf(
			"reader: file %d is no connection: only pleg-bench starts this command: %w",
			fd,
			err,
		)
	}
	return conn, nil
}

// Config configures a reader.
type Config struct {
	// Runtime and Observer are the two connections. Serve closes them.
	Runtime, Observer net.Conn
	// Alive is called about five times a second as long as the runtime is read.
	Alive func()
	// HandOn is how long the observer may take nothing; 0 is [HandOn].
	HandOn time.Duration
}

// Serve forwards calls until one of the connections or ctx ends. Replies waiting for the observer
// outlive the connection to the runtime.
func Serve(ctx context.Context, c Config) error {
	if c.HandOn == 0 {
		c.HandOn = HandOn
	}
	r := &relay{config: c, vital: newVital()}
	runtime := r.vital.watched(c.Runtime)
	target, err := grpc.NewClient(
		"passthrough:///runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(once(runtime)),
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(window),
		grpc.WithIdleTimeout(0), // there is one connection
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(rawgrpc.MaxMessage),
			grpc.ForceCodecV2(rawgrpc.Codec{}),
		),
	)
	if err != nil {
		return fmt.Errorf("reader: %w", err)
	}
	r.target = target
	observer := &single{conn: c.Observer, gone: make(chan struct{})}
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawgrpc.Codec{}), grpc.UnknownServiceHandler(r.handle),
		grpc.MaxRecvMsgSize(rawgrpc.MaxMessage), grpc.WaitForHandlers(true))
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	group.Go(func() { r.live(ctx) })
	group.Go(func() { _ = server.Serve(observer) }) // ends with the server
	handedOn := make(chan struct{})
	select {
	case <-runtime.closed: // waiting replies are handed on first
		group.Go(func() {
			server.GracefulStop()
			close(handedOn)
		})
	case <-observer.gone:
		close(handedOn)
	case <-ctx.Done():
		close(handedOn)
	}
	select {
	case <-handedOn:
	case <-observer.gone:
	case <-ctx.Done():
	}
	server.Stop()
	_ = target.Close()
	_ = runtime.Close()
	cancel()
	group.Wait()
	return nil
}

// window is the flow control window of the runtime's connection, in bytes: slack for moments
// without CPU.
const window = 1 << 20

// once returns a dialer for an existing connection.
func once(conn net.Conn) func(context.Context, string) (net.Conn, error) {
	given := make(chan net.Conn, 1)
	given <- conn
	return func(context.Context, string) (net.Conn, error) {
		select {
		case c := <-given:
			return c, nil
		default:
			return nil, errors.New("reader: the connection to the runtime has ended")
		}
	}
}

// single is a listener of one connection.
type single struct {
	conn net.Conn
	once sync.Once
	gone chan struct{} // closed at the end of the connection
}

// Accept implements net.Listener.
func (s *single) Accept() (net.Conn, error) {
	if conn := s.conn; conn != nil {
		s.conn = nil
		return &told{Conn: conn, closed: s.end}, nil
	}
	<-s.gone
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (s *single) Close() error {
	s.end()
	return nil
}

func (s *single) end() { s.once.Do(func() { close(s.gone) }) }

// Addr implements net.Listener.
func (s *single) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// told is a connection with a notice of its end.
type told struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *told) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// relay forwards calls.
type relay struct {
	config Config
	vital  *vital
	target *grpc.ClientConn
}

// live calls Alive while the runtime is read.
func (r *relay) live(ctx context.Context) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		if r.vital.reads(time.Now()) {
			r.config.Alive()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// handle forwards a call.
func (r *relay) handle(_ any, down grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(down)
	method := path.Base(full)
	if !slices.Contains(reads, method) {
		return status.Errorf(codes.PermissionDenied, "%s is no call that only reads", method)
	}
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	var request rawgrpc.Frame
	if err := down.RecvMsg(&request); err != nil {
		return err
	}
	up, err := r.target.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, full)
	if err != nil {
		return err
	}
	if err := errors.Join(up.SendMsg(&request), up.CloseSend()); err != nil && !errors.Is(err, io.EOF) { // the replies' end says why
		return err
	}
	limit := bounds{count: maxEvents, bytes: maxReply}
	if method == events {
		limit.bytes = maxEventBytes
	}
	q := newBuffer(limit)
	var group sync.WaitGroup
	group.Go(func() { r.take(up, q, method == events) })
	err = r.hand(down, q, cancel)
	cancel()
	group.Wait()
	return err
}

// take takes every reply of the runtime at once, and waits for nothing but the runtime.
func (r *relay) take(up grpc.ClientStream, q *buffer, stamped bool) {
	for {
		var f rawgrpc.Frame
		if err := up.RecvMsg(&f); err != nil {
			q.end(err)
			return
		}
		end := r.vital.busy()
		if stamped {
			f.Data = stamp(time.Now(), f.Data)
		}
		q.put(f.Data)
		end()
	}
}

// hand hands replies on until their end. Leave ends the call at the runtime: when the buffer is
// full, or the observer has taken nothing for too long.
func (r *relay) hand(down grpc.ServerStream, q *buffer, leave func()) error {
	late := time.AfterFunc(r.config.HandOn, func() { // stopped below while nothing waits
		q.overflow(fmt.Sprintf("nothing of the stream was taken for %v", r.config.HandOn))
		leave()
	})
	defer late.Stop()
	full := context.AfterFunc(q.full, leave)
	defer full()
	for {
		late.Stop()
		data, err := q.get(down.Context())
		if errors.Is(err, errHandedOn) {
			return nil
		}
		if err != nil {
			return err
		}
		late.Reset(r.config.HandOn)
		err = down.SendMsg(&rawgrpc.Frame{Data: data})
		if err != nil {
			return err
		}
	}
}

// stampSize is the size of the prefix of an event made by [stamp]: a field of protobuf, with a
// number unused by all messages. A prefix, unlike a suffix, leaves a malformed message as malformed
// as before.
const stampSize = 5 + 8

// stampTag is the tag of field 536870911 with the wire type of 64 bits.
var stampTag = []byte{0xf9, 0xff, 0xff, 0xff, 0x0f}

// stamp puts the time of receipt in front of an event.
func stamp(at time.Time, event []byte) []byte {
	stamped := make([]byte, 0, stampSize+len(event))
	stamped = append(stamped, stampTag...)
	stamped = binary.LittleEndian.AppendUint64(stamped, uint64(at.UnixNano()))
	return append(stamped, event...)
}

// Received returns the time at which a reader received an event, and the event as sent by the
// runtime; false for an event without a reader.
func Received(stamped []byte) (at time.Time, event []byte, ok bool) {
	if len(stamped) < stampSize || !slices.Equal(stamped[:len(stampTag)], stampTag) {
		return time.Time{}, stamped, false
	}
	nanos := binary.LittleEndian.Uint64(stamped[len(stampTag):])
	return time.Unix(0, int64(nanos)), stamped[stampSize:], true
}
