// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// oneLife is a pod with a short-lived container, between two waits that release everything held.
func oneLife(t *testing.T, w *world, lived time.Duration) (sb, c string) {
	t.Helper()
	sb = must(w.rt.AddPod(PodSpec{}))(t)
	c = must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
	check(t, w.rt.Start(c))
	time.Sleep(lived)
	check(t, w.rt.Exit(c, 3))
	return sb, c
}

func TestEventFaults(t *testing.T) {
	created, started := "pod created", "pod started"
	normal := []string{created, started, "created", "started", "stopped"}
	for _, tt := range []struct {
		name   string
		crio   bool
		faults Faults
		lived  time.Duration
		remove bool
		want   []string // events; nil: the normal ones
		check  func(t *testing.T, events []*runtimeapi.ContainerEventResponse)
		fate   Emission // of the exit's event; NoEvent: Emitted
	}{
		{name: "none"},
		{name: "drop", faults: Faults{Drop: 1}, want: []string{}, fate: Faulted},
		{name: "silent-exit", faults: Faults{SilentExit: 1}, want: []string{created, started, "created", "started"}, fate: Faulted},
		{
			name: "duplicate", faults: Faults{Duplicate: 1},
			want: []string{created, created, started, started, "created", "created", "started", "started", "stopped", "stopped"},
		},
		{
			name: "delay", faults: Faults{Delay: 1, DelayBy: time.Second},
			check: func(t *testing.T, events []*runtimeapi.ContainerEventResponse) {
				// The stamp and the payload are those of the moment of the change.
				if st := events[2].ContainersStatuses[0].State; st != runtimeapi.ContainerState_CONTAINER_CREATED {
					t.Errorf("delayed CREATED shows %v", st)
				}
			},
		},
		{
			name: "swap-start-stop", faults: Faults{SwapStartStop: 1}, lived: 50 * time.Millisecond,
			want: []string{created, started, "created", "stopped", "started"},
			check: func(t *testing.T, events []*runtimeapi.ContainerEventResponse) {
				if st := events[4].ContainersStatuses[0].State; st != runtimeapi.ContainerState_CONTAINER_EXITED {
					t.Errorf("late STARTED shows %v, want EXITED", st)
				}
			},
		},
		{name: "swap-start-stop of a long life", faults: Faults{SwapStartStop: 1}, lived: time.Second},
		{
			name: "swap-stop-delete", faults: Faults{SwapStopDelete: 1}, remove: true,
			want: []string{created, started, "created", "started", "deleted", "stopped"},
			check: func(t *testing.T, events []*runtimeapi.ContainerEventResponse) {
				if n := len(events[5].ContainersStatuses); n != 0 {
					t.Errorf("late STOPPED shows %d containers", n)
				}
			},
		},
		{
			name: "nil-sandbox", faults: Faults{NilSandbox: 1},
			want: []string{"created", "started", "created", "started", "stopped"},
			check: func(t *testing.T, events []*runtimeapi.ContainerEventResponse) {
				for _, ev := range events {
					if ev.PodSandboxStatus != nil {
						t.Errorf("has a sandbox: %v", ev)
					}
				}
			},
		},
		{
			name: "bare-payload", faults: Faults{BarePayload: 1},
			check: func(t *testing.T, events []*runtimeapi.ContainerEventResponse) {
				for _, ev := range events {
					if sb := ev.PodSandboxStatus; sb.GetId() == "" || sb.Metadata != nil || sb.Labels != nil || sb.CreatedAt != 0 {
						t.Errorf("has another sandbox than a bare one: %v", ev)
					}
				}
				if st := events[4].ContainersStatuses[0]; st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.Metadata.GetName() == "" {
					t.Errorf("has no whole container: %v", st)
				}
			},
		},
		{
			name: "nil-statuses", faults: Faults{NilStatuses: 1},
			check: func(t *testing.T, events []*runtimeapi.ContainerEventResponse) {
				for _, ev := range events {
					if ev.ContainersStatuses != nil {
						t.Errorf("has containers: %v", ev)
					}
				}
			},
		},
		{name: "nil-sandbox of CRI-O, which then sends no event", crio: true, faults: Faults{NilSandbox: 1}, want: []string{}, fate: Faulted},
		{name: "nil-statuses of CRI-O", crio: true, faults: Faults{NilStatuses: 1}, want: []string{}, fate: Faulted},
		{
			name: "clock-skew", faults: Faults{ClockSkew: -time.Hour},
			check: func(t *testing.T, events []*runtimeapi.ContainerEventResponse) {
				if age := time.Since(time.Unix(0, events[0].CreatedAt)); age < time.Hour || age > time.Hour+time.Minute {
					t.Errorf("the first event seems %v old", age)
				}
			},
		},
		{
			name: "exit-lag", faults: Faults{ExitLag: 100 * time.Millisecond}, lived: time.Second,
			check: func(t *testing.T, events []*runtimeapi.ContainerEventResponse) {
				ev := events[4]
				if lag := time.Duration(ev.CreatedAt - ev.ContainersStatuses[0].FinishedAt); lag != 100*time.Millisecond+containerdExitLag {
					t.Errorf("event %v after finished_at", lag)
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Config{Faults: tt.faults}
			if tt.crio {
				cfg.Profile = profileNamed(t, "crio")
			}
			inBubble(t, cfg, func(t *testing.T, w *world) {
				l := w.listen(w.conn)
				_, c := oneLife(t, w, tt.lived)
				if tt.remove {
					check(t, w.rt.Remove(c))
				}
				time.Sleep(5 * time.Second)
				events := l.stop()
				want := tt.want
				if want == nil {
					want = normal
				}
				if diff := gocmp.Diff(want, kinds(events)); diff != "" {
					t.Fatalf("events (-want +got):\n%s", diff)
				}
				if tt.check != nil {
					tt.check(t, events)
				}
				changes, _ := w.rt.History(3)
				if ch := changes[0]; ch.New != StateExited || ch.ExitCode != 3 || ch.ContainerID != c ||
					ch.Event != cmp.Or(tt.fate, Emitted) {
					t.Errorf("the exit in the history: %+v", ch)
				}
			})
		})
	}
}

// A stale payload has the newest stamp, the truth about its own container, and the past of all
// others, gone ones included.
func TestStalePayload(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		l := w.listen(w.conn)
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		var ids []string
		for range 4 { // running, exited, removed, and the event's own
			c := must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
			check(t, w.rt.Start(c))
			ids = append(ids, c)
		}
		check(t, w.rt.Exit(ids[1], 1))
		check(t, w.rt.Exit(ids[2], 2))
		check(t, w.rt.Remove(ids[2]))
		time.Sleep(time.Second)
		check(t, w.rt.SetFaults(Faults{Stale: 1}))
		check(t, w.rt.Exit(ids[3], 3))
		events := l.stop()
		got := map[string]runtimeapi.ContainerState{}
		last := events[len(events)-1]
		for _, st := range last.ContainersStatuses {
			got[st.Id] = st.State
		}
		want := map[string]runtimeapi.ContainerState{
			ids[0]: runtimeapi.ContainerState_CONTAINER_CREATED,
			ids[1]: runtimeapi.ContainerState_CONTAINER_RUNNING,
			ids[2]: runtimeapi.ContainerState_CONTAINER_EXITED,
			ids[3]: runtimeapi.ContainerState_CONTAINER_EXITED,
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
		if last.CreatedAt != time.Now().UnixNano() {
			t.Errorf("stamp %v", time.Unix(0, last.CreatedAt))
		}
	})
}

