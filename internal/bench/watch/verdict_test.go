// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/internal/bench/watch"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
)

// bytesCodec passes messages on as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (bytesCodec) Name() string { return "" }

// dropper stands between a watch and a runtime, loses a share of the events, and knows which.
type dropper struct {
	share     float64
	rand      *rand.Rand
	behind    *grpc.ClientConn
	sandboxes map[string]bool
	// sent and lost count events by kind, such as "container STARTED".
	sent, lost map[string]int
}

// between serves a dropper before a runtime, in memory.
func (d *dropper) between(t *testing.T, dial onfake.Dialer) onfake.Dialer {
	d.behind = onfake.Connect(
		t,
		dial,
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{}), grpc.MaxCallRecvMsgSize(1<<30)),
	)
	d.sandboxes, d.sent, d.lost = make(map[string]bool), make(map[string]int), make(map[string]int)
	server := grpc.NewServer(grpc.UnknownServiceHandler(d.forward), grpc.ForceServerCodecV2(bytesCodec{}))
	lis := bufconn.Listen(1 << 16)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(lis) // ends with Stop
	}()
	t.Cleanup(func() {
		server.Stop()
		<-ended
	})
	return func(ctx context.Context) (net.Conn, error) { return lis.DialContext(ctx) }
}

func (d *dropper) forward(_ any, server grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(server)
	streams := grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	client, err := d.behind.NewStream(server.Context(), &streams, method)
	if err != nil {
		return err
	}
	var request []byte
	if err := server.RecvMsg(&request); err != nil {
		return err
	}
	if err := errors.Join(client.SendMsg(&request), client.CloseSend()); err != nil {
		return err
	}
	for {
		var answer []byte
		err := client.RecvMsg(&answer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.HasSuffix(method, "/GetContainerEvents") && d.loses(answer) {
			continue
		}
		if err := server.SendMsg(&answer); err != nil {
			return err
		}
	}
}

// loses decides about an event. There is one stream of them at a time.
func (d *dropper) loses(raw []byte) bool {
	var e runtimeapi.ContainerEventResponse
	if proto.Unmarshal(raw, &e) != nil {
		return false
	}
	if s := e.GetPodSandboxStatus(); s != nil {
		d.sandboxes[s.GetId()] = true
	}
	kind := "container "
	if d.sandboxes[e.GetContainerId()] {
		kind = "sandbox "
	}
	kind += strings.TrimSuffix(strings.TrimPrefix(e.GetContainerEventType().String(), "CONTAINER_"), "_EVENT")
	d.sent[kind]++
	if d.rand.Float64() >= d.share {
		return false
	}
	d.lost[kind]++
	return true
}

// within reports whether a share is in an interval, with a thousandth for rounding.
func within(share float64, s bench.Share) bool { return share > s.Low-1e-3 && share < s.High+1e-3 }

var (
	lossSeed = flag.Uint64("from", 7, "seed of the losses of TestSharesOfLoss")
	allLoss  = flag.Bool("each", false, "play each share of TestSharesOfLoss on each runtime")
)

// TestSharesOfLoss holds the verdict against a proxy that knows what it has lost, on each runtime
// with events: each share on one of them in turn, or with -each on each. A change that counts as
// lost has lost its event, and one that counts as told has had it. And the share is fair: what is
// proven does not depend on what is lost; see fair.
func TestSharesOfLoss(t *testing.T) {
	t.Parallel()
	profiles := []string{"containerd-2", "containerd-2.0", "crio"}
	shares := []float64{0, 0.01, 0.05, 0.2, 0.5}
	if raceDetector { // without it all of them are played
		profiles = profiles[:1]
		shares = shares[3:4]
	}
	for n, share := range shares {
		var all []counted
		for m, profile := range profiles {
			if !*allLoss && m != n%len(profiles) {
				continue
			}
			name := fmt.Sprintf("%s, %v, -args -each -from=%d", profile, share, *lossSeed)
			d := &dropper{share: share, rand: rand.New(rand.NewPCG(*lossSeed, uint64(10*n+m)))}
			s := scene{
				profile: profile,
				rate:    40,
				proxy:   d,
				options: watch.Options{Output: "json", Duration: 40 * time.Second},
			}.play(
				t,
			).summary
			judged := 0
			for kind, loss := range s.Stream.Loss {
				c := counted{d.sent[kind], d.lost[kind], loss.Of, loss.Hits}
				if wrong := c.wrong(); wrong != "" {
					t.Errorf("%s: %s: %s", name, kind, wrong)
				}
				all = append(all, c)
				judged += loss.Of
			}
			sent, lost := bench.Sum(d.sent), bench.Sum(d.lost)
			if judged < sent/2 {
				t.Errorf("%s: %d of %d changes judged", name, judged, sent)
			}
			want := stream.WorthPartial
			if lost == 0 {
				want = stream.WorthFull
			}
			if s.Verdict.Worth != want {
				t.Errorf("%s: lost %d of %d, %s: %s", name, lost, sent, s.Verdict.Worth, s.Verdict.Summary)
			}
		}
		if off, bound := fair(all); math.Abs(off) > bound {
			t.Errorf("a loss of %v, -args -each -from=%d: %.1f too many count as lost, want up to %.1f either way: %v", share, *lossSeed, off, bound, all)
		}
	}
}

// counted are the events of a kind: sent and lost by the proxy's count; proven, and lost of these,
// by the verdict's.
type counted struct{ sent, lost, of, hits int }

// wrong says what no right verdict can count.
func (c counted) wrong() string {
	if c.hits > c.lost {
		return fmt.Sprintf("%d count as lost, and %d were", c.hits, c.lost)
	}
	if told := c.of - c.hits; told > c.sent-c.lost {
		return fmt.Sprintf("%d count as told, and %d were", told, c.sent-c.lost)
	}
	return ""
}

// fair returns how many too many count as lost, and how many may by chance.
//
// If it does not depend on its loss whether a change is proven, the proven ones of a kind are a
// sample of its events without replacement, and the hits are distributed like a sum of independent
// ones (Vatutin and Mikhailov). By Bernstein's inequality the sum of all kinds is off by more than
// the bound with a chance of 1e-7, so that five shares fail by chance in one of two million runs.
// The variance counts twice: two events that prove each other's changes make it 1 + the share of
// loss as large.
func fair(all []counted) (off, bound float64) {
	variance := 0.
	for _, c := range all {
		lost := float64(c.lost) / float64(max(c.sent, 1))
		off += float64(c.hits) - float64(c.of)*lost
		unproven := float64(max(c.sent-c.of, 0)) / float64(max(c.sent-1, 1))
		variance += float64(c.of) * lost * (1 - lost) * unproven
	}
	const chance = 1e-7
	l := math.Log(2 / chance)
	return off, l/3 + math.Sqrt(l*l/9+2*l*2*variance)
}

// TestFair: a share that is off by half of its interval is refused, and one that is off as chance
// has it is not.
func TestFair(t *testing.T) {
	for _, c := range []counted{{360, 4, 345, 4}, {360, 20, 340, 19}, {360, 72, 330, 66}, {360, 180, 300, 150}} {
		s := bench.NewShare(c.hits, c.of)
		for by, want := range map[int]bool{
			0: true, 1: true, -1: true,
			int(math.Ceil((s.High - s.Share) * float64(c.of))): false,
			int((s.Low - s.Share) * float64(c.of)):             false,
		} {
			shifted := c
			shifted.hits += by
			var all []counted
			for range 12 { // four kinds of containers' events on three runtimes
				all = append(all, shifted)
			}
			if off, bound := fair(all); (math.Abs(off) <= bound) != want {
				t.Errorf("%+v, and %d more: %.1f, up to %.1f", c, by, off, bound)
			}
		}
	}
}

// TestIdle: a runtime that loses half of its events is not judged by what it kept from before the
// watch, and neither is one that loses none.
func TestIdle(t *testing.T) {
	t.Parallel()
	for _, faults := range []string{"", "drop=0.5"} {
		for _, profile := range []string{"containerd-2", "crio"} {
			s := scene{
				profile: profile,
				faults:  faults,
				idle:    true,
				options: watch.Options{Output: "json"},
			}.play(
				t,
			).summary
			if s.Verdict.Worth != stream.WorthUntested || s.Stream.Replayed == 0 {
				t.Errorf(
					"%s, %q: %s, %d replayed: %s",
					profile,
					faults,
					s.Verdict.Worth,
					s.Stream.Replayed,
					s.Verdict.Summary,
				)
			}
		}
	}
}

// TestGoneForGood: a runtime that does not come back is unknown, and the watch fails.
func TestGoneForGood(t *testing.T) {
	t.Parallel()
	o := scene{
		options: watch.Options{Output: "json", Duration: time.Minute},
		during: func(rt *fakeruntime.Runtime) {
			time.Sleep(20 * time.Second)
			rt.Restart(time.Hour, 0)
		},
	}.play(
		t,
	)
	if s := o.summary; o.err == nil || s.Verdict.Worth != stream.WorthUnknown ||
		!strings.Contains(s.Verdict.Summary, "does not answer any more") {
		t.Errorf("%v: %s: %s", o.err, s.Verdict.Worth, s.Verdict.Summary)
	}
}

var updateVerdicts = flag.Bool("update", false, "write docs/verdicts.md")

const verdictsPage = "../../../docs/verdicts.md"

// truths are what the runtime's history says of each kind of event: changes in the time of the
// watch that had their event, and others.
type truth struct{ told, lost int }

func truths(rt *fakeruntime.Runtime, from, to time.Time) map[string]truth {
	history, _ := rt.History(0)
	names := map[fakeruntime.State]string{
		fakeruntime.StateCreated:  "CREATED",
		fakeruntime.StateRunning:  "STARTED",
		fakeruntime.StateExited:   "STOPPED",
		fakeruntime.StateReady:    "STARTED",
		fakeruntime.StateNotReady: "STOPPED",
		fakeruntime.StateRemoved:  "DELETED",
	}
	all := make(map[string]truth)
	for _, c := range history {
		kind := "container "
		if c.ContainerID == "" {
			kind = "sandbox "
		}
		name, ok := names[c.New]
		if !ok || c.Time.Before(from) || c.Time.After(to) {
			continue
		}
		n := all[kind+name]
		if c.Event == fakeruntime.Emitted {
			n.told++
		} else {
			n.lost++
		}
		all[kind+name] = n
	}
	return all
}

// loses are the kinds of which the runtime has lost events, with the share.
func loses(all map[string]truth) (list []string) {
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		if n := all[kind]; n.lost > 0 {
			list = append(list, fmt.Sprintf("%s %.0f %%", kind, 100*float64(n.lost)/float64(n.lost+n.told)))
		}
	}
	return list
}

