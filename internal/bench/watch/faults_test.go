// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/internal/bench/watch"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/standstill"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/onfake"
)

// TestMain collects garbage at five times the live heap, which is small: a tenth less CPU.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	goleak.VerifyTestMain(m)
}

// outcome is the output of a watch, and its end.
type outcome struct {
	stdout, stderr string
	summary        *watch.Summary
	err            error
	took           time.Duration
}

// scene is a watch of a fake runtime in virtual time, while pods come and go.
type scene struct {
	profile, faults string
	rate            float64       // default 20
	jobs            bool          // short containers alone come and go
	life            time.Duration // of these, default 20 ms
	options         watch.Options
	idle            bool                          // nothing happens during the watch
	proxy           *dropper                      // between the watch and the runtime
	stopAt, stopFor time.Duration                 // this watch does not run then, unless stopFor is 0
	heard           bool                          // but hears the runtime
	during          func(rt *fakeruntime.Runtime) // called beside the watch
	// after is called at the end of the watch, with its begin.
	after func(rt *fakeruntime.Runtime, begun time.Time)
}

// play watches in a bubble of virtual time.
func (s scene) play(t *testing.T) (o outcome) {
	t.Helper()
	profile := testkit.Must(fakeruntime.ProfileByName(cmp.Or(s.profile, "containerd-2")))(t)
	faults := testkit.Must(fakeruntime.ParseFaults(strings.Fields(s.faults)...))(t)
	synctest.Test(t, func(t *testing.T) {
		rt := testkit.Must(fakeruntime.New(fakeruntime.Config{Profile: profile, Seed: 1, HistoryLimit: -1}))(t)
		dial := onfake.Memory(t, rt)
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		defer group.Wait()
		defer stop()
		driver := load.New(load.Config{
			Conn: onfake.Connect(
				t,
				dial,
			),
			RunID:      "w",
			Pods:       4,
			Containers: 2,
			Rate:       cmp.Or(s.rate, 20),
			Seed:       1,
			Image:      fakeruntime.WorkloadImage,
			JobLife: cmp.Or(
				s.life,
				20*time.Millisecond,
			),
			CallTimeout:  time.Second,
			LogDirectory: "/nowhere/logs", // nobody reads them: the fake writes none into a folder that is not there
			JobsOnly:     s.jobs,
		})
		testkit.Check(t, driver.Setup(ctx))
		testkit.Check(t, rt.SetFaults(faults))
		if s.idle {
			time.Sleep(10 * time.Second) // what the runtime keeps is old
		} else {
			group.Go(func() { driver.Run(ctx, time.Hour) })
		}
		if s.during != nil {
			group.Go(func() { s.during(rt) })
		}
		var stdout, stderr bytes.Buffer
		if s.proxy != nil {
			dial = s.proxy.between(t, dial)
		}
		begun := time.Now()
		options := s.options
		if s.stopFor > 0 {
			stop := onfake.StopAfter(s.stopAt, s.stopFor)
			options.Meter = stop.Meter(t)
			if straight := dial; !s.heard {
				dial = stop.Through(func(ctx context.Context) (net.Conn, error) {
					conn, err := straight(ctx)
					time.Sleep(time.Millisecond) // to be connected when the stop begins
					return conn, err
				})
			}
		}
		options.Endpoint, options.Dialer, options.Err = "fake", dial, &stderr
		if options.Out == nil {
			options.Out = &stdout
		}
		options.Mode, options.Duration = cmp.Or(options.Mode, worker.Evented), cmp.Or(options.Duration, 20*time.Second)
		o.summary, o.err = watch.Run(ctx, options)
		o.took = time.Since(begun)
		o.stdout, o.stderr = stdout.String(), stderr.String()
		if s.after != nil {
			s.after(rt, begun)
		}
	})
	return o
}

// TestHonestRuntime finds no fault with an honest runtime, and prints the exit code of every ended
// container.
func TestHonestRuntime(t *testing.T) {
	for _, profile := range []string{"containerd-2", "containerd-2.0", "crio"} {
		o := scene{profile: profile, jobs: true, options: watch.Options{Output: "json"}}.play(t)
		s := o.summary
		if o.err != nil || o.stderr != "" || s.Verdict == nil || s.Verdict.Worth != stream.WorthFull || len(s.Verdict.Maintainers) != 0 ||
			len(s.Stream.Flaws) != 0 || len(s.Reports) != 0 ||
			s.ListErrors+s.ReadErrors+s.ListsHung+s.ReadsHung != 0 {
			t.Errorf(
				"%s: %v, verdict %+v, reports %v; stderr %s",
				profile,
				o.err,
				s.Verdict,
				s.Reports,
				o.stderr,
			)
		}
		ends := 0
		for line := range strings.Lines(o.stdout) {
			if strings.Contains(line, `"type":"ContainerDied","kind":"container"`) {
				ends++
				if !strings.Contains(line, `"exit_code":`) {
					t.Errorf("%s: an end without its exit code: %s", profile, line)
				}
			}
		}
		if ends < 20 {
			t.Errorf("%s: %d ends, want some dozens", profile, ends)
		}
	}
}