// Streams that end, hang or never begin.
func TestStreamFaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		faults Faults
		events int
		code   codes.Code // of the end; OK: none, or EOF
		eof    bool
	}{
		{name: "cut", faults: Faults{Cut: 1}, events: 1, code: codes.Unavailable},
		{name: "eof", faults: Faults{EOF: 1}, events: 1, eof: true},
		{name: "stall", faults: Faults{Stall: 1}, events: 1},
		{name: "eof-at-once", faults: Faults{EOFAtOnce: 1}, eof: true},
		{name: "unimplemented", faults: Faults{Unimplemented: 1}, code: codes.Unimplemented},
		{name: "oversize", faults: Faults{Oversize: 1}, code: codes.ResourceExhausted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, Config{Faults: tt.faults}, func(t *testing.T, w *world) {
				conn := w.dial(t, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
				l := w.listen(conn)
				oneLife(t, w, 0)
				time.Sleep(time.Minute)
				err := l.error()
				if n := len(l.soFar()); n != tt.events {
					t.Errorf("%d events, want %d", n, tt.events)
				}
				if tt.eof != (err == io.EOF) || !tt.eof && status.Code(err) != tt.code {
					t.Errorf("ended with %v", err)
				}
				l.stop()
				synctest.Wait()
				if n := w.rt.Stats().Subscribers; n != 0 && tt.name != "stall" {
					t.Errorf("%d subscribers left", n)
				}
			})
		})
	}
}