// TestVerdicts holds the verdict on each fault of the fake against its history: a share is in the
// verdict's interval, FULL has lost nothing, and PARTIAL something. It writes docs/verdicts.md.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString(verdictsHead)
	for n, f := range append([]fakeruntime.Fault{{}}, fakeruntime.FaultList()...) {
		if raceDetector && n%16 != 0 && !*updateVerdicts {
			continue // without it all of them are played
		}
		set := settingOf(f)
		var all map[string]truth
		sc := scene{rate: 20, faults: set, options: watch.Options{Output: "json", Duration: time.Minute}}
		restarts := slices.Contains([]string{"restart-exit", "lost-address", "empty-start"}, f.Name)
		if restarts {
			sc.during = func(rt *fakeruntime.Runtime) {
				time.Sleep(30 * time.Second)
				rt.Restart(2*time.Second, time.Second)
			}
		}
		sc.after = func(rt *fakeruntime.Runtime, begun time.Time) {
			if !restarts {
				all = truths(rt, begun.Add(time.Second), begun.Add(57*time.Second))
				return
			}
			// What the runtime does while it is down has no event, and a read afterwards need not find
			// it: such a container may have gone. The verdict is about the time with a stream.
			all = truths(rt, begun.Add(time.Second), begun.Add(29*time.Second))
			for kind, n := range truths(rt, begun.Add(36*time.Second), begun.Add(57*time.Second)) {
				all[kind] = truth{told: all[kind].told + n.told, lost: all[kind].lost + n.lost}
			}
		}
		o := sc.play(t)
		s := o.summary
		if s == nil || s.Verdict == nil {
			t.Errorf("%s: no verdict: %v", set, o.err)
			continue
		}
		checkVerdict(t, set, s, all)
		fmt.Fprintf(
			&page,
			"| `%s` | %s | %s | %s |\n",
			cmp.Or(set, "none"),
			cmp.Or(strings.Join(loses(all), ", "), "–"),
			s.Verdict.Worth,
			strings.ReplaceAll(s.Verdict.Summary, "|", "\\|"),
		)
	}
	if *updateVerdicts {
		testkit.Check(t, os.WriteFile(verdictsPage, []byte(page.String()), 0o644))
	}
}

