// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
)

const (
	createdEvent = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	startedEvent = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stoppedEvent = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deletedEvent = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT

	isCreated = runtimeapi.ContainerState_CONTAINER_CREATED
	isRunning = runtimeapi.ContainerState_CONTAINER_RUNNING
	isExited  = runtimeapi.ContainerState_CONTAINER_EXITED
)

var began = time.Unix(1_700_000_000, 0)

// script builds events received a millisecond after their stamps.
type script struct {
	judge *stream.Judge
	now   time.Time
}

func newScript(memory int) *script {
	s := &script{judge: stream.New(memory), now: began}
	s.judge.Opened(began)
	return s
}

type containers map[string]runtimeapi.ContainerState

// event is of a pod with the ready sandbox "s" and these containers.
func (s *script) event(kind runtimeapi.ContainerEventType, id string, c containers, change ...func(*runtimeapi.ContainerEventResponse)) stream.Event {
	s.now = s.now.Add(10 * time.Millisecond)
	m := &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: s.now.UnixNano(),
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}},
	}
	for id, state := range c {
		m.ContainersStatuses = append(m.ContainersStatuses, &runtimeapi.ContainerStatus{Id: id, State: state})
	}
	for _, f := range change {
		f(m)
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return s.judge.Event(s.now.Add(time.Millisecond), raw)
}

