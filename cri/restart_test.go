// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"errors"
	"net"
	"sync"
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
			first, err := w.client.List(w.Context(), 0)
			w.check(err)
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

// TestRuntimeUpgrade checks that the client learns the capabilities anew when the runtime returns
// as another version.
func TestRuntimeUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var listener *bufconn.Listener
		start := func(profile string) (stop func()) {
			p, err := fakeruntime.ProfileByName(profile)
			if err != nil {
				t.Fatal(err)
			}
			rt, err := fakeruntime.New(fakeruntime.Config{Profile: p, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := rt.Populate(fakeruntime.Population{Pods: 2, Containers: 1}); err != nil {
				t.Fatal(err)
			}
			l := bufconn.Listen(1 << 20)
			mu.Lock()
			listener = l
			mu.Unlock()
			ctx, cancel := context.WithCancel(context.Background())
			var served sync.WaitGroup
			served.Go(func() { _ = rt.Serve(ctx, l) })
			return func() { cancel(); served.Wait(); rt.Close() }
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
				if _, err := client.Inspect(t.Context(), listing.Pods[0]); err != nil {
					t.Error(err)
				}
			}
			if st := client.Stats(); st.StreamingLists != step.streaming || st.FilledStatuses != step.filled {
				t.Errorf("%s: %+v", step.profile, st)
			}
			calls := client.Stats().Calls["StreamContainers"]
			if _, err := client.List(t.Context(), 0); err != nil {
				t.Error(err)
			}
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

// TestFaultyReads checks that nonsense from a runtime yields partial knowledge, and never a wrong
// phase for the sound part.
func TestFaultyReads(t *testing.T) {
	for name, faults := range map[string]fakeruntime.Faults{
		"nil fields":       {NilFields: 0.5},
		"unknown enum":     {UnknownEnum: 0.5},
		"invalid UTF-8":    {InvalidUTF8: 0.5},
		"duplicate ID":     {DuplicateID: 1},
		"orphan container": {OrphanContainer: 1},
		"all":              {NilFields: 0.3, UnknownEnum: 0.3, InvalidUTF8: 0.3, DuplicateID: 0.5, OrphanContainer: 0.5},
	} {
		for _, profile := range []string{"containerd-2", "containerd-1.7", "crio"} {
			t.Run(name+"/"+profile, func(t *testing.T) {
				inWorld(t, profile, faults, func(w *world) {
					w.mixedNode()
					ids := map[string]bool{}
					for _, p := range w.truth() {
						for _, item := range p.Items {
							ids[item.ID] = true
						}
					}
					var revision pleg.Revision
					for range 20 {
						l, err := w.client.List(w.Context(), revision)
						if err != nil {
							w.Fatal(err)
						}
						revision = l.Revision
						for _, p := range l.Pods {
							if _, err := w.client.ListPod(w.Context(), p.UID); err != nil {
								w.Errorf("ListPod: %v", err)
							}
							if in, err := w.client.Inspect(w.Context(), p); err == nil {
								_, _ = in.Status.String(), in.Status.Err()
							}
						}
					}
					if w.client.Stats().Calls["ContainerStatus"]+w.client.Stats().Calls["PodSandboxStatus"] == 0 {
						w.Error("nothing was inspected")
					}
				})
			})
		}
	}
}

// TestFaultyEvents checks that meaningless events do not end the stream.
func TestFaultyEvents(t *testing.T) {
	faults := fakeruntime.Faults{InvalidEvent: 0.5, NilSandbox: 0.3, NilStatuses: 0.3, Stale: 0.3, Duplicate: 0.3}
	inWorld(t, fakeruntime.DefaultProfile, faults, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		claims := make(chan int)
		go func() {
			n := 0
			for claim, err := range w.client.Events(ctx) {
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						w.Errorf("the stream ended with %v", err)
					}
					break
				}
				n++
				if claim.Item.ID == "" {
					w.Errorf("a claim about nothing: %+v", claim)
				}
				if claim.Status != nil {
					if s, err := claim.Status(); err != nil {
						w.Error(err)
					} else {
						_ = s.String()
					}
				}
			}
			claims <- n
		}()
		synctest.Wait()
		for range 50 {
			sandbox := w.sandbox(fakeruntime.PodSpec{})
			c := w.container(sandbox, fakeruntime.ContainerSpec{})
			w.check(w.rt.Start(c))
			w.check(w.rt.RemoveSandbox(sandbox))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		cancel()
		if n := <-claims; n < 100 {
			w.Errorf("only %d claims came through", n)
		}
	})
}
