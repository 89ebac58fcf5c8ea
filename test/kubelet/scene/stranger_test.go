// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

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

// A stranger can be made on the fake runtime before any kubelet's pull of the image, pulled once.
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
	ctx, cancel := context.WithCancel(context.Background())
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
		if err := haveImage(t.Context(), runtimeapi.NewImageServiceClient(conn)); err != nil {
			t.Fatal(err)
		}
	}
	if n := rt.Stats().RPCs["PullImage"]; n != 1 {
		t.Errorf("pulled %d times, want once", n)
	}
	client := runtimeapi.NewRuntimeServiceClient(conn)
	id, err := new(World).makeStranger(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	start := &runtimeapi.StartContainerRequest{ContainerId: id}
	if _, err := client.StartContainer(t.Context(), start); err != nil {
		t.Error(err)
	}
}
