// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

// TestSocket reads a node of 2000 containers over a real socket, named in each possible way.
func TestSocket(t *testing.T) {
	for _, profile := range []string{"containerd-2", "containerd-1.7"} {
		p, err := fakeruntime.ProfileByName(profile)
		if err != nil {
			t.Fatal(err)
		}
		rt, err := fakeruntime.New(fakeruntime.Config{Profile: p, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close()
		if _, err := rt.Populate(fakeruntime.Population{Pods: 1000, Containers: 2}); err != nil {
			t.Fatal(err)
		}
		dir, err := os.MkdirTemp("", "cri") // t.TempDir may be too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		socket := filepath.Join(dir, "s")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var served sync.WaitGroup
		served.Go(func() {
			if err := rt.Serve(ctx, listener); err != nil {
				t.Error(err)
			}
		})
		for _, endpoint := range []string{socket, "unix://" + socket, "unix:" + socket} {
			c, err := cri.Dial(t.Context(), cri.Config{Endpoint: endpoint})
			if err != nil {
				t.Fatal(err)
			}
			if c.Endpoint() != "unix://"+socket {
				t.Errorf("the endpoint of %q is %q", endpoint, c.Endpoint())
			}
			first, err := c.List(t.Context(), 0)
			if err != nil || first.Delta || len(first.Pods) != 1000 {
				t.Fatalf("List: %d pods, %v", len(first.Pods), err)
			}
			for _, pod := range first.Pods {
				if len(pod.Items) != 3 {
					t.Fatalf("pod %+v, want three items", pod)
				}
			}
			next, err := c.List(t.Context(), first.Revision)
			if err != nil || !next.Delta || len(next.Pods)+len(next.Gone) != 0 || next.Total != 1000 {
				t.Errorf("second List: %+v, %v", next, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if _, err := c.List(t.Context(), 0); err == nil {
				t.Error("List of a closed client worked")
			}
		}
		cancel()
		served.Wait()
	}
}