// Events of a stalled stream are lost to the stream, and nobody is blocked; a new stream works.
func TestStalledStreamBlocksNobody(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		l := w.listen(w.conn)
		w.rt.StallStreams()
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		w.flood(sb, 1000)
		if s := w.rt.Stats(); s.Blocked != 0 || s.Subscribers != 1 {
			t.Errorf("%+v", s)
		}
		other := w.dial(t)
		l2 := w.listen(other)
		w.flood(sb, 5)
		if n, m := len(l.stop()), len(l2.stop()); n != 0 || m != 5 {
			t.Errorf("the stalled stream got %d events, the new one %d", n, m)
		}
	})
}

// The driver ends streams: with an error, or cleanly.
func TestCutStreams(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		l := w.listen(w.conn)
		w.rt.CutStreams(Code(codes.Internal))
		if err := l.error(); status.Code(err) != codes.Internal {
			t.Errorf("ended with %v", err)
		}
		l.stop()
		l = w.listen(w.conn)
		w.rt.CutStreams(0)
		if err := l.error(); err != io.EOF {
			t.Errorf("ended with %v", err)
		}
		l.stop()
		l = w.listen(w.conn)
		w.rt.StallStreams()
		synctest.Wait()
		w.rt.CutStreams(0)
		if err := l.error(); err != io.EOF {
			t.Errorf("the stalled one ended with %v", err)
		}
		l.stop()
	})
}

// A stream that the driver ends, or a fault, blocks nobody from then on: what happens at the same
// moment is for the next subscriber, in any order of goroutines.
func TestEndedStreamsBlockNobody(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		must(w.cri.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}))(t) // is never read
		synctest.Wait()
		w.flood(sb, 1000)
		synctest.Wait()
		if n := w.rt.Stats().Blocked; n == 0 {
			t.Fatal("no event is blocked")
		}
		w.rt.CutStreams(Code(codes.Unavailable))
		if s := w.rt.Stats(); s.Blocked != 0 || s.Subscribers != 0 {
			t.Errorf("after the cut: %+v", s)
		}
	})
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		l := w.listen(w.conn)
		w.rt.CutStreams(0)
		must(w.rt.AddPod(PodSpec{}))(t)
		if n := len(l.stop()); n != 0 {
			t.Errorf("the ended stream has %d events", n)
		}
		if got := kinds(w.listen(w.conn).stop()); len(got) != 2 {
			t.Errorf("the next subscriber has %v", got)
		}
	})
}

// Streaming lists under way together are struck as one after the other.
func TestStreamingListsAreNumbered(t *testing.T) {
	run := func(together bool) (codesOf []string) {
		inBubble(t, Config{Faults: Faults{CutList: 0.5, SlowList: time.Second}}, func(t *testing.T, w *world) {
			must(w.rt.Populate(Population{Pods: 2, Containers: 1}))(t)
			const calls = 8
			ended := make([]codes.Code, calls)
			var wg sync.WaitGroup
			for i := range calls {
				stream := must(streamList[runtimeapi.ListContainersResponse](t.Context(), w.conn, "StreamContainers"))(t)
				wg.Go(func() {
					var err error
					for err == nil {
						_, err = stream.Recv()
					}
					if err != io.EOF {
						ended[i] = status.Code(err)
					}
				})
				synctest.Wait() // the call has its number
				if !together {
					wg.Wait()
				}
			}
			wg.Wait()
			for _, c := range ended {
				codesOf = append(codesOf, c.String())
			}
		})
		return codesOf
	}
	if diff := gocmp.Diff(run(false), run(true)); diff != "" {
		t.Errorf("one after the other (-), together (+):\n%s", diff)
	}
}

