// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package stream_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
)

// judged lets ten pods live and die on a fake runtime, in virtual time, and returns what the judge
// makes of the stream that a client of package cri reads.
func judged(t *testing.T, profile string, faults ...string) (r stream.Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p, err := fakeruntime.ProfileByName(profile)
		if err != nil {
			t.Fatal(err)
		}
		f, err := fakeruntime.ParseFaults(faults...)
		if err != nil {
			t.Fatal(err)
		}
		rt, err := fakeruntime.New(fakeruntime.Config{Profile: p, Faults: f, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close()
		listener := bufconn.Listen(1 << 20)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() { _ = rt.Serve(ctx, listener) })

		judge := stream.New(0) // the reader's goroutine owns it until that has ended
		client, err := cri.New(cri.Config{
			Dialer:         func(ctx context.Context) (net.Conn, error) { return listener.DialContext(ctx) },
			OnEvent:        func(message []byte) { judge.Event(time.Now(), message) },
			MaxMessageSize: 1 << 20,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		listenCtx, stopListening := context.WithCancel(ctx)
		var listening sync.WaitGroup
		listening.Go(func() {
			for listenCtx.Err() == nil {
				judge.Opened(time.Now())
				for _, err := range client.Events(listenCtx) {
					if err != nil && listenCtx.Err() == nil {
						judge.Ended(plain(err))
					}
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		time.Sleep(100 * time.Millisecond)
		for range 10 {
			live(t, rt)
		}
		time.Sleep(2 * time.Second)
		stopListening()
		listening.Wait()
		r = judge.Report(time.Now())
	})
	return r
}

// plain says why a stream ended, without addresses.
func plain(err error) string {
	if errors.Is(err, io.EOF) {
		return "EOF"
	}
	return "failed"
}

// live is the life of a pod with two containers that exit and are removed.
func live(t *testing.T, rt *fakeruntime.Runtime) {
	sandbox, err := rt.AddPod(fakeruntime.PodSpec{})
	if err != nil {
		t.Fatal(err)
	}
	step := func(errs ...error) {
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	var ids []string
	for range 2 {
		id, err := rt.AddContainer(sandbox, fakeruntime.ContainerSpec{})
		step(err)
		step(rt.Start(id))
		ids = append(ids, id)
	}
	for _, id := range ids {
		step(rt.Exit(id, 0))
		step(rt.Remove(id))
	}
	step(rt.StopSandbox(sandbox))
	step(rt.RemoveSandbox(sandbox))
}

// TestHonestStreams finds nothing wrong with a runtime that does what it should, on each profile.
func TestHonestStreams(t *testing.T) {
	for _, profile := range []string{"containerd-2", "containerd-2.0", "containerd-1.7", "crio"} {
		t.Run(profile, func(t *testing.T) {
			r := judged(t, profile)
			if len(r.Flaws) != 0 || len(r.Skipped) != 0 || r.Replayed != 0 || len(r.Endings) != 0 || r.ToldSomething < 80 {
				t.Errorf("flaws %v %v, %d replayed, endings %v, %d told something; want none of these and 80 or more told", r.Flaws, r.Examples, r.Replayed, r.Endings, r.ToldSomething)
			}
		})
	}
}

// TestFaultsAreFound names each fault of the stream by what a person would call it, and no other.
func TestFaultsAreFound(t *testing.T) {
	for fault, want := range map[string]struct {
		flaw stream.Flaw
		// also may come with it.
		also []stream.Flaw
	}{
		"duplicate=0.5":      {flaw: stream.Duplicate},
		"stale=0.5":          {flaw: stream.StalePayload},
		"swap-stop-delete=1": {flaw: stream.Reordered, also: []stream.Flaw{stream.StampBack}},
		"nil-sandbox=0.5":    {flaw: stream.NoSandbox, also: []stream.Flaw{stream.NoStatuses}},
		"nil-statuses=0.5":   {flaw: stream.NoStatuses},
		"clock-skew=5s":      {flaw: stream.FromFuture},
		"delay=0.5":          {flaw: stream.StampBack, also: []stream.Flaw{stream.Reordered, stream.StalePayload}},
		"invalid-event=0.5":  {flaw: stream.Malformed, also: []stream.Flaw{stream.UnknownType}},
		"clock-step=-100ms":  {flaw: stream.StampBack},
	} {
		t.Run(fault, func(t *testing.T) {
			faults := []string{fault}
			if fault == "clock-step=-100ms" {
				faults = append(faults, "clock-step-every=300ms")
			}
			r := judged(t, "containerd-2", faults...)
			if r.Flaws[want.flaw] == 0 {
				t.Errorf("%s is not found: %v", want.flaw, r.Flaws)
			}
			for f := range r.Flaws {
				if f == want.flaw {
					continue
				}
				found := false
				for _, also := range want.also {
					found = found || f == also
				}
				if !found {
					t.Errorf("%s is found too, %d times: %s", f, r.Flaws[f], r.Examples[f])
				}
			}
		})
	}
}

// TestSwapStopDelete names the order.
func TestSwapStopDelete(t *testing.T) {
	r := judged(t, "containerd-2", "swap-stop-delete=1")
	if r.Reordered["STOPPED after DELETED"] != 20 || len(r.Reordered) != 1 || len(r.Skipped) != 0 {
		t.Errorf("reordered %v, skipped %v, want 20 STOPPED after DELETED", r.Reordered, r.Skipped)
	}
}

// TestSwapStartStop names the order: a start that is held back until the stop is told after it. In real time
// it depends on how busy the machine is whether a container exits soon enough for that.
func TestSwapStartStop(t *testing.T) {
	r := judged(t, "containerd-2", "swap-start-stop=1")
	if r.Reordered["STARTED after STOPPED"] != 20 || len(r.Reordered) != 1 || len(r.Skipped) != 0 {
		t.Errorf("reordered %v, skipped %v, want 20 STARTED after STOPPED", r.Reordered, r.Skipped)
	}
}

// TestDroppedEvents are found in part by what comes after them.
func TestDroppedEvents(t *testing.T) {
	r := judged(t, "containerd-2", "drop=0.3")
	if r.Skipped["STARTED"] == 0 || r.Skipped["STOPPED"] == 0 || r.Skipped["CREATED"] == 0 {
		t.Errorf("skipped %v, want some of each type but DELETED", r.Skipped)
	}
}

// TestSilentExits leave containers that have exited, as others' payloads show, and no event says so.
func TestSilentExits(t *testing.T) {
	r := judged(t, "containerd-2", "silent-exit=1")
	if r.Skipped["STOPPED"] == 0 {
		t.Errorf("skipped %v, want some STOPPED", r.Skipped)
	}
}

// TestReplaysAndEnds come with streams that are opened anew.
func TestReplaysAndEnds(t *testing.T) {
	r := judged(t, "containerd-2", "eof=0.1", "replay=1", "replay-events=5")
	if r.Endings["EOF"] == 0 || r.Replayed == 0 || r.Opened != r.Endings["EOF"]+1 || r.ReplayDelays.Count != r.Replayed {
		t.Errorf("endings %v, opened %d, replayed %d with %d delays", r.Endings, r.Opened, r.Replayed, r.ReplayDelays.Count)
	}
	if r.Flaws[stream.Duplicate] != 0 {
		t.Errorf("%d duplicates: replays are none: %s", r.Flaws[stream.Duplicate], r.Examples[stream.Duplicate])
	}
}
