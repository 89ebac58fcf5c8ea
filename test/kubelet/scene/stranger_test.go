// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package scene

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

// A stranger can be made on the fake runtime before any kubelet has pulled the image, which is pulled once.
func TestStrangerHasItsImage(t *testing.T) {
	rt, err := fakeruntime.New(fakeruntime.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- rt.Serve(ctx, listener) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		if err := haveImage(ctx, runtimeapi.NewImageServiceClient(conn)); err != nil {
			t.Fatal(err)
		}
	}
	if n := rt.Stats().RPCs["PullImage"]; n != 1 {
		t.Errorf("pulled %d times, want once", n)
	}
	w := &World{}
	if _, err := w.makeStranger(ctx, runtimeapi.NewRuntimeServiceClient(conn)); err != nil {
		t.Error(err)
	}
}