// A runtime without a method refuses it at once, whatever the faults of its lists.
func TestAbsentMethodsHaveNoFaults(t *testing.T) {
	cfg := Config{Profile: profileNamed(t, "containerd-2.0"), Faults: Faults{SlowList: time.Second, FailList: 1}}
	inBubble(t, cfg, func(t *testing.T, w *world) {
		for _, method := range []string{"StreamContainers", "StreamPodSandboxes", "StreamContainerStats", "StreamPodSandboxStats", "StreamImages"} {
			begun := time.Now()
			stream := must(streamList[runtimeapi.ListContainersResponse](t.Context(), w.conn, method))(t)
			_, err := stream.Recv()
			if took := time.Since(begun); status.Code(err) != codes.Unimplemented || took != 0 {
				t.Errorf("%s: %v after %v", method, err, took)
			}
		}
	})
}

// A replay ends no stream and stalls none: its events had their turn, and the new ones behind it
// would be lost with each stream.
func TestReplaysEndNoStream(t *testing.T) {
	for name, faults := range map[string]Faults{
		"cut":   {Replay: 1, Cut: 1},
		"eof":   {Replay: 1, EOF: 1},
		"stall": {Replay: 1, Stall: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Faults: faults}, func(t *testing.T, w *world) {
				first := w.listen(w.conn)
				sb := must(w.rt.AddPod(PodSpec{}))(t)
				if got := kinds(first.stop()); !slices.Equal(got, []string{"pod created"}) {
					t.Fatalf("the first stream has %v", got)
				}
				must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
				must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
				second := w.listen(w.conn)
				ended := second.error() != nil
				want := []string{"pod created", "pod started", "created"}
				if got := kinds(second.stop()); !slices.Equal(got, want) {
					t.Errorf("the second stream has %v, want %v, a replay and what is new", got, want)
				}
				if ended == (faults.Stall > 0) {
					t.Errorf("the second stream has ended: %v", ended)
				}
			})
		})
	}
}

// What no client can read is not replayed: each stream would end at the same place.
func TestReplaysCanBeRead(t *testing.T) {
	for name, faults := range map[string]Faults{
		"too large": {Oversize: 1, Duplicate: 1},
		"invalid":   {InvalidEvent: 1, Duplicate: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Faults: faults}, func(t *testing.T, w *world) {
				conn := w.dial(t, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<20)))
				first := w.listen(conn)
				var sb string
				for first.error() == nil { // of the invalid events only some cannot be read
					sb = must(w.rt.AddPod(PodSpec{}))(t)
				}
				first.stop()
				check(t, w.rt.SetFaults(Faults{Replay: 1}))
				w.flood(sb, 1) // notices the client's end
				synctest.Wait()
				must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
				second := w.listen(conn)
				if err := second.error(); err != nil {
					t.Errorf("the second stream: %v", err)
				}
				if got := kinds(second.stop()); !slices.Equal(got, []string{"created", "created"}) {
					t.Errorf("the second stream has %v, want a replay and what is new", got)
				}
			})
		})
	}
}

// A replay sends old events again, before the new ones.
func TestReplay(t *testing.T) {
	inBubble(t, Config{Faults: Faults{Replay: 1, ReplayEvents: 3}}, func(t *testing.T, w *world) {
		l := w.listen(w.conn)
		oneLife(t, w, 0)
		first := l.stop()
		w.rt.CutStreams(0)
		synctest.Wait()
		l = w.listen(w.conn)
		must(w.rt.AddPod(PodSpec{}))(t)
		again := l.stop()
		if len(first) != 5 || len(again) != 5 {
			t.Fatalf("%v, then %v", kinds(first), kinds(again))
		}
		for i := range 3 {
			if !proto.Equal(first[2+i], again[i]) {
				t.Errorf("replayed event %d: %v, want %v", i, again[i], first[2+i])
			}
		}
	})
}

