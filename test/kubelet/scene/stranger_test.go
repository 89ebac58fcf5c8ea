// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package scene

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

// serveStranger serves a fake runtime and returns it with a connection; before sees each call
// before its send, and may answer with an error.
func serveStranger(t *testing.T, before func(method string, request any) error) (*fakeruntime.Runtime, *grpc.ClientConn) {
	t.Helper()
	rt, err := fakeruntime.New(fakeruntime.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close() })
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rt.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	look := func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, send grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if err := before(method[strings.LastIndex(method, "/")+1:], request); err != nil {
			return err
		}
		return send(ctx, method, request, answer, conn, options...)
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(look))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return rt, conn
}

// A stranger can be made on the fake runtime before any kubelet's pull of the image, pulled once.
func TestStrangerHasItsImage(t *testing.T) {
	rt, conn := serveStranger(t, func(string, any) error { return nil })
	for range 2 {
		if err := haveImage(t.Context(), runtimeapi.NewImageServiceClient(conn)); err != nil {
			t.Fatal(err)
		}
	}
	if n := rt.Stats().RPCs["PullImage"]; n != 1 {
		t.Errorf("pulled %d times, want once", n)
	}
	w := &World{}
	if _, err := w.runStranger(t.Context(), runtimeapi.NewRuntimeServiceClient(conn)); err != nil {
		t.Error(err)
	}
	if n := rt.Stats().RPCs["RunPodSandbox"]; n != 1 {
		t.Errorf("%d strangers were made, want one", n)
	}
}

// TestStrangerIsMadeAgain: only if the kubelet ended it before it ran, and not for ever. Other
// failures are returned at once, after a single stranger.
func TestStrangerIsMadeAgain(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		ends int    // how many strangers the kubelet ends before they are started
		by   string // the call by which it does
		// fails is the failing call of each stranger, never sent.
		fails string
		made  uint64 // how many are made
		want  string // in the error; empty: none
	}{
		{"none is ended", 0, "", "", 1, ""},
		{"one is removed", 1, "RemovePodSandbox", "", 2, ""},
		{"three are stopped", strangers - 1, "StopPodSandbox", "", strangers, ""},
		{"each is removed", strangers, "RemovePodSandbox", "", strangers, "has ended 4 strangers"},
		{"it cannot be started", 0, "", "StartContainer", 1, "start stranger"},
		{"it cannot be made", 0, "", "CreateContainer", 1, "broken"},
		{"it has no sandbox", 0, "", "RunPodSandbox", 0, "broken"},
		{"nobody knows whether it was ended", 1, "RemovePodSandbox", "ContainerStatus", 1, "broken"},
		{"nobody knows whether its sandbox was", 1, "StopPodSandbox", "PodSandboxStatus", 1, "broken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var client runtimeapi.RuntimeServiceClient
			sandbox, ended := "", 0
			rt, conn := serveStranger(t, func(method string, request any) (err error) {
				switch r := request.(type) {
				case *runtimeapi.CreateContainerRequest:
					sandbox = r.PodSandboxId
				case *runtimeapi.StartContainerRequest:
					if ended++; ended > c.ends {
						break
					}
					if c.by == "StopPodSandbox" {
						_, err = client.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox})
					} else {
						_, err = client.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox})
					}
					if err != nil {
						t.Error(err)
					}
				}
				if method == c.fails {
					return broken
				}
				return nil
			})
			client = runtimeapi.NewRuntimeServiceClient(conn)
			if err := haveImage(t.Context(), runtimeapi.NewImageServiceClient(conn)); err != nil {
				t.Fatal(err)
			}
			w := &World{}
			id, err := w.runStranger(t.Context(), client)
			if made := rt.Stats().RPCs["RunPodSandbox"]; made != c.made {
				t.Errorf("%d were made, want %d (%v)", made, c.made, err)
			}
			if c.want == "" && (err != nil || id == "") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("stranger %q, error %v, want one with %q", id, err, c.want)
			}
			if c.fails != "" && !errors.Is(err, broken) {
				t.Errorf("the error %v does not wrap the runtime's", err)
			}
		})
	}
}
