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

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
)

var began = time.Unix(1_700_000_000, 0)

// script sends events received a millisecond after their stamps.
type script struct {
	judge *stream.Judge
	now   time.Time
}

func newScript(memory int) *script {
	s := &script{judge: stream.New(memory), now: began}
	s.judge.Opened(began)
	return s
}

// play executes lines separated by semicolons: "opened", "ended", "garbage", "large" (17 MiB of
// garbage), "wait D", or an event,
//
//	TYPE ID [CONTAINER=STATE …] [OPTION …]
//
// of a pod with the ready sandbox s and these containers. The options: @D shifts the stamp, @none
// leaves it out, started:D has the first container started that much before the stamp, and
// no-sandbox leaves out the sandbox.
func (s *script) play(lines string) (last stream.Event) {
	for line := range strings.SplitSeq(lines, ";") {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch verb {
		case "":
		case "opened":
			s.judge.Opened(s.now)
		case "ended":
			s.judge.Ended("EOF")
		case "garbage":
			s.judge.Event(s.now, []byte{0xff, 0xff})
		case "large":
			s.judge.Event(s.now, make([]byte, 17<<20))
		case "wait":
			s.now = s.now.Add(duration(rest))
		default:
			id, options, _ := strings.Cut(rest, " ")
			last = s.event(verb, id, strings.Fields(options))
		}
	}
	return last
}

