// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package rawcri is a CRI server for tests that sends indecent answers: any bytes, any error, late,
// in any number, or never.
//
// A [Server] answers each call with the [Answer] set for its method, else by a typed server of the
// CRI's if there is one, else with Unimplemented. Like CRI-O it accepts only the content type
// "application/grpc", exactly, where gRPC allows "application/grpc+proto" too.
//
// A Server may be used by any number of goroutines at once.
package rawcri

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
)

// Call is a call of a client. It belongs to its answer.
type Call struct {
	// Context ends when the client gives up or the server stops.
	Context context.Context
	// Request is the request's bytes.
	Request []byte
	// Send sends a message. A unary call wants exactly a single message.
	Send func(message []byte) error
}

// Answer answers a call. Its result is the call's status.
type Answer func(c *Call) error

// Bytes answers with the messages unchanged: a single message for a unary call, any number for a
// stream.
func Bytes(messages ...[]byte) Answer {
	return func(c *Call) error {
		for _, m := range messages {
			if err := c.Send(m); err != nil {
				return err
			}
		}
		return nil
	}
}

// Messages answers with encoded messages.
func Messages(messages ...proto.Message) Answer {
	var raw [][]byte
	for _, m := range messages {
		raw = append(raw, Encode(m))
	}
	return Bytes(raw...)
}

// Error answers with an error.
func Error(code codes.Code, text string) Answer {
	return func(*Call) error { return status.Error(code, text) }
}

// Hang never answers.
func Hang(c *Call) error {
	<-c.Context.Done()
	return c.Context.Err()
}

// Encode returns a message's bytes. It panics if the message cannot be encoded, which is the test's
// fault.
func Encode(m proto.Message) []byte {
	raw, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return raw
}

// Server is a CRI server, made by [Start].
type Server struct {
	listener net.Listener
	mu       sync.Mutex // guards the fields below
	answers  map[string]Answer
	calls    map[string]int
}

// Start starts a server that listens on l, or, if l is nil, in memory. Register, if not nil,
// registers the typed server. The server ends with the test.
func Start(t testing.TB, l net.Listener, register func(*grpc.Server), options ...grpc.ServerOption) *Server {
	if l == nil {
		l = bufconn.Listen(1 << 20)
	}
	s := &Server{listener: l, answers: make(map[string]Answer), calls: make(map[string]int)}
	server := grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{}), grpc.MaxSendMsgSize(1 << 30), grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(stream)
			return status.Errorf(codes.Unimplemented, "method %s not implemented", method)
		}),
	}, options...)...)
	if register != nil {
		register(server)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); served.Wait() })
	return s
}

// Dial connects to a server in memory.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	return s.listener.(*bufconn.Listener).DialContext(ctx)
}

// On sets the answer to the calls of a method, such as "ListContainers", from now on; nil leaves
// them to the typed server.
func (s *Server) On(method string, a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a == nil {
		delete(s.answers, method)
		return
	}
	s.answers[method] = a
}

// Calls returns how often a method was called.
func (s *Server) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

// answer counts a call and returns its answer, nil to leave it to the typed server.
func (s *Server) answer(ctx context.Context, path string) Answer {
	if !slices.Equal(metadata.ValueFromIncomingContext(ctx, "content-type"), []string{"application/grpc"}) {
		return Error(codes.Unavailable, "error reading from server: EOF")
	}
	const service = "/runtime.v1.RuntimeService/"
	method := path[min(len(path), len(service)):]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[method]++
	return s.answers[method]
}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer := s.answer(ctx, info.FullMethod)
	if answer == nil {
		return handle(ctx, req)
	}
	var reply []byte
	sent := false
	err := answer(&Call{Context: ctx, Request: Encode(req.(proto.Message)), Send: func(m []byte) error {
		if sent {
			return status.Error(codes.Internal, "rawcri: a unary call is answered with one message")
		}
		reply, sent = m, true
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	answer := s.answer(stream.Context(), info.FullMethod)
	if answer == nil {
		return handle(srv, stream)
	}
	var req []byte
	if err := stream.RecvMsg(&req); err != nil && err != io.EOF {
		return err
	}
	return answer(&Call{Context: stream.Context(), Request: req, Send: func(m []byte) error { return stream.SendMsg(m) }})
}

// codec moves bytes as they are, and messages as the CRI's clients do.
type codec struct{}

// Marshal implements grpc's encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	raw, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(raw)}, err
}

// Unmarshal implements grpc's encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	if raw, ok := v.(*[]byte); ok {
		*raw = data.Materialize()
		return nil
	}
	return proto.Unmarshal(data.Materialize(), v.(proto.Message))
}

// Name implements grpc's encoding.CodecV2.
func (codec) Name() string { return "" }