// TestStreamAway restarts the runtime: the exits meanwhile, which no event told of, make the stream
// partial however short the time was, and the summary counts them.
func TestStreamAway(t *testing.T) {
	o := scene{
		faults:  "restart-exit=0.9",
		rate:    1,
		options: watch.Options{Duration: 2 * time.Minute},
		during: func(rt *fakeruntime.Runtime) {
			time.Sleep(50 * time.Second)
			rt.Restart(2*time.Second, 500*time.Millisecond)
		},
	}.play(t)
	var said strings.Builder
	testkit.Check(t, o.summary.Document().WriteText(&said, bench.Columns))
	for _, want := range []string{"PARTIAL: ", ", [1-9][0-9]* while the stream was away", "happened while the stream was away"} {
		if !regexp.MustCompile(want).MatchString(strings.Join(strings.Fields(said.String()), " ")) {
			t.Errorf("the summary lacks %q:\n%s", want, said.String())
		}
	}
	if s := o.summary; o.err != nil || s.Unheard == 0 || s.Verdict.Worth != stream.WorthPartial ||
		s.ConnectedSeconds < 0.9*s.Seconds {
		t.Errorf(
			"%v, unheard %d, connected %.0f of %.0f s: %+v",
			o.err,
			s.Unheard,
			s.ConnectedSeconds,
			s.Seconds,
			s.Verdict,
		)
	}
}

// TestStreamAwayUnderLoad counts every end of a restart under load, though the load removes the
// ended containers at once, and the stream reports the removals. A change after the restart may
// count, too: a read finds it, and its event is followed by another of the container within the
// grace.
func TestStreamAwayUnderLoad(t *testing.T) {
	unheard := 0
	away := scene{
		jobs: true, rate: 24, life: 2 * time.Second,
		options: watch.Options{Output: "json", Duration: 25 * time.Second},
		during: func(rt *fakeruntime.Runtime) {
			time.Sleep(5 * time.Second)
			rt.Restart(3*time.Second, 500*time.Millisecond)
			time.Sleep(15 * time.Second)
			history, _ := rt.History(0)
			for _, c := range history {
				if c.New == fakeruntime.StateExited && c.Event == fakeruntime.NoEvent {
					unheard++
				}
			}
		},
	}
	s := away.play(t).summary
	if unheard < 5 || s.Unheard < unheard || s.Unheard > 2*unheard || s.Missed != 0 ||
		s.Verdict.Worth != stream.WorthPartial {
		t.Errorf(
			"%d ends without an event: unheard %d, missed %d, %+v",
			unheard,
			s.Unheard,
			s.Missed,
			s.Verdict,
		)
	}
}

// TestDurationCountsFromTheFirstList watches for less than the first list takes: the duration
// begins with the list's end. A list without an answer delays the begin by ten seconds at most.
func TestDurationCountsFromTheFirstList(t *testing.T) {
	o := scene{faults: "slow-list=6s", options: watch.Options{Duration: 5 * time.Second}}.play(t)
	if s := o.summary; o.err != nil || s.Seconds < 5 || s.Seconds > 9 || s.Lists == 0 ||
		s.Stream.ToldSomething < 20 {
		t.Errorf("a slow list: %v, %+v", o.err, o.summary)
	}
	var took time.Duration
	o = scene{
		faults:  "hang-list=1",
		options: watch.Options{Duration: 5 * time.Second},
		after:   func(_ *fakeruntime.Runtime, begun time.Time) { took = time.Since(begun) },
	}.play(t)
	if took < 15*time.Second || took > 20*time.Second {
		t.Errorf("a list without an answer: watched for %s, want 15 s and the last list", took)
	}
}

// TestContestedStream watches a containerd 1.7, which gives each event to a single client: the
// events are left to the others unless requested, and the verdict names the reservation.
func TestContestedStream(t *testing.T) {
	left := scene{profile: "containerd-1.7", options: watch.Options{Output: "json"}}.play(t)
	if s := left.summary; left.err != nil || s.Stream != nil || s.Verdict == nil || s.Verdict.Worth != stream.WorthUnknown ||
		s.Calls["GetContainerEvents"] != 0 ||
		!strings.Contains(s.Verdict.Summary, "--take-events") {
		t.Errorf("%v, %d subscriptions, verdict %+v", left.err, s.Calls["GetContainerEvents"], s.Verdict)
	}
	taken := scene{profile: "containerd-1.7", options: watch.Options{Output: "json", TakeEvents: true}}.play(t)
	if s := taken.summary; taken.err != nil || s.Stream == nil || s.Stream.Received == 0 ||
		!strings.Contains(s.Verdict.Summary, "one of its clients only") {
		t.Errorf("%v, verdict %+v", taken.err, s.Verdict)
	}
	if raw := (scene{profile: "containerd-1.7", options: watch.Options{Raw: true}}).play(t); raw.err == nil {
		t.Error("--raw without --take-events has nothing to print, and does not fail")
	}
}