// Events that no decoder should trust.
func TestInvalidEvents(t *testing.T) {
	inBubble(t, Config{Faults: Faults{InvalidEvent: 1}}, func(t *testing.T, w *world) {
		seen := map[string]bool{}
		for i := 0; len(seen) < 3 && i < 100; i++ {
			l := w.listen(w.conn)
			sb := must(w.rt.AddPod(PodSpec{}))(t)
			events, err := l.soFar(), l.error()
			for _, ev := range events {
				switch {
				case ev.ContainerEventType == 99:
					seen["unknown type"] = true
				case ev.ContainerId == "":
					seen["no ID"] = true
				}
			}
			if err != nil {
				seen["not UTF-8"] = true
			}
			l.stop()
			check(t, w.rt.RemoveSandbox(sb))
			time.Sleep(time.Second)
		}
		if len(seen) != 3 {
			t.Errorf("only saw %v", seen)
		}
	})
}

func TestFailedStart(t *testing.T) {
	inBubble(t, Config{Faults: Faults{StartError: 1, SandboxError: 1}}, func(t *testing.T, w *world) {
		l := w.listen(w.conn)
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		c := w.create(sb, containerConfig("a"))
		if _, err := w.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c}); err == nil {
			t.Error("StartContainer succeeded")
		}
		st := w.status(c)
		if st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != 128 ||
			st.Reason != "StartError" {
			t.Errorf("status: %v", st)
		}
		if _, err := w.cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: podConfig("p", 0)}); err == nil {
			t.Error("RunPodSandbox succeeded")
		}
		if diff := gocmp.Diff([]string{"pod created", "pod started", "created"}, kinds(l.stop())); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestClockSteps(t *testing.T) {
	inBubble(
		t,
		Config{Faults: Faults{ClockStep: -time.Minute, ClockStepEvery: 10 * time.Second}},
		func(t *testing.T, w *world) {
			var got []time.Duration
			for range 4 {
				sb := must(w.rt.AddPod(PodSpec{}))(t)
				st := w.sandboxStatus(sb)
				got = append(got, time.Since(time.Unix(0, st.CreatedAt)))
				time.Sleep(10 * time.Second)
			}
			if diff := gocmp.Diff([]time.Duration{0, time.Minute, 0, time.Minute}, got); diff != "" {
				t.Errorf("the clock is behind by (-want +got):\n%s", diff)
			}
		},
	)
}

// Calls that are slow, fail or hang: of their own kind only.
func TestCallFaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		faults Faults
		kind   callKind
		code   codes.Code
		took   time.Duration
	}{
		{"slow-list", Faults{SlowList: time.Second}, callList, codes.OK, time.Second},
		{"slow-status", Faults{SlowStatus: time.Second}, callStatus, codes.OK, time.Second},
		{"slow-container, sandboxes", Faults{SlowContainer: time.Second}, callStatus, codes.OK, 0},
		{"slow-write", Faults{SlowWrite: time.Second}, callWrite, codes.OK, time.Second},
		{"fail-list", Faults{FailList: 1}, callList, codes.Unknown, 0},
		{"fail-status", Faults{FailStatus: 1, FailCode: Code(codes.Internal)}, callStatus, codes.Internal, 0},
		{"fail-write", Faults{FailWrite: 1, FailCode: Code(codes.Unavailable)}, callWrite, codes.Unavailable, 0},
		{"hang-list", Faults{HangList: 1}, callList, codes.DeadlineExceeded, 5 * time.Second},
		{"hang-status", Faults{HangStatus: 1}, callStatus, codes.DeadlineExceeded, 5 * time.Second},
		{"hang-write", Faults{HangWrite: 1}, callWrite, codes.DeadlineExceeded, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, Config{Faults: tt.faults}, func(t *testing.T, w *world) {
				ids := must(w.rt.Populate(Population{Pods: 1}))(t)
				calls := map[callKind]struct {
					method  string
					request proto.Message
				}{
					callOther:  {"Version", &runtimeapi.VersionRequest{}},
					callList:   {"ListPodSandbox", &runtimeapi.ListPodSandboxRequest{}},
					callStatus: {"PodSandboxStatus", &runtimeapi.PodSandboxStatusRequest{PodSandboxId: ids[0]}},
					callWrite:  {"StopPodSandbox", &runtimeapi.StopPodSandboxRequest{PodSandboxId: ids[0]}},
				}
				for kind, call := range calls {
					begun := time.Now()
					err := w.conn.Invoke(
						timeout(t, 5*time.Second),
						"/runtime.v1.RuntimeService/"+call.method,
						call.request,
						&emptypb.Empty{},
					)
					wantCode, wantTook := codes.OK, time.Duration(0)
					if kind == tt.kind {
						wantCode, wantTook = tt.code, tt.took
					}
					if status.Code(err) != wantCode || time.Since(begun) != wantTook {
						t.Errorf(
							"call of kind %d: %v after %v; want %v after %v",
							kind,
							err,
							time.Since(begun),
							wantCode,
							wantTook,
						)
					}
					if state := w.rt.Truth().Pods[0].Sandboxes[0].State; kind == callWrite &&
						(err != nil) != (state == StateReady) {
						t.Errorf("a write that ended with %v has left the sandbox %v", err, state)
					}
				}
			})
		})
	}
}

