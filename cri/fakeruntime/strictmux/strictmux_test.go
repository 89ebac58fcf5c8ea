// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package strictmux_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime/strictmux"
)

// TestContentTypes checks that a client with a named codec is refused as by CRI-O, and another
// served.
func TestContentTypes(t *testing.T) {
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(strictmux.Listener(listener)) })
	t.Cleanup(func() { server.Stop(); served.Wait() })
	check := func(options ...grpc.CallOption) error {
		conn, err := grpc.NewClient("passthrough:///strict", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for range 3 { // later calls pass unchanged
			_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}, options...)
		}
		return err
	}
	if err := check(); err != nil {
		t.Errorf("application/grpc: %v", err)
	}
	if err := check(grpc.CallContentSubtype("proto")); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("application/grpc+proto: %v, want what CRI-O's clients see", err)
	}
}