// TestNoEvents watches a runtime that offers no events: the summary shows the state that the stream
// had to the end, not that of a generator that has ended.
func TestNoEvents(t *testing.T) {
	for faults, want := range map[string]string{"unimplemented=1": "Unsupported none", "": "Connected full"} {
		s := scene{
			jobs:    true,
			faults:  faults,
			options: watch.Options{Output: "json", Duration: time.Minute},
		}.play(
			t,
		).summary
		if got := s.State + " " + string(s.Verdict.Worth); got != want {
			t.Errorf("faults %q: %s, want %s", faults, got, want)
		}
	}
}

// TestExpectations judges a watch by bounds of which some are kept.
func TestExpectations(t *testing.T) {
	o := scene{jobs: true, faults: "duplicate=0.3"}.play(t)
	for text, kept := range map[string]bool{
		"lists>0": true, "stream.flaws.malformed=0": true, "stream.delay.all.p99<1ns": false, "verdict.worth=none": false, "verdict.worth=full": true,
		"reports.RelistFailed<1": true, "stream.flaws.duplicate>0": true,
	} {
		bounds := testkit.Must(report.ParseExpectations([]string{text}, watch.BlankSummary(), nil))(t)
		if err := bounds[0].Check(o.summary); (err == nil) != kept {
			t.Errorf("%s: %v, want it kept: %v", text, err, kept)
		}
	}
}

// TestNarrowTerminal folds the lines of events below the end of their time.
func TestNarrowTerminal(t *testing.T) {
	o := scene{jobs: true, options: watch.Options{OutColumns: 50, ErrColumns: 50}}.play(t)
	folded := 0
	for line := range strings.Lines(o.stdout) {
		if n := len([]rune(strings.TrimSpace(line))); n > 50 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
		if strings.HasPrefix(line, strings.Repeat(" ", 14)) {
			folded++
		}
	}
	if folded < 20 {
		t.Errorf("%d lines are folded, want some dozens:\n%s", folded, o.stdout)
	}
}

// broken is an output that nobody reads any more.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestBrokenOutput names the reason once.
func TestBrokenOutput(t *testing.T) {
	for _, output := range []string{"text", "json"} {
		o := scene{options: watch.Options{Output: output, Out: broken{}}}.play(t)
		if !errors.Is(o.err, syscall.EPIPE) || strings.Count(o.err.Error(), "broken pipe") != 1 {
			t.Errorf("%s: %v", output, o.err)
		}
	}
}

// TestLateEvents checks that a few late events and exits are named to the maintainers, though most
// are in time.
func TestLateEvents(t *testing.T) {
	for faults, want := range map[string]string{
		"delay=0.01 delay-by=3s": "a second or more after their stamp, the latest after",
		"exit-lag=1500ms":        "were stamped a second or more after they happened, the latest after",
	} {
		s := scene{
			faults:  faults,
			options: watch.Options{Output: "json", Duration: time.Minute},
		}.play(
			t,
		).summary
		if said := strings.Join(s.Verdict.Maintainers, "\n"); !strings.Contains(said, want) {
			t.Errorf(
				"%s: the maintainers are told %q, want %q; delays %+v",
				faults,
				said,
				want,
				s.Stream.Delays[stream.AllKinds],
			)
		}
	}
}

// TestStandstill: a watch that does not run for a time waits as much longer for the runtime's first
// answer, for the first list, for the last one, and for events on their way.
func TestStandstill(t *testing.T) {
	const (
		long   = 15 * time.Second
		answer = 1300 * time.Millisecond // one that comes meanwhile is not waited for afterwards
		looks  = 100 * time.Millisecond  // the watch looks so often
		most   = long + looks + standstill.Every
	)
	whole := scene{faults: "slow-list=" + answer.String(), options: watch.Options{Output: "json"}}
	usual := whole.play(t).took
	for _, s := range []struct {
		name  string
		at    time.Duration
		heard bool // what the runtime sends comes all the same, or the end would wait for it
	}{
		{"at the first call", time.Millisecond, false},
		{"in the first list", 100 * time.Millisecond, false},
		{"in the last list", usual - 4700*time.Millisecond, false},
		{"while events are on their way", usual - time.Second, true},
	} {
		stopped := whole
		stopped.stopAt = s.at
		stopped.stopFor = long
		stopped.heard = s.heard
		o := stopped.play(t)
		if o.err != nil {
			t.Errorf("stopped %s: %v", s.name, o.err)
		}
		if longer := o.took - usual; longer < long-answer-looks || longer > most {
			t.Errorf("stopped %s for %v: took %v, %v longer", s.name, long, o.took, longer)
		}
	}
}