// Of the two lists that make up the pods one alone is slow or hangs, plain or streaming.
func TestFaultsOfOneList(t *testing.T) {
	for _, tt := range []struct {
		faults                Faults
		sandboxes, containers time.Duration // until the answer
	}{
		{Faults{SlowSandboxList: time.Second}, time.Second, 0},
		{Faults{SlowContainerList: time.Second}, 0, time.Second},
		{Faults{SlowList: time.Second, SlowContainerList: time.Second}, time.Second, 2 * time.Second},
		{Faults{HangSandboxList: 1}, 5 * time.Second, 0},
		{Faults{HangContainerList: 1}, 0, 5 * time.Second},
	} {
		t.Run(tt.faults.String(), func(t *testing.T) {
			inBubble(t, Config{Faults: tt.faults}, func(t *testing.T, w *world) {
				must(w.rt.Populate(Population{Pods: 1, Containers: 1}))(t)
				for method, want := range map[string]time.Duration{
					"ListPodSandbox":     tt.sandboxes,
					"StreamPodSandboxes": tt.sandboxes,
					"ListContainers":     tt.containers,
					"StreamContainers":   tt.containers,
				} {
					begun := time.Now()
					ctx := timeout(t, 5*time.Second)
					stream := must(streamList[runtimeapi.ListContainersResponse](ctx, w.conn, method))(t)
					_, err := stream.Recv()
					took := time.Since(begun)
					if took != want || (err != nil) != (want == 5*time.Second) {
						t.Errorf("%s: %v after %v, want an answer after %v, or none after 5s", method, err, took, want)
					}
				}
			})
		})
	}
}

// A pod that is made between the two answers of a slow list of containers is in the second alone.
func TestTornLists(t *testing.T) {
	inBubble(t, Config{Faults: Faults{SlowContainerList: time.Second}}, func(t *testing.T, w *world) {
		sandboxes := w.sandboxes()
		answered := make(chan []*runtimeapi.Container)
		go func() { answered <- w.containers() }()
		time.Sleep(time.Second / 2)
		c := must(w.rt.AddContainer(must(w.rt.AddPod(PodSpec{}))(t), ContainerSpec{}))(t)
		containers := <-answered
		if len(sandboxes) != 0 || len(containers) != 1 || containers[0].Id != c {
			t.Errorf("the lists show the sandboxes %v and the containers %v", sandboxes, containers)
		}
	})
}

// A runtime that has used up its share of the processors answers at the begin of one of the next
// two periods.
func TestThrottle(t *testing.T) {
	inBubble(t, Config{Faults: Faults{Throttle: 1}}, func(t *testing.T, w *world) {
		ids := must(w.rt.Populate(Population{Pods: 1}))(t)
		periods := make(map[time.Duration]int)
		for i := range 40 {
			time.Sleep(7 * time.Millisecond)
			begun := time.Now()
			invoke := func(method string, request proto.Message) {
				name := "/runtime.v1.RuntimeService/" + method
				if err := w.conn.Invoke(t.Context(), name, request, &emptypb.Empty{}); err != nil {
					t.Error(err)
				}
			}
			if i%2 == 0 {
				invoke("ListContainers", &runtimeapi.ListContainersRequest{})
			} else {
				invoke("PodSandboxStatus", &runtimeapi.PodSandboxStatusRequest{PodSandboxId: ids[0]})
			}
			if into := time.Since(w.rt.begun) % sharePeriod; into != 0 {
				t.Errorf("call %d is answered %v into a period", i, into)
			}
			periods[time.Since(begun).Truncate(sharePeriod)]++
			begun = time.Now()
			invoke("Version", &runtimeapi.VersionRequest{})
			if took := time.Since(begun); took != 0 {
				t.Errorf("call %d, no list and no status, took %v", i, took)
			}
		}
		if len(periods) != 2 || periods[0] == 0 || periods[sharePeriod] == 0 {
			t.Errorf("the answers came after so many whole periods: %v, want some of 0 and of 1", periods)
		}
	})
}

