// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package onfake serves fake runtimes to tests, in memory or on a socket. Servers and connections
// end with the test, also in a bubble of virtual time.
package onfake

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// Dialer connects to a runtime.
type Dialer = func(context.Context) (net.Conn, error)

// Memory serves a runtime in memory, and closes it in the end.
func Memory(t testing.TB, rt *fakeruntime.Runtime) Dialer {
	lis := bufconn.Listen(1 << 16)
	serve(t, rt, lis)
	return func(ctx context.Context) (net.Conn, error) { return lis.DialContext(ctx) }
}

// Socket serves a runtime on a unix socket, and closes it in the end.
func Socket(t testing.TB, rt *fakeruntime.Runtime) (path string) {
	t.Helper()
	dir := testkit.Must(os.MkdirTemp("/tmp", "fake-"))(t) // short, as socket paths must be
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "cri.sock")
	serve(t, rt, testkit.Must(net.Listen("unix", path))(t))
	return path
}

func serve(t testing.TB, rt *fakeruntime.Runtime, lis net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		if err := rt.Serve(ctx, lis); err != nil {
			t.Errorf("the fake runtime: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		served.Wait()
		rt.Close()
	})
}

// Connect returns a connection to a runtime.
func Connect(t testing.TB, dial Dialer, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn := testkit.Must(grpc.NewClient("passthrough:///fake", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))...))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