func TestFlaws(t *testing.T) {
	stamp := func(d time.Duration) func(*runtimeapi.ContainerEventResponse) {
		return func(m *runtimeapi.ContainerEventResponse) {
			m.CreatedAt = time.Unix(0, m.GetCreatedAt()).Add(d).UnixNano()
		}
	}
	life := func(s *script) {
		s.event(createdEvent, "s", nil)
		s.event(startedEvent, "s", nil)
		s.event(createdEvent, "c", containers{"c": isCreated})
		s.event(startedEvent, "c", containers{"c": isRunning})
		s.event(stoppedEvent, "c", containers{"c": isExited})
		s.event(deletedEvent, "c", nil)
	}
	for name, test := range map[string]struct {
		play func(s *script)
		// want are the flaws, received and told the counts.
		want           map[stream.Flaw]int
		reordered      map[string]int
		skipped        map[string]int
		received, told int
		replayed       int
	}{
		// The second event of a sandbox repeats the payload of the first.
		"a clean life": {play: life, received: 6, told: 5},
		"an exit that is seen in the payload of its start": {
			play: func(s *script) {
				s.event(startedEvent, "c", containers{"c": isExited})
				s.event(stoppedEvent, "c", containers{"c": isExited})
			},
			received: 2, told: 1,
		},
		"a duplicate": {
			play: func(s *script) {
				life(s)
				s.event(deletedEvent, "c", nil)
			},
			want: map[stream.Flaw]int{stream.Duplicate: 1}, received: 7, told: 5,
		},
		"an exit after the removal": {
			play: func(s *script) {
				s.event(startedEvent, "c", containers{"c": isRunning})
				s.event(deletedEvent, "c", nil)
				s.event(stoppedEvent, "c", containers{"c": isExited})
			},
			want: map[stream.Flaw]int{stream.Reordered: 1}, reordered: map[string]int{"STOPPED after DELETED": 1}, received: 3, told: 2,
		},
		"another container in an old state": {
			play: func(s *script) {
				s.event(startedEvent, "c", containers{"c": isRunning})
				s.event(startedEvent, "d", containers{"c": isCreated, "d": isRunning})
			},
			want: map[stream.Flaw]int{stream.StalePayload: 1}, received: 2, told: 2,
		},
		"a removed container shown again": {
			play: func(s *script) {
				s.event(deletedEvent, "c", nil)
				s.event(startedEvent, "d", containers{"c": isExited, "d": isRunning})
			},
			want: map[stream.Flaw]int{stream.StalePayload: 1}, received: 2, told: 2,
		},
		"an event that its own payload contradicts": {
			play: func(s *script) { s.event(stoppedEvent, "c", containers{"c": isRunning}) },
			want: map[stream.Flaw]int{stream.Contradicting: 1}, received: 1, told: 1,
		},
		"a start that never came": {
			play: func(s *script) {
				s.event(createdEvent, "c", containers{"c": isCreated})
				s.event(stoppedEvent, "c", containers{"c": isExited}, func(m *runtimeapi.ContainerEventResponse) {
					m.ContainersStatuses[0].StartedAt = m.CreatedAt
				})
			},
			skipped: map[string]int{"STARTED": 1}, received: 2, told: 2,
		},
		"a start from before": {
			play: func(s *script) {
				s.event(stoppedEvent, "c", containers{"c": isExited}, func(m *runtimeapi.ContainerEventResponse) {
					m.ContainersStatuses[0].StartedAt = began.Add(-time.Second).UnixNano()
				})
			},
			received: 1, told: 1,
		},
		"a start that comes late": {
			play: func(s *script) {
				started := func(m *runtimeapi.ContainerEventResponse) { m.ContainersStatuses[0].StartedAt = m.CreatedAt }
				s.event(stoppedEvent, "c", containers{"c": isExited}, started)
				s.event(startedEvent, "c", containers{"c": isExited}, started)
			},
			want: map[stream.Flaw]int{stream.Reordered: 1}, reordered: map[string]int{"STARTED after STOPPED": 1}, received: 2, told: 1,
		},
		"an exit that never came": {
			play: func(s *script) {
				s.event(startedEvent, "c", containers{"c": isRunning})
				s.event(deletedEvent, "c", nil)
			},
			skipped: map[string]int{"STOPPED": 1}, received: 2, told: 2,
		},
		"an exit while the stream was away": {
			play: func(s *script) {
				s.event(startedEvent, "c", containers{"c": isRunning})
				s.judge.Opened(s.now)
				s.event(deletedEvent, "c", nil)
			},
			received: 2, told: 2,
		},
		"no sandbox": {
			play: func(s *script) {
				s.event(startedEvent, "c", containers{"c": isRunning}, func(m *runtimeapi.ContainerEventResponse) { m.PodSandboxStatus = nil })
			},
			want: map[stream.Flaw]int{stream.NoSandbox: 1}, received: 1, told: 1,
		},
		"no statuses": {
			play: func(s *script) { s.event(startedEvent, "c", nil) },
			want: map[stream.Flaw]int{stream.NoStatuses: 1}, received: 1, told: 1,
		},
		"an unknown type": {
			play: func(s *script) { s.event(7, "c", nil) },
			want: map[stream.Flaw]int{stream.UnknownType: 1}, received: 1,
		},
		"no ID": {
			play: func(s *script) { s.event(startedEvent, "", nil) },
			want: map[stream.Flaw]int{stream.Malformed: 1}, received: 1,
		},
		"no protobuf": {
			play: func(s *script) { s.judge.Event(s.now, []byte{0xff, 0xff}) },
			want: map[stream.Flaw]int{stream.Malformed: 1}, received: 1,
		},
		"a stamp that goes back": {
			play: func(s *script) {
				s.event(createdEvent, "s", nil)
				s.event(createdEvent, "c", containers{"c": isCreated}, stamp(-15*time.Millisecond))
			},
			want: map[stream.Flaw]int{stream.StampBack: 1}, received: 2, told: 2,
		},
		"a stamp ahead": {
			play: func(s *script) { s.event(createdEvent, "s", nil, stamp(time.Second)) },
			want: map[stream.Flaw]int{stream.FromFuture: 1}, received: 1, told: 1,
		},
		"no stamp": {
			play: func(s *script) {
				s.event(createdEvent, "s", nil, func(m *runtimeapi.ContainerEventResponse) { m.CreatedAt = 0 })
			},
			want: map[stream.Flaw]int{stream.NoStamp: 1}, received: 1, told: 1,
		},
		"a replay is no duplicate, and old": {
			play: func(s *script) {
				life(s)
				s.now = s.now.Add(time.Hour)
				s.judge.Ended("EOF")
				s.judge.Opened(s.now)
				s.event(startedEvent, "c", containers{"c": isRunning}, stamp(-time.Minute))
				s.event(stoppedEvent, "c", containers{"c": isRunning}, stamp(-time.Minute))
			},
			received: 8, told: 5, replayed: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(0)
			test.play(s)
			r := s.judge.Report(s.now.Add(time.Minute))
			if diff := cmp.Diff(test.want, r.Flaws, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("flaws (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.reordered, r.Reordered, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("reordered (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.skipped, r.Skipped, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
			if r.Received != test.received || r.ToldSomething != test.told || r.Replayed != test.replayed {
				t.Errorf("received %d, told something %d, replayed %d; want %d, %d, %d", r.Received, r.ToldSomething, r.Replayed, test.received, test.told, test.replayed)
			}
			for f := range test.want {
				if r.Examples[f] == "" {
					t.Errorf("no example of %s", f)
				}
			}
		})
	}
}

// TestDelays keeps the kinds apart, and replays out.
func TestDelays(t *testing.T) {
	s := newScript(0)
	for i := range 100 {
		id := fmt.Sprint(i)
		s.event(startedEvent, id, containers{id: isRunning})
		s.event(stoppedEvent, id, containers{id: isExited}, func(m *runtimeapi.ContainerEventResponse) { m.CreatedAt -= int64(9 * time.Millisecond) })
	}
	s.event(createdEvent, "old", containers{"old": isCreated}, func(m *runtimeapi.ContainerEventResponse) { m.CreatedAt = began.Add(-time.Hour).UnixNano() })
	r := s.judge.Report(s.now.Add(time.Minute))
	for kind, want := range map[string]struct {
		count int
		p50   time.Duration
	}{"container STARTED": {100, time.Millisecond}, "container STOPPED": {100, 10 * time.Millisecond}, stream.AllKinds: {200, time.Millisecond}} {
		got := r.Delays[kind]
		if off := got.P50/want.p50.Seconds() - 1; got.Count != want.count || off < -0.01 || off > 0.01 {
			t.Errorf("%s: %+v, want %d with a p50 of %v", kind, got, want.count, want.p50)
		}
	}
	if r.ReplayDelays.Count != 1 || r.ReplayDelays.Max < 3600 {
		t.Errorf("replays: %+v, want one of an hour", r.ReplayDelays)
	}
}

// TestMemoryIsBounded forgets the oldest.
func TestMemoryIsBounded(t *testing.T) {
	s := newScript(3)
	s.event(startedEvent, "a", containers{"a": isRunning})
	for i := range 10 {
		id := fmt.Sprint(i)
		s.event(startedEvent, id, containers{id: isRunning})
	}
	s.event(startedEvent, "a", containers{"a": isRunning})
	if r := s.judge.Report(s.now.Add(time.Minute)); r.Flaws[stream.Duplicate] != 0 || r.ToldSomething != 12 {
		t.Errorf("%v: the judge remembers more than it was allowed to", r.Flaws)
	}
	for i := range 1000 {
		s.judge.Ended(fmt.Sprint(i))
	}
	if r := s.judge.Report(s.now.Add(time.Minute)); len(r.Endings) > 21 {
		t.Errorf("%d reasons are kept", len(r.Endings))
	}
}

// TestEventShowsAll checks the output of --raw.
func TestEventShowsAll(t *testing.T) {
	s := newScript(0)
	got := s.event(startedEvent, "c", containers{"c": isRunning})
	want := stream.Event{
		Received: s.now.Add(time.Millisecond), Type: "STARTED", ID: "c", Kind: "container", Namespace: "n", Pod: "p", UID: "u",
		CreatedAt: s.now.UTC(), AgeSeconds: new(0.001), Bytes: got.Bytes,
		Payload: []stream.Item{{ID: "s", Sandbox: true, Phase: "RUNNING"}, {ID: "c", Phase: "RUNNING"}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(stream.Item{})); diff != "" || got.Bytes == 0 {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConclude(t *testing.T) {
	full := stream.Facts{Seconds: 100, ConnectedSeconds: 99, Lists: 10, Longest: 300 * time.Second}
	with := func(change func(*stream.Facts)) stream.Facts {
		f := full
		change(&f)
		return f
	}
	told := func(n int) func(*script) {
		return func(s *script) {
			for i := range n {
				id := fmt.Sprint(i)
				s.event(startedEvent, id, containers{id: isRunning})
			}
		}
	}
	for name, test := range map[string]struct {
		play   func(*script)
		facts  stream.Facts
		worth  stream.Worth
		period float64
		says   string
		// advice is part of the advice to maintainers, empty for none.
		advice string
	}{
		"no list":     {told(50), with(func(f *stream.Facts) { f.Lists, f.ListErrors = 0, 7 }), stream.WorthUnknown, 0, "no list", "7 of 7 lists"},
		"no stream":   {told(0), with(func(f *stream.Facts) { f.Unsupported = true }), stream.WorthNone, 1, "no events", "enable_pod_events"},
		"quiet":       {told(0), full, stream.WorthUntested, 0, "nothing happened", ""},
		"silent":      {told(0), with(func(f *stream.Facts) { f.Missed = 5 }), stream.WorthNone, 1, "nothing of 5", "5 starts and exits"},
		"lossy":       {told(95), with(func(f *stream.Facts) { f.Missed = 5 }), stream.WorthPartial, 10, "lost 5 of 100 changes (5 %)", "5 starts and exits"},
		"very lossy":  {told(50), with(func(f *stream.Facts) { f.Missed = 500 }), stream.WorthPartial, 1, "lost 500 of 550", "500 starts"},
		"too few":     {told(29), full, stream.WorthUntested, 0, "29 are too few", ""},
		"trustworthy": {told(300), full, stream.WorthFull, 300, "fewer than 1 %", ""},
		"flawed": {
			func(s *script) { told(30)(s); told(1)(s) }, full, stream.WorthFull, 300, "not without flaws", "1 of 31 events were sent twice",
		},
		"unread pods": {told(30), with(func(f *stream.Facts) { f.Reads, f.ReadErrors = 9, 4 }), stream.WorthFull, 300, "every change", "4 of 13 reads"},
		"no pod read": {
			told(0), with(func(f *stream.Facts) { f.Reads, f.ReadsHung, f.ReadErrors = 5, 5, 2 }), stream.WorthUnknown, 0, "not one pod", "5 reads of a pod",
		},
		"no pod read, no stream": {
			told(0), with(func(f *stream.Facts) { f.ReadErrors, f.Unsupported = 5, true }), stream.WorthNone, 1, "no events", "enable_pod_events",
		},
		"large": {
			func(s *script) { told(30)(s); s.judge.Event(s.now, make([]byte, 17<<20)) }, full, stream.WorthFull, 300,
			"not without flaws", "the largest event has 17.0 MiB: a kubelet takes 16.0 MiB",
		},
		"unusable":     {told(30), with(func(f *stream.Facts) { f.Malformed = 4 }), stream.WorthFull, 300, "not without flaws", "4 items of answers"},
		"listed twice": {told(30), with(func(f *stream.Facts) { f.ListedTwice = 4 }), stream.WorthFull, 300, "not without flaws", "4 items came twice"},
		"unknown":      {told(30), with(func(f *stream.Facts) { f.UnknownPhase = 4 }), stream.WorthFull, 300, "not without flaws", "in the state UNKNOWN"},
		"of nobody":    {told(30), with(func(f *stream.Facts) { f.Unattributed = 4 }), stream.WorthFull, 300, "not without flaws", "4 containers of the last list without a pod"},
		"flapping": {
			func(s *script) { told(300)(s); s.judge.Ended("EOF") }, with(func(f *stream.Facts) { f.ConnectedSeconds = 80 }),
			stream.WorthPartial, 1, "80 s of 100 s", "1× EOF",
		},
		"left out": {
			func(s *script) { told(300)(s); s.event(deletedEvent, "1", nil) }, full, stream.WorthPartial, 300, "left out 1 event of", "1 STOPPED",
		},
		"ended": {
			func(s *script) { told(30)(s); s.judge.Ended("EOF"); s.judge.Ended("EOF") }, full, stream.WorthFull, 300, "every change", "2× EOF",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(0)
			test.play(s)
			v := s.judge.Report(s.now.Add(time.Minute)).Conclude(test.facts)
			if v.Worth != test.worth || v.PeriodSeconds != test.period || !strings.Contains(v.Summary, test.says) {
				t.Errorf("worth %s, period %v, %q; want %s, %v, %q", v.Worth, v.PeriodSeconds, v.Summary, test.worth, test.period, test.says)
			}
			if all := strings.Join(v.Maintainers, "\n"); (all == "") != (test.advice == "") || !strings.Contains(all, test.advice) {
				t.Errorf("maintainers are told %q, want %q", all, test.advice)
			}
		})
	}
}