// A streaming list that breaks half way: the sent part is right, and incomplete.
func TestCutList(t *testing.T) {
	inBubble(t, Config{Faults: Faults{CutList: 1}}, func(t *testing.T, w *world) {
		must(w.rt.Populate(Population{Pods: 4, Containers: 2}))(t)
		containers := must(streamList[runtimeapi.ListContainersResponse](t.Context(), w.conn, "StreamContainers"))(t)
		if batch := must(containers.Recv())(t); len(batch.Containers) != 4 {
			t.Errorf("%d containers", len(batch.Containers))
		}
		if _, err := containers.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("then %v", err)
		}
		sandboxes := must(streamList[runtimeapi.ListPodSandboxResponse](t.Context(), w.conn, "StreamPodSandboxes"))(t)
		if batch := must(sandboxes.Recv())(t); len(batch.Items) != 2 {
			t.Errorf("%d sandboxes", len(batch.Items))
		}
		if _, err := sandboxes.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("then %v", err)
		}
	})
}

// The same seed and the same calls give the same IDs, events and history, whatever the faults.
func TestSeedIsAScenario(t *testing.T) {
	run := func(seed uint64) (changes []Change, events []*runtimeapi.ContainerEventResponse) {
		f := must(ParseFaults("drop=0.2", "duplicate=0.2", "delay=0.3", "swap-start-stop=0.3", "swap-stop-delete=0.3", "stale=0.3", "nil-statuses=0.2", "silent-exit=0.2"))(t)
		inBubble(t, Config{Seed: seed, Faults: f}, func(t *testing.T, w *world) {
			l := w.listen(w.conn)
			for range 20 {
				sb, c := oneLife(t, w, 30*time.Millisecond)
				check(t, w.rt.Remove(c))
				check(t, w.rt.RemoveSandbox(sb))
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(time.Second)
			events = l.stop()
			changes, _ = w.rt.History(0)
		})
		return changes, events
	}
	changes, events := run(7)
	changes2, events2 := run(7)
	if diff := gocmp.Diff(changes, changes2); diff != "" {
		t.Errorf("histories of one seed differ:\n%s", diff)
	}
	if diff := gocmp.Diff(events, events2, protocmp.Transform()); diff != "" {
		t.Errorf("events of one seed differ:\n%s", diff)
	}
	if changes3, _ := run(8); gocmp.Equal(changes, changes3) {
		t.Error("another seed gives the same history")
	}
}

// Every field of Faults has its tags, and an example that changes something.
func TestFaultListIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range FaultList() {
		if seen[d.Name] || d.Name == "" || d.Help == "" || d.Kind == "" || strings.ToLower(d.Name) != d.Name {
			t.Errorf("fault %q: its name must be new, lower case, and have a kind and help", d.Name)
		}
		seen[d.Name] = true
		if d.Example != "" && must(ParseFaults(d.Name+"="+d.Example))(t) == (Faults{}) {
			t.Errorf("fault %q: the example %s changes nothing", d.Name, d.Example)
		}
	}
}

