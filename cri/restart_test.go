// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestRuntimeRestart checks that calls fail at once while the runtime is down, and work at once
// after any length of outage.
func TestRuntimeRestart(t *testing.T) {
	for _, down := range []time.Duration{0, 10 * time.Millisecond, time.Second, 5 * time.Minute} {
		inWorld(t, fakeruntime.DefaultProfile, fakeruntime.Faults{}, func(w *world) {
			w.mixedNode()
			first := must(w.client.List(w.Context(), 0))
			w.rt.Down()
			synctest.Wait() // the client has noticed
			start := time.Now()
			for asked := time.Duration(0); asked < down; asked = time.Since(start) {
				if _, err := w.client.List(w.Context(), 0); status.Code(err) != codes.Unavailable {
					w.Fatalf("List while the runtime is down: %v", err)
				}
				if waited := time.Since(start) - asked; waited > time.Second {
					w.Fatalf("List took %v to fail", waited)
				}
				time.Sleep(time.Second)
			}
			w.rt.Up(0)
			if l, err := w.client.List(w.Context(), first.Revision); err != nil || !l.Delta || len(l.Pods)+len(l.Gone) > 7 {
				w.Errorf("List as soon as the runtime is back: %+v, %v", l, err)
			}
			if st := w.client.Stats(); st.Connects < 2 || st.StreamingLists != "yes" {
				w.Errorf("stats: %+v", st)
			}
		})
	}
}

// TestRuntimeGoesDuringARead checks that a read whose connection breaks between two answers has
// failed as a whole: a status of what was answered would take the place of the last whole one for
// as long as the runtime is away.
func TestRuntimeGoesDuringARead(t *testing.T) {
	inWorld(t, fakeruntime.DefaultProfile, fakeruntime.Faults{}, func(w *world) {
		sandbox := w.sandbox(fakeruntime.PodSpec{UID: "p"})
		container := w.container(sandbox, fakeruntime.ContainerSpec{})
		pod := must(w.client.ListPod(w.Context(), "p"))
		w.check(w.rt.SetFaults(fakeruntime.Faults{HangItem: 1}))
		time.AfterFunc(50*time.Millisecond, w.rt.Down) // the sandbox's status has been answered
		got, err := w.client.Inspect(w.Context(), pod)
		if status.Code(err) != codes.Unavailable || got.Status != nil {
			w.Errorf("a read that has lost its runtime: status %v, unread %v, %v", got.Status, got.Unread, err)
		}

		w.rt.Up(0)
		got, err = w.client.Inspect(w.Context(), pod)
		if err == nil || got.Status == nil || len(got.Unread) != 1 || got.Unread[0] != container {
			w.Errorf("a container that hangs, later: status %v, unread %v, %v", got.Status, got.Unread, err)
		}
	})
}

// TestRuntimeGoneBeforeARead checks that a read has failed as a whole also if no connection could
// be made: what it takes over from the status before is no answer.
func TestRuntimeGoneBeforeARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := must(fakeruntime.New(fakeruntime.Config{Seed: 1}))
		listener, stop := serve(rt)
		defer stop()
		var conn net.Conn
		refuses := false
		client := must(cri.New(cri.Config{Dialer: func(ctx context.Context) (_ net.Conn, err error) {
			if refuses {
				return nil, syscall.ECONNREFUSED
			}
			conn, err = listener.DialContext(ctx)
			return conn, err
		}}))
		defer client.Close()

		sandbox := must(rt.AddPod(fakeruntime.PodSpec{UID: "p"}))
		must(rt.AddContainer(sandbox, fakeruntime.ContainerSpec{}))
		read := must(client.Inspect(t.Context(), must(client.ListPod(t.Context(), "p"))))
		must(rt.AddContainer(sandbox, fakeruntime.ContainerSpec{}))
		pod := must(client.ListPod(t.Context(), "p"))
		refuses = true
		_ = conn.Close()
		synctest.Wait() // the client has noticed
		got, err := client.Update(t.Context(), pod, read.Status)
		if status.Code(err) != codes.Unavailable || got.Status != nil {
			t.Errorf("a read without a runtime: status %v, unread %v, %v", got.Status, got.Unread, err)
		}
	})
}

// TestRuntimeUpgrade checks that the client learns the capabilities anew when the runtime returns
// as another version.
func TestRuntimeUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var listener *bufconn.Listener
		start := func(profile string) (stop func()) {
			p := must(fakeruntime.ProfileByName(profile))
			rt := must(fakeruntime.New(fakeruntime.Config{Profile: p, Seed: 1}))
			must(rt.Populate(fakeruntime.Population{Pods: 2, Containers: 1}))
			mu.Lock()
			defer mu.Unlock()
			listener, stop = serve(rt)
			return stop
		}
		client, err := cri.New(cri.Config{Dialer: func(ctx context.Context) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			return listener.DialContext(ctx)
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		var last uint64
		for _, step := range []struct{ profile, streaming, filled string }{
			{"containerd-1.7", "no", "no"}, {"containerd-2", "yes", "no"}, {"crio", "yes", "yes"}, {"no-events", "no", "no"},
		} {
			stop := start(step.profile)
			var listing pleg.Listing
			for range 2 {
				for {
					if listing, err = client.List(t.Context(), 0); err == nil {
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
				must(client.Inspect(t.Context(), listing.Pods[0]))
			}
			if st := client.Stats(); st.StreamingLists != step.streaming || st.FilledStatuses != step.filled {
				t.Errorf("%s: %+v", step.profile, st)
			}
			calls := client.Stats().Calls["StreamContainers"]
			must(client.List(t.Context(), 0))
			if asked := client.Stats().Calls["StreamContainers"] - calls; (asked == 1) != (step.streaming == "yes") {
				t.Errorf("%s: StreamContainers was called %d times in one List", step.profile, asked)
			}
			if v, err := client.Version(t.Context()); err != nil || v.RuntimeName == "" || v.String() == " " {
				t.Errorf("%s: version %v, %v", step.profile, v, err)
			}
			if n := client.Stats().Connects; n != last+1 {
				t.Errorf("%s: %d connections", step.profile, n)
			}
			last = client.Stats().Connects
			stop()
		}
	})
}
