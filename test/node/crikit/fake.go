// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package crikit

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

// OnFake returns a client of a fake runtime, which ends with the test.
func OnFake(t testing.TB, profile string, seed uint64) *Client {
	t.Helper()
	p, err := fakeruntime.ProfileByName(profile)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := fakeruntime.New(fakeruntime.Config{Profile: p, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	client, err := Dial(Options{Endpoint: "unix://" + Serve(t, rt), Namespace: "mine", Image: fakeruntime.WorkloadImage})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// Serve serves a fake runtime until the end of the test, and returns its socket.
func Serve(t testing.TB, rt *fakeruntime.Runtime) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "crikit-") // short, as socket paths must be
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		if err := rt.Serve(ctx, listener); err != nil {
			t.Errorf("the fake runtime: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		served.Wait()
		rt.Close()
		os.RemoveAll(dir)
	})
	return socket
}