func (s *script) event(kind, id string, options []string) stream.Event {
	s.now = s.now.Add(10 * time.Millisecond)
	m := &runtimeapi.ContainerEventResponse{
		ContainerId: strings.Trim(id, `"`), ContainerEventType: 7, CreatedAt: s.now.UnixNano(),
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}},
	}
	if number, ok := runtimeapi.ContainerEventType_value["CONTAINER_"+kind+"_EVENT"]; ok {
		m.ContainerEventType = runtimeapi.ContainerEventType(number)
	}
	for _, o := range options {
		shift, stamped := strings.CutPrefix(o, "@")
		before, started := strings.CutPrefix(o, "started:")
		switch {
		case o == "no-sandbox":
			m.PodSandboxStatus = nil
		case o == "@none":
			m.CreatedAt = 0
		case stamped:
			m.CreatedAt += int64(duration(shift))
		case started:
			m.ContainersStatuses[0].StartedAt = m.CreatedAt - int64(duration(before))
		default:
			container, state, _ := strings.Cut(o, "=")
			m.ContainersStatuses = append(m.ContainersStatuses, &runtimeapi.ContainerStatus{
				Id: container, State: runtimeapi.ContainerState(runtimeapi.ContainerState_value["CONTAINER_"+state]),
			})
		}
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return s.judge.Event(s.now.Add(time.Millisecond), raw)
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func TestFlaws(t *testing.T) {
	const life = "CREATED s; STARTED s; CREATED c c=CREATED; STARTED c c=RUNNING; STOPPED c c=EXITED; DELETED c;"
	for _, test := range []struct {
		name, play string
		want       string // received, told something, and what is not 0 of the rest
	}{
		{"a clean life, in which the sandbox's second event repeats the payload of the first", life, "6 5"},
		{"an exit that is seen in the payload of its start", "STARTED c c=EXITED; STOPPED c c=EXITED", "2 1"},
		{"a duplicate", life + "DELETED c", "7 5, 1 duplicate"},
		{"an exit after the removal", "STARTED c c=RUNNING; DELETED c; STOPPED c c=EXITED", "3 2, 1 reordered, 1 STOPPED after DELETED"},
		{"another container in an old state", "STARTED c c=RUNNING; STARTED d c=CREATED d=RUNNING", "2 2, 1 stale-payload"},
		{"a removed container shown again", "DELETED c; STARTED d c=EXITED d=RUNNING", "2 2, 1 stale-payload"},
		{"an event that its own payload contradicts", "STOPPED c c=RUNNING", "1 1, 1 contradicting"},
		{"a start that never came", "CREATED c c=CREATED; STOPPED c c=EXITED started:0s", "2 2, skipped 1 STARTED"},
		{"a start from before", "STOPPED c c=EXITED started:1s", "1 1"},
		{"a start that comes late", "STOPPED c c=EXITED started:0s; STARTED c c=EXITED started:0s", "2 1, 1 reordered, 1 STARTED after STOPPED"},
		{"an exit that never came", "STARTED c c=RUNNING; DELETED c", "2 2, skipped 1 STOPPED"},
		{"an exit while the stream was away", "STARTED c c=RUNNING; opened; DELETED c", "2 2"},
		{"no sandbox", "STARTED c c=RUNNING no-sandbox", "1 1, 1 without-sandbox"},
		{"no statuses", "STARTED c", "1 1, 1 without-statuses"},
		{"an unknown type", "BORN c", "1 0, 1 unknown-type"},
		{"no ID", `STARTED ""`, "1 0, 1 malformed"},
		{"no protobuf", "garbage", "1 0, 1 malformed"},
		{"a stamp that goes back", "CREATED s; CREATED c c=CREATED @-15ms", "2 2, 1 stamp-back"},
		{"a stamp ahead", "CREATED s @1s", "1 1, 1 from-the-future"},
		{"no stamp", "CREATED s @none", "1 1, 1 without-stamp"},
		{"a replay is no duplicate, and old", life + "wait 1h; ended; opened; STARTED c c=RUNNING @-1m; STOPPED c c=RUNNING @-1m", "8 5, replayed 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScript(0)
			s.play(test.play)
			r := s.judge.Report(s.now.Add(time.Minute))
			got := fmt.Sprint(r.Received, " ", r.ToldSomething)
			add := func(label, counts string) {
				if counts != "" {
					got += ", " + label + counts
				}
			}
			add("", bench.Counts(r.Flaws))
			add("", bench.Counts(r.Reordered))
			add("skipped ", bench.Counts(r.Skipped))
			if r.Replayed > 0 {
				add("replayed ", fmt.Sprint(r.Replayed))
			}
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			for f := range r.Flaws {
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
		s.play(fmt.Sprintf("STARTED %[1]s %[1]s=RUNNING; STOPPED %[1]s %[1]s=EXITED @-9ms", id))
	}
	s.play("CREATED old old=CREATED @-1h")
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
	s.play("STARTED a a=RUNNING")
	for i := range 10 {
		s.play(fmt.Sprintf("STARTED %[1]d %[1]d=RUNNING", i))
	}
	s.play("STARTED a a=RUNNING")
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
	got := s.play("STARTED c c=RUNNING")
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
	told := func(n int) (lines string) {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "STARTED %[1]d %[1]d=RUNNING;", i)
		}
		return b.String()
	}
	for name, test := range map[string]struct {
		play   string
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
			told(30) + told(1), full, stream.WorthFull, 300, "not without flaws", "1 of 31 events were sent twice",
		},
		"unread pods": {told(30), with(func(f *stream.Facts) { f.Reads, f.ReadErrors = 9, 4 }), stream.WorthFull, 300, "every change", "4 of 13 reads"},
		"no pod read": {
			told(0), with(func(f *stream.Facts) { f.Reads, f.ReadsHung, f.ReadErrors = 5, 5, 2 }), stream.WorthUnknown, 0, "not one pod", "5 reads of a pod",
		},
		"no pod read, no stream": {
			told(0), with(func(f *stream.Facts) { f.ReadErrors, f.Unsupported = 5, true }), stream.WorthNone, 1, "no events", "enable_pod_events",
		},
		"large": {
			told(30) + "large", full, stream.WorthFull, 300,
			"not without flaws", "the largest event has 17.0 MiB: a kubelet takes 16.0 MiB",
		},
		"unusable":     {told(30), with(func(f *stream.Facts) { f.Malformed = 4 }), stream.WorthFull, 300, "not without flaws", "4 items of answers"},
		"listed twice": {told(30), with(func(f *stream.Facts) { f.ListedTwice = 4 }), stream.WorthFull, 300, "not without flaws", "4 items came twice"},
		"unknown":      {told(30), with(func(f *stream.Facts) { f.UnknownPhase = 4 }), stream.WorthFull, 300, "not without flaws", "in the state UNKNOWN"},
		"of nobody":    {told(30), with(func(f *stream.Facts) { f.Unattributed = 4 }), stream.WorthFull, 300, "not without flaws", "4 containers of the last list without a pod"},
		"flapping": {
			told(300) + "ended", with(func(f *stream.Facts) { f.ConnectedSeconds = 80 }),
			stream.WorthPartial, 1, "80 s of 100 s", "1× EOF",
		},
		"left out": {
			told(300) + "DELETED 1", full, stream.WorthPartial, 300, "left out 1 event of", "1 STOPPED",
		},
		"ended": {
			told(30) + "ended; ended", full, stream.WorthFull, 300, "every change", "2× EOF",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(0)
			s.play(test.play)
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
