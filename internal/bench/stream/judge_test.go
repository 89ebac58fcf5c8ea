// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package stream_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/pleg"
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
// garbage), "wait D", "frozen D", "look ID=STATE …" (a list of everything, in which s is a sandbox
// and a "/" begins the next pod), "partial …" (a list that lacks something), or an event,
//
//	TYPE ID [CONTAINER=STATE …] [OPTION …]
//
// of a pod with the ready sandbox s and these containers. The options: @D shifts the stamp, @none
// leaves it out, made:D, started:D and ended:D have the first container created, started and ended
// that much before the stamp, and no-sandbox leaves out the sandbox.
func (s *script) play(lines string) (last stream.Event) {
	for line := range strings.SplitSeq(lines, ";") {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch verb {
		case "":
		case "opened":
			s.judge.Opened(s.now)
		case "ended":
			s.judge.Ended(s.now, "EOF")
		case "garbage":
			s.judge.Event(s.now, []byte{0xff, 0xff})
		case "large":
			s.judge.Event(s.now, make([]byte, 17<<20))
		case "look", "partial":
			s.look(verb == "partial", strings.Fields(rest))
		case "frozen":
			s.now = s.now.Add(duration(rest))
			s.judge.Frozen(s.now.Add(-duration(rest)), s.now)
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
		ContainerId:        strings.Trim(id, `"`),
		ContainerEventType: 7,
		CreatedAt:          s.now.UnixNano(),
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id:       "s",
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"},
		},
	}
	if number, ok := runtimeapi.ContainerEventType_value["CONTAINER_"+kind+"_EVENT"]; ok {
		m.ContainerEventType = runtimeapi.ContainerEventType(number)
	}
	for _, o := range options {
		shift, stamped := strings.CutPrefix(o, "@")
		moment, before, dated := strings.Cut(o, ":")
		switch {
		case o == "no-sandbox":
			m.PodSandboxStatus = nil
		case o == "@none":
			m.CreatedAt = 0
		case stamped:
			m.CreatedAt += int64(duration(shift))
		case dated:
			c := m.ContainersStatuses[0]
			*map[string]*int64{"made": &c.CreatedAt, "started": &c.StartedAt, "ended": &c.FinishedAt}[moment] = m.CreatedAt - int64(
				duration(before),
			)
		default:
			container, state, _ := strings.Cut(o, "=")
			m.ContainersStatuses = append(m.ContainersStatuses, &runtimeapi.ContainerStatus{
				Id:    container,
				State: runtimeapi.ContainerState(runtimeapi.ContainerState_value["CONTAINER_"+state]),
			})
		}
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return s.judge.Event(s.now.Add(time.Millisecond), raw)
}

// look enters a list that takes 10 ms.
func (s *script) look(partial bool, items []string) {
	look := stream.Look{
		Begun:   s.now,
		Ended:   s.now.Add(10 * time.Millisecond),
		Partial: partial,
		Pods:    [][]stream.Shown{nil},
	}
	for _, item := range items {
		if item == "/" {
			look.Pods = append(look.Pods, nil)
			continue
		}
		id, state, _ := strings.Cut(item, "=")
		pod := &look.Pods[len(look.Pods)-1]
		phase := map[string]pleg.Phase{"CREATED": pleg.PhaseCreated, "RUNNING": pleg.PhaseRunning, "EXITED": pleg.PhaseExited}[state]
		*pod = append(*pod, stream.Shown{ID: id, Sandbox: strings.HasPrefix(id, "s"), Phase: phase})
	}
	s.now = look.Ended
	s.judge.Look(look)
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
		{"a start that never came", "CREATED c c=CREATED; STOPPED c c=EXITED started:0s", "2 2"},
		{"a start from before", "STOPPED c c=EXITED started:1s", "1 1"},
		{"a start that comes late", "STOPPED c c=EXITED started:0s; STARTED c c=EXITED started:0s", "2 1, 1 reordered, 1 STARTED after STOPPED"},
		{"an exit that never came", "STARTED c c=RUNNING; DELETED c", "2 2"},
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
	s.play("CREATED old old=CREATED @-1h; wait 1s")
	for i := range 100 {
		id := fmt.Sprint(i)
		s.play(fmt.Sprintf("STARTED %[1]s %[1]s=RUNNING; STOPPED %[1]s %[1]s=EXITED @-9ms", id))
	}
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

// TestExampleWithoutID: the example of a message that names nothing has no gaps in its place.
func TestExampleWithoutID(t *testing.T) {
	j := stream.New(0)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	j.Event(at, []byte{0xff})
	const want = "at 03:04:05.000: 1 bytes that are no event of a container"
	if got := j.Report(at).Examples[stream.Malformed]; got != want {
		t.Errorf("%q, want %q", got, want)
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
		s.judge.Ended(began, fmt.Sprint(i))
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
		Received: s.now.Add(
			time.Millisecond,
		),
		Type:       "STARTED",
		ID:         "c",
		Kind:       "container",
		Namespace:  "n",
		Pod:        "p",
		UID:        "u",
		CreatedAt:  s.now.UTC(),
		AgeSeconds: new(0.001),
		Bytes:      got.Bytes,
		Payload:    []stream.Item{{ID: "s", Sandbox: true, Phase: "RUNNING"}, {ID: "c", Phase: "RUNNING"}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(stream.Item{})); diff != "" || got.Bytes == 0 {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLoss checks what proves a change, and that its own event does not.
func TestLoss(t *testing.T) {
	const (
		place = "wait 4s; look s=RUNNING;"
		due   = ";wait 3s;"
		job   = "CREATED c c=CREATED made:1ms; STARTED c c=RUNNING made:11ms started:1ms; STOPPED c c=EXITED made:21ms started:11ms ended:1ms; DELETED c;"
	)
	for _, test := range []struct{ name, play, want string }{
		{"events prove each other, and a list the removal", place + job + "wait 2s; look s=RUNNING" + due,
			"container CREATED 0/1, container DELETED 0/1, container STARTED 0/1, container STOPPED 0/1"},
		{"without a list nothing proves the removal", place + job + due, "container CREATED 0/1, container STARTED 0/1, container STOPPED 0/1"},
		{"a lost creation", place + "STARTED c c=RUNNING made:1s" + due, "container CREATED 1/1"},
		{"a creation from before the stream", place + "STARTED c c=RUNNING made:1h" + due, ""},
		{"a lost start", place + "CREATED c c=CREATED made:1ms; STOPPED c c=EXITED made:11ms started:5ms" + due, "container CREATED 0/1, container STARTED 1/1"},
		{"a lost exit, by the removal", place + "STARTED c c=RUNNING; STARTED d c=RUNNING d=RUNNING started:9ms; DELETED c" + due,
			"container STARTED 0/1, container STOPPED 1/1"},
		{"its own event proves nothing", place + "STARTED c c=RUNNING started:1ms" + due, ""},
		{"a lost exit, by a list", "wait 4s; look s=RUNNING c=RUNNING; look s=RUNNING c=EXITED" + due, "container STOPPED 1/1"},
		{"a lost removal, by a list", "wait 4s; look s=RUNNING c=EXITED; wait 2s; look s=RUNNING" + due, "container DELETED 1/1"},
		{"a removal that a later list takes back", "wait 4s; look s=RUNNING c=EXITED; wait 2s; look s=RUNNING; look s=RUNNING c=EXITED" + due, ""},
		{"a list that lacks something proves no removal", "wait 4s; look s=RUNNING c=EXITED; wait 2s; partial s=RUNNING" + due, ""},
		{"a list begun before the event", place + "STARTED c c=RUNNING; look s=RUNNING" + due, ""},
		{"everything lost of a container that a list shows", place + "look s=RUNNING c=RUNNING; wait 2s; look s=RUNNING" + due,
			"container CREATED 1/1, container DELETED 1/1, container STARTED 1/1, container STOPPED 1/1"},
		{"not due yet", place + "look s=RUNNING c=RUNNING; wait 1s", ""},
		{"late, but there", place + "look s=RUNNING c=RUNNING; wait 20s; STARTED c c=RUNNING; CREATED c c=CREATED; wait 10s", "container CREATED 0/1, container STARTED 0/1"},
		{"a replay proves nothing", "CREATED c c=CREATED @-1m; STARTED c c=RUNNING made:10ms @-1m" + due, ""},
		{"what happened while the stream was away", "wait 4s; look s=RUNNING c=RUNNING; wait 3s; ended; wait 9s; opened; wait 1s; look s=RUNNING c=EXITED; look s=RUNNING c=EXITED" + due, ""},
		{"what was due before the stream ended", "wait 4s; look s=RUNNING c=RUNNING; look s=RUNNING c=EXITED; wait 3s; ended; wait 9s; opened" + due, "container STOPPED 1/1"},
		{"what may have been lost with the stream", "wait 4s; look s=RUNNING c=RUNNING; look s=RUNNING c=EXITED; ended; wait 9s; opened" + due, ""},
		{"a sandbox without an event of its removal", place + "wait 2s; look" + due, "sandbox STOPPED 1/1, never sandbox DELETED"},
		{"a sandbox and its containers", "wait 4s; look s=EXITED c=EXITED; wait 2s; look" + due,
			"never sandbox DELETED, never container DELETED, along with its sandbox"},
		{"a sandbox that takes its containers one by one",
			"wait 4s; look s=EXITED c=EXITED d=EXITED; wait 2s; look s=EXITED d=EXITED; wait 5s; look" + due,
			"never sandbox DELETED, never container DELETED, along with its sandbox"},
		{"a container that goes well before its pod stops",
			"wait 4s; look s=RUNNING c=EXITED; wait 2s; look s=RUNNING; wait 2s; look s=EXITED; wait 2s; look" + due,
			"container DELETED 1/1, sandbox STOPPED 1/1, never sandbox DELETED"},
		{"a removal along with a sandbox whose removal is told", "wait 4s; look s=EXITED c=EXITED / s2=EXITED; DELETED s no-sandbox; wait 2s; look / s2=EXITED" + due,
			"container DELETED 1/1, sandbox DELETED 0/1"},
		{"a sandbox that stops", "wait 4s; look s=RUNNING; look s=EXITED" + due, "sandbox STOPPED 1/1"},
		{"UNKNOWN proves nothing", place + "STARTED c c=RUNNING; look s=RUNNING c=UNKNOWN; look s=RUNNING c=RUNNING" + due, "container CREATED 1/1, container STARTED 0/1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScript(0)
			s.play(test.play)
			r := s.judge.Report(s.now)
			var got []string
			for _, kind := range slices.Sorted(maps.Keys(r.Loss)) {
				got = append(got, fmt.Sprintf("%s %d/%d", kind, r.Loss[kind].Hits, r.Loss[kind].Of))
			}
			for _, kind := range r.Never {
				got = append(got, "never "+kind)
			}
			if said := strings.Join(got, ", "); said != test.want {
				t.Errorf("%s, want %s", said, test.want)
			}
		})
	}
}

// TestClocks tells a runtime's clock from late events and from replays, and does not blame it for
// the time in which this program stood still.
func TestClocks(t *testing.T) {
	behind := newScript(0)
	behind.play(
		"wait 5s; CREATED a a=CREATED @-90s; STARTED a a=RUNNING @-90s; STOPPED a a=EXITED @-90s; DELETED a @-90s",
	)
	r := behind.judge.Report(behind.now)
	if r.Replayed != 0 || r.ClockSeconds < 89 || r.ClockSeconds > 91 {
		t.Errorf("90 s behind: replayed %d, clock %v", r.Replayed, r.ClockSeconds)
	}
	told := strings.Join(r.Conclude(stream.Facts{Lists: 1}).Maintainers, "\n")
	testkit.Says(t, "90 s behind", told, "the runtime's clock is behind the one here")

	frozen := newScript(0)
	frozen.play("wait 5s; frozen 8s; STARTED a a=RUNNING @-8s; STOPPED a a=EXITED @-7s; wait 1s; DELETED a")
	if r := frozen.judge.Report(frozen.now); r.LateEvents != 0 || r.Unjudged != 2 || r.Frozen != 1 || r.FrozenSeconds != 8 {
		t.Errorf("frozen: %d late, %d not judged, %d times for %v s", r.LateEvents, r.Unjudged, r.Frozen, r.FrozenSeconds)
	}

	full := newScript(0)
	for i := range 1000 {
		full.event("CREATED", fmt.Sprint(i), []string{fmt.Sprintf("%d=CREATED", i), "@-1m"})
		full.now = full.now.Add(-9 * time.Millisecond)
	}
	r = full.judge.Report(full.now)
	told = strings.Join(r.Conclude(stream.Facts{Lists: 1}).Maintainers, "\n")
	if r.Replayed != 1000 || r.FullBacklogs != 1 || !strings.Contains(told, "exactly 1000") {
		t.Errorf("a full backlog: %d replayed, %d full; %s", r.Replayed, r.FullBacklogs, told)
	}
}

func TestConclude(t *testing.T) {
	full := stream.Facts{Seconds: 100, ConnectedSeconds: 99, Lists: 10, Longest: 300 * time.Second}
	with := func(change func(*stream.Facts)) stream.Facts {
		f := full
		change(&f)
		return f
	}
	// told has n containers whose starts the stamps in their last events prove.
	told := func(n int) (lines string) {
		var b strings.Builder
		b.WriteString("wait 4s;")
		for i := range n {
			fmt.Fprintf(&b, "STARTED %[1]d %[1]d=RUNNING; STOPPED %[1]d %[1]d=EXITED started:10ms;", i)
		}
		return b.String()
	}
	// lost has n more, whose starts do not come.
	lost := func(n int) (lines string) {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "STOPPED lost%[1]d lost%[1]d=EXITED started:10ms;", i)
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
		"no list":    {told(50), with(func(f *stream.Facts) { f.Lists, f.ListErrors = 0, 7 }), stream.WorthUnknown, 0, "no list", "7 of 7 lists"},
		"no stream":  {told(0), with(func(f *stream.Facts) { f.Unsupported = true }), stream.WorthNone, 1, "no events", "enable_pod_events"},
		"quiet":      {told(0), full, stream.WorthUntested, 0, "nothing happened", ""},
		"silent":     {told(0), with(func(f *stream.Facts) { f.Missed = 5 }), stream.WorthNone, 1, "nothing of 5", "5 starts and exits"},
		"lossy":      {told(95) + lost(5), full, stream.WorthPartial, 10, "container STARTED 5 % (1.6 to 11 %), 5 of 100", "events are lost"},
		"very lossy": {told(50) + lost(500), full, stream.WorthPartial, 1, "container STARTED 91 %", "500 of 550"},
		"contested": {told(95) + lost(5), with(func(f *stream.Facts) { f.Contested = true }), stream.WorthPartial, 10,
			"lost events, or another client took them: container STARTED 5 %", "unless another client took them"},
		"found":       {told(5), with(func(f *stream.Facts) { f.Missed = 5 }), stream.WorthPartial, 10, "5 starts and exits that lists have found", "5 starts and exits"},
		"lists alone": {told(95), with(func(f *stream.Facts) { f.Missed = 5 }), stream.WorthFull, 300, "other things", "lists found 5 starts"},
		"lists lie":   {told(95), with(func(f *stream.Facts) { f.Missed, f.TakenBack = 5, 7 }), stream.WorthFull, 300, "other things", "7 findings of reads"},
		"UNKNOWN":     {told(95), with(func(f *stream.Facts) { f.MissedUnknowns = 5 }), stream.WorthPartial, 10, "5 changes to or from the state UNKNOWN", "UNKNOWN"},
		"left":        {told(95), with(func(f *stream.Facts) { f.Left, f.Unheard = 1, 3 }), stream.WorthFull, 300, "left the stream 1 time, to hold up no runtime, and what happened then (3 starts", ""},
		"left, lossy": {told(95) + lost(5), with(func(f *stream.Facts) { f.Left, f.Unheard = 2, 3 }), stream.WorthPartial, 10, "left the stream 2 times", "events are lost"},
		"left, ended": {told(95) + "wait 3s; ended", with(func(f *stream.Facts) { f.Left, f.Unheard = 1, 3 }), stream.WorthPartial, 1, "left the stream 1 time", "while the stream was away"},
		"unread":      {told(95), with(func(f *stream.Facts) { f.UnreadPods, f.UnreadItems = 2, 1 }), stream.WorthPartial, 0, "2 pods and 1 item of others cannot be read", "2 pods"},
		"dead":        {told(95), with(func(f *stream.Facts) { f.Dead = "no list since noon" }), stream.WorthUnknown, 1, "does not answer any more (no list since noon)", ""},
		"refused":     {told(10), with(func(f *stream.Facts) { f.Unsupported = true }), stream.WorthNone, 1, "sent 20 events and has refused", "enable_pod_events"},
		"not UTF-8":   {told(95), with(func(f *stream.Facts) { f.InvalidText = 1 }), stream.WorthFull, 300, "other things", "1 text is not valid UTF-8"},
		"replays":     {"CREATED a a=CREATED @-1h; STARTED a a=RUNNING @-1h", full, stream.WorthUntested, 0, "2 events from before", ""},
		"too few":     {told(29), full, stream.WorthUntested, 0, "29 starts and exits are too few", ""},
		"trustworthy": {told(300), full, stream.WorthFull, 300, "fewer than 1 %", ""},
		"flawed": {
			told(30) + "STARTED 0 0=EXITED", full, stream.WorthFull, 300, "other things", "1 of 61 events were sent twice",
		},
		"unread pods": {told(30), with(func(f *stream.Facts) { f.Reads, f.ReadErrors = 9, 4 }), stream.WorthFull, 300, "told of all of", "4 of 13 reads"},
		"no pod read": {
			told(0), with(func(f *stream.Facts) { f.Reads, f.ReadsHung, f.ReadErrors = 5, 5, 2 }), stream.WorthUnknown, 0, "not one pod", "5 reads of a pod",
		},
		"no pod read, no stream": {
			told(0), with(func(f *stream.Facts) { f.ReadErrors, f.Unsupported = 5, true }), stream.WorthNone, 1, "no events", "enable_pod_events",
		},
		"large": {
			told(30) + "large", full, stream.WorthFull, 300,
			"other things", "the largest event has 17.0 MiB: a kubelet takes 16.0 MiB",
		},
		"unusable":     {told(30), with(func(f *stream.Facts) { f.Malformed = 4 }), stream.WorthFull, 300, "other things", "4 items of answers"},
		"listed twice": {told(30), with(func(f *stream.Facts) { f.ListedTwice = 4 }), stream.WorthFull, 300, "other things", "4 items came twice"},
		"unknown":      {told(30), with(func(f *stream.Facts) { f.UnknownPhase = 4 }), stream.WorthFull, 300, "other things", "in the state UNKNOWN"},
		"of nobody":    {told(30), with(func(f *stream.Facts) { f.Unattributed = 4 }), stream.WorthFull, 300, "other things", "4 containers of the last list without a pod"},
		"flapping": {
			told(300) + "wait 3s; ended", with(func(f *stream.Facts) { f.ConnectedSeconds = 80 }),
			stream.WorthPartial, 1, "80 s of 100 s", "1× EOF",
		},
		"ended": {
			told(30) + "wait 3s; ended; ended", full, stream.WorthFull, 300, "told of all of", "2× EOF",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(0)
			s.play(test.play)
			v := s.judge.Report(s.now.Add(time.Minute)).Conclude(test.facts)
			if v.Worth != test.worth || v.PeriodSeconds != test.period ||
				!strings.Contains(v.Summary, test.says) {
				t.Errorf(
					"worth %s, period %v, %q; want %s, %v, %q",
					v.Worth,
					v.PeriodSeconds,
					v.Summary,
					test.worth,
					test.period,
					test.says,
				)
			}
			if all := strings.Join(v.Maintainers, "\n"); (all == "") != (test.advice == "") || !strings.Contains(all, test.advice) {
				t.Errorf("maintainers are told %q, want %q", all, test.advice)
			}
		})
	}
}