const verdictsHead = `# Verdicts and truth

What ` + "`pleg-bench watch`" + ` says of each fault of the fake runtime within a minute of 20 changes a second, in
virtual time, beside what the runtime's history says. ` + "`go test ./internal/bench/watch`" + ` fails if a share is
outside of the verdict's interval, if FULL has lost something, or if PARTIAL has lost nothing; it
writes this page with ` + "`-update`" + `. A second test holds the verdict against a proxy that loses 0, 1, 5, 20 and
50 % of the events of three runtimes, and knows which.

| fault | events lost, by the history | verdict | in words |
|---|---|---|---|
`

// tuned are the settings of faults that tune others, or need them.
var tuned = map[string]string{
	"delay-by":         "delay=0.2 delay-by=3s",
	"oversize-bytes":   "oversize=0.01 oversize-bytes=268435456",
	"replay":           "replay=1 cut=0.01",
	"replay-events":    "replay=1 cut=0.01 replay-events=3",
	"clock-step-every": "clock-step=-30s clock-step-every=20s",
	"late-by":          "late-code=0.3 late-by=5s",
	"processors":       "work=5ms processors=4",
	"fail-code":        "fail-list=0.1 fail-code=Unavailable",
	"late-write-by":    "late-write=0.05 late-write-by=10s",
	"eof-at-once":      "eof-at-once=1",
	"unimplemented":    "unimplemented=1",
	"exit-lag":         "exit-lag=2s",
}