func TestParseFaults(t *testing.T) {
	got := must(ParseFaults("drop=0.05", " delay = 1", "delay-by=2s", "oversize-bytes=1000", "fail-code=DEADLINE_EXCEEDED", "clock-step=-1m", "drop=0.5"))(t)
	want := Faults{Drop: 0.5, Delay: 1, DelayBy: 2 * time.Second, OversizeBytes: 1000, FailCode: Code(codes.DeadlineExceeded), ClockStep: -time.Minute}
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if s := got.String(); s != "drop=0.5 delay=1 delay-by=2s oversize-bytes=1000 clock-step=-1m0s fail-code=DeadlineExceeded" {
		t.Errorf("String: %s", s)
	}
	for spec, names := range map[string][]string{
		"drop":                     {`"drop"`, "NAME=VALUE"},
		"dorp=1":                   {`"dorp"`, "duplicate"},
		"drop=2":                   {"drop=2", "0 to 1"},
		"drop=NaN":                 {"drop=NaN", "0 to 1"},
		"drop=-0.1":                {"drop=-0.1"},
		"drop=x":                   {"drop=x"},
		"delay-by=5":               {"delay-by=5"},
		"delay-by=-5s":             {"delay-by", "negative"},
		"clock-skew=2000000h":      {"clock-skew", "too long"},
		"oversize-bytes=999999999": {"oversize-bytes"},
		"replay-events=-1":         {"replay-events"},
		"fail-code=OK":             {"fail-code", "Unavailable"},
		"fail-code=17":             {"fail-code"},
		"":                         {"NAME=VALUE"},
	} {
		_, err := ParseFaults(spec)
		if err == nil {
			t.Errorf("%q: no error", spec)
			continue
		}
		for _, n := range names {
			if !strings.Contains(err.Error(), n) {
				t.Errorf("%q: the error does not say %s: %v", spec, n, err)
			}
		}
	}
	if _, err := ParseFaults("drop=2", "x=1"); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two errors: %v", err)
	}
	if err := (Faults{Drop: 3, DelayBy: -1}).Validate(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("Validate: %v", err)
	}
	rt := must(New(Config{}))(t)
	if err := rt.SetFaults(Faults{Drop: 3}); err == nil || rt.Faults() != (Faults{}) {
		t.Errorf("SetFaults: %v", err)
	}
}

// Accepted faults can be written and read back.
func FuzzParseFaults(f *testing.F) {
	for _, d := range faultList {
		f.Add(d.Name + "=" + d.Example)
	}
	f.Add("fail-code=14")
	f.Add("delay-by=1h1m1.5s")
	f.Fuzz(func(t *testing.T, spec string) {
		got, err := ParseFaults(spec)
		if err != nil {
			return
		}
		if err := got.Validate(); err != nil {
			t.Fatalf("%q is accepted, but %v", spec, err)
		}
		if again, err := ParseFaults(got.Strings()...); err != nil || again != got {
			t.Fatalf("%q: %v, %v", spec, again, err)
		}
	})
}

// Rolls come as often as their probability says, and each fault for itself.
func TestRoll(t *testing.T) {
	rt := must(New(Config{Seed: 42}))(t)
	var g ids
	const n = 20_000
	got := map[[2]bool]float64{} // the share of messages that are dropped, and duplicated
	for range n {
		id := g.hex64()
		got[[2]bool{rt.roll(rollDrop, 0.3, id, 1), rt.roll(rollDuplicate, 0.3, id, 1)}] += 1.0 / n
	}
	for hits, want := range map[[2]bool]float64{{true, true}: 0.09, {true, false}: 0.21, {false, true}: 0.21, {false, false}: 0.49} {
		if got[hits] < want-0.02 || got[hits] > want+0.02 {
			t.Errorf("dropped, duplicated %v: %.3f, want %.2f", hits, got[hits], want)
		}
	}
	if rt.roll(rollDrop, 0, "x") || !rt.roll(rollDrop, 1, "x") {
		t.Error("0 struck, or 1 did not")
	}
}

// IDs are 64 hexadecimal digits, all different, and the same for the same seed.
func TestIDs(t *testing.T) {
	a, b, c := ids{seed: 1}, ids{seed: 1}, ids{seed: 2}
	seen := map[string]bool{}
	for range 100_000 {
		id := a.hex64()
		if len(id) != 64 || strings.Trim(id, "0123456789abcdef") != "" || seen[id[:16]] {
			t.Fatalf("ID %q", id)
		}
		if id != b.hex64() || id == c.hex64() {
			t.Fatalf("ID %q does not depend on the seed alone", id)
		}
		seen[id[:16]] = true
	}
	if uid := a.uid(); len(uid) != 36 || strings.Count(uid, "-") != 4 {
		t.Errorf("UID %q", uid)
	}
}