// settingOf is the setting that shows a fault.
func settingOf(f fakeruntime.Fault) string {
	if set, ok := tuned[f.Name]; ok || f.Name == "" {
		return set
	}
	return f.Name + "=" + f.Example
}

// checkVerdict holds a verdict against the truth.
func checkVerdict(t *testing.T, set string, s *watch.Summary, all map[string]truth) {
	t.Helper()
	name := cmp.Or(set, "no fault")
	lost := loses(all)
	away := len(s.Stream.Endings) > 0 || s.Stream.MuteSeconds > 0
	invalid := s.Stream.Flaws[stream.Malformed]+s.Stream.Flaws[stream.UnknownType] > 0 // sent, and of no use
	if !away &&
		!invalid { // else the history does not say what was heard
		for kind, loss := range s.Stream.Loss {
			if kind == "sandbox CREATED" || kind == "sandbox STARTED" {
				continue // one entry of the history stands for both
			}
			n := all[kind]
			if share := float64(n.lost) / float64(max(n.lost+n.told, 1)); !within(share, loss) {
				t.Errorf(
					"%s: lost %d of %d %s, said %v of %d",
					name,
					n.lost,
					n.lost+n.told,
					kind,
					loss,
					loss.Of,
				)
			}
		}
	}
	full := s.Verdict.Worth == stream.WorthFull
	other := away || invalid || s.Unheard+s.UnreadPods+s.UnreadItems+s.MissedUnknowns > 0
	if full && len(lost) > 0 {
		t.Errorf("%s: FULL, and it lost %s", name, strings.Join(lost, ", "))
	}
	if s.Verdict.Worth == stream.WorthPartial && len(lost) == 0 && !other {
		t.Errorf("%s: it lost nothing: %s", name, s.Verdict.Summary)
	}
	if !full && set == "" {
		t.Errorf("%s: %s", name, s.Verdict.Summary)
	}
}
