// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/fakeproc"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Arguments of this program as a child of a run.
const (
	asFake   = "fake"   // socket, profile, file for the history, faults
	asWorker = "worker" // what the worker does wrong, empty for nothing
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == asFake || os.Args[1] == asWorker) {
		signal.Ignore(syscall.SIGINT)
		var err error
		if os.Args[1] == asFake {
			err = serveFake(os.Args[2], os.Args[3], os.Args[4], os.Args[5:])
		} else {
			err = serveWorker(os.Args[2])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testkit.Waiting(12) // most of a run is load at a low rate, and times to settle
	goleak.VerifyTestMain(m)
}

// serveFake is the fake runtime, which writes its history to a file at its end.
func serveFake(socket, profile, path string, settings []string) error {
	of, profileErr := fakeruntime.ProfileByName(profile)
	faults, faultsErr := fakeruntime.ParseFaults(settings...)
	if err := errors.Join(profileErr, faultsErr); err != nil {
		return err
	}
	rt, err := fakeruntime.New(fakeruntime.Config{Profile: of, Faults: faults, Seed: 8, HistoryLimit: -1})
	if err != nil {
		return err
	}
	served := fakeproc.Serve(
		context.Background(),
		fakeproc.Config{Socket: socket, Runtime: rt, In: os.Stdin, Out: os.Stdout},
	)
	changes, _ := fakeproc.Changes(rt, 0)
	raw, err := json.Marshal(changes)
	return errors.Join(served, err, os.WriteFile(path, raw, 0o600))
}

// liar stands before a worker, and does one thing wrong.
type liar struct {
	wrong string
	inner child.Calls

	mu   sync.Mutex                // owns the fields below
	kept map[string]bench.Delivery // starts, by ID, that come after the ends of their containers
}

func serveWorker(wrong string) error {
	if wrong == "" {
		return worker.Serve(context.Background(), os.Stdin, os.Stdout)
	}
	in, calls := io.Pipe()
	answers, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		err := worker.Serve(context.Background(), in, out)
		_ = out.Close()
		served <- err
	}()
	l := &liar{
		wrong: wrong,
		inner: child.NewCalls(answers, calls),
		kept:  make(map[string]bench.Delivery),
	}
	err := child.Serve(os.Stdin, os.Stdout, &server{l})
	return errors.Join(err, l.inner.Close(), <-served)
}

// server has the calls of a worker.
type server struct{ *liar }

func pass[A any](l *liar, method string, argument any, answer *A) (err error) {
	*answer, err = child.Ask[A](context.Background(), l.inner, method, argument)
	return err
}

func (s *server) Start(c worker.Config, a *worker.Hello) error { return pass(s.liar, "Start", c, a) }
func (s *server) Facts(f []load.Fact, a *bool) error           { return pass(s.liar, "Facts", f, a) }
func (s *server) Probe(rate float64, a *bool) error            { return pass(s.liar, "Probe", rate, a) }
func (s *server) Relist(b bool, a *bool) error                 { return pass(s.liar, "Relist", b, a) }
func (s *server) Metrics(b bool, a *[]byte) error              { return pass(s.liar, "Metrics", b, a) }

func (s *server) News(b bool, a *worker.News) error {
	err := pass(s.liar, "News", b, a)
	s.spoil(a)
	return err
}

func (s *server) Report(b bool, a *worker.Report) error {
	err := pass(s.liar, "Report", b, a)
	s.spoil(&a.News)
	return err
}

func (s *server) Snapshot(b bool, a *worker.Snapshot) error {
	err := pass(s.liar, "Snapshot", b, a)
	s.spoil(&a.News)
	if s.wrong == "wrong-code" {
		for _, p := range a.Pods {
			if n := len(p.Items); n > 0 {
				p.Items[n-1].ExitCode += 7
			}
		}
	}
	return err
}

// spoil does wrong what Watch has delivered, whatever of a life comes with which news: on a busy
// machine a start and its end seldom come together.
func (l *liar) spoil(n *worker.News) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := n.Deliveries
	switch l.wrong {
	case "twice":
		for _, d := range list {
			if d.ID != "" {
				n.Deliveries = append(n.Deliveries, d)
			}
		}
	case "disordered": // an end before its start
		n.Deliveries = nil
		for _, d := range list {
			if d.Type == pleg.ContainerStarted {
				l.kept[d.ID] = d
				continue
			}
			n.Deliveries = append(n.Deliveries, d)
			if start, ok := l.kept[d.ID]; ok {
				n.Deliveries = append(n.Deliveries, start)
				delete(l.kept, d.ID)
			}
		}
	case "no-ends": // nor their removals
		n.Deliveries = slices.DeleteFunc(
			list,
			func(d bench.Delivery) bool { return d.Type != pleg.ContainerStarted },
		)
	}
}

// trial is a run or a stress test on the fake runtime.
type trial struct {
	profile, faults string
	wrong           string // the worker's
}

// options are a run of seconds.
func (tr trial) options(t *testing.T) (o Options, history func() []bench.Change) {
	path := filepath.Join(t.TempDir(), "history")
	o = Options{
		Mode:         worker.Evented,
		Pods:         5,
		Containers:   2,
		Rate:         60,
		Duration:     3 * time.Second,
		Seed:         8,
		JobLife:      300 * time.Millisecond,
		RelistBase:   250 * time.Millisecond,
		ProbeRate:    20,
		Profile:      cmp.Or(tr.profile, "containerd-2"),
		Faults:       strings.Fields(tr.faults),
		Args:         []string{"sleep", "{life}"},
		WantTimeline: true,
		Logger:       logr.Discard(),
		Stderr:       t.Output(),
		WorkerArgs:   []string{asWorker, tr.wrong},
	}
	o.FakeArgs = func(socket string) []string { return append([]string{asFake, socket, o.Profile, path}, o.Faults...) }
	return o, func() (changes []bench.Change) {
		testkit.Check(t, json.Unmarshal(testkit.Must(os.ReadFile(path))(t), &changes))
		return changes
	}
}

// untold counts the changes without an event, and those of them that are starts or exits.
func untold(changes []bench.Change) (all, lives int) {
	for _, c := range changes {
		if c.Told || c.State == pleg.PhaseUnknown {
			continue
		}
		all++
		if c.State == pleg.PhaseRunning || c.State == pleg.PhaseExited {
			lives++
		}
	}
	return all, lives
}

// brief counts the changes, creations apart, of the containers and sandboxes that were there for
// less than a time. A worker that was behind for so long, as on a machine with much else to do, may
// never have seen them.
func brief(changes []bench.Change, than time.Duration) (n int) {
	came := make(map[string]int64)
	told := make(map[string]int)
	for _, c := range changes {
		if _, ok := came[c.ID]; !ok {
			came[c.ID] = c.At
		}
		if c.State >= pleg.PhaseRunning {
			told[c.ID]++
		}
		if c.State == pleg.PhaseRemoved && time.Duration(c.At-came[c.ID]) < than {
			n += told[c.ID]
		}
	}
	return n
}

// TestRunVerdicts holds the verdict of a run against the history of a runtime with a fault, and
// against what a worker does wrong.
func TestRunVerdicts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		trial
		fails string // what the verdict says, empty for PASS
		lossy bool   // reads find starts and exits without an event
	}{
		{trial: trial{}},
		{trial: trial{profile: "crio"}},
		{trial: trial{faults: "drop=0.3"}, lossy: true},
		{trial: trial{faults: "drop-stopped=0.5"}}, // the removal tells of the end
		{trial: trial{faults: "duplicate=0.3 swap-start-stop=0.3 swap-stop-delete=0.3"}},
		{trial: trial{faults: "stale=0.3"}},
		{trial: trial{faults: "delay=0.3 delay-by=500ms"}},
		{trial: trial{faults: "cut=0.02"}},
		{trial: trial{faults: "late-code=0.3"}},
		{trial: trial{faults: "unimplemented=1"}},
		{trial: trial{wrong: "twice"}, fails: "delivered twice"},
		{trial: trial{wrong: "disordered"}, fails: "delivered out of order"},
		{trial: trial{wrong: "no-ends"}, fails: "never told of"},
		{trial: trial{wrong: "wrong-code"}, fails: "between the cache and the runtime"},
	} {
		t.Run(strings.TrimSpace(test.profile+" "+test.faults+" "+test.wrong), func(t *testing.T) {
			t.Parallel()
			o, history := test.options(t)
			const fewest = 60
			r := testkit.Must(Run(t.Context(), o))(t)
			// Too short on a busy machine, whose reads are seldom.
			for o.Duration < 20*time.Second && (r.Load.Changes < fewest || test.lossy && r.Events.Missed == 0) {
				o.Duration *= 2
				r = testkit.Must(Run(t.Context(), o))(t)
			}
			said := r.Document().Verdict
			if r.OK != (test.fails == "") || !strings.Contains(said, test.fails) || r.Load.Changes < fewest {
				t.Errorf(
					"%s; want %q, after %d changes: %v",
					said,
					test.fails,
					r.Load.Changes,
					r.Consistency.Differences,
				)
			}
			changes := history()
			lost, lives := untold(changes)
			behind := 2 * r.Latency.Max // those that were not seen may have been somewhat later than all others
			unseeable := brief(changes, time.Duration(behind*float64(time.Second)))
			e := r.Events
			polls := r.PLEG.State == "Unsupported"
			switch {
			case test.wrong != "" || polls:
			case r.PLEG.Reconnects > 0: // the history does not say what was heard
				if e.Missed > lives || e.Undelivered > 0 {
					t.Errorf("missed %d of %d, %d undelivered", e.Missed, lives, e.Undelivered)
				}
			case e.Missed > lives || e.Unseen > lost+unseeable:
				t.Errorf(
					"missed %d, unseen %d; the history has %d changes without an event, %d of them starts and exits, and %d of what was there for less than %.3f s",
					e.Missed,
					e.Unseen,
					lost,
					lives,
					unseeable,
					behind,
				)
			case test.lossy && (lives < 5 || e.Missed == 0):
				t.Errorf("missed %d of %d", e.Missed, lives)
			}
			if polls != strings.Contains(said, "offers no events") {
				t.Errorf("%s; the stream is %s", said, r.PLEG.State)
			}
		})
	}
}

// TestProgressCountsTheLoad: the changes of the set-up are none of the load's.
func TestProgressCountsTheLoad(t *testing.T) {
	t.Parallel()
	o, _ := trial{}.options(t)
	o.Pods = 20
	o.Rate = 10
	o.Duration = time.Second
	var most, told atomic.Int64
	o.OnStatus = func(s Status) {
		if s.Total > 0 {
			told.Add(1)
			most.Store(max(most.Load(), int64(s.Changes)))
		}
	}
	r := testkit.Must(Run(t.Context(), o))(t)
	if told.Load() == 0 || most.Load() > int64(r.Load.Changes) {
		t.Errorf("told %d times of up to %d changes, the load made %d", told.Load(), most.Load(), r.Load.Changes)
	}
}

// TestStressVerdicts holds the end of a stress test, its two counts of late events and its chart
// against each other, and against what the runtime and the worker do wrong.
func TestStressVerdicts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		trial
		end, fails string
		rate       float64 // the only one, 0 for 20 containers a second
		pods       int     // 0 for 2
	}{
		{trial: trial{}},
		// 64 calls are in flight at most, and each container takes three: 42 a second. In many
		// pods, as hundreds of containers are under way, which each event of their pod shows.
		{trial: trial{faults: "slow-write=500ms"}, end: bench.EndRuntime, rate: 75, pods: 60},
		{trial: trial{faults: "exit-lag=1500ms"}}, // late by the container's status, in time by the event's stamp
		{trial: trial{faults: "delay=0.3 delay-by=1500ms"}, end: bench.EndKnee},
		{trial: trial{faults: "unimplemented=1"}, end: bench.EndNoEvents},
		{trial: trial{wrong: "twice"}, fails: "delivered twice"},
		{trial: trial{wrong: "wrong-code"}, fails: "between the cache and the runtime"},
	} {
		t.Run(strings.TrimSpace(test.faults+" "+test.wrong), func(t *testing.T) {
			t.Parallel()
			o, history := test.options(t)
			o.Pods, o.Containers = cmp.Or(test.pods, 2), 1
			rate := cmp.Or(test.rate, 20)
			stress := func(step time.Duration) *bench.StressResult {
				return testkit.Must(Stress(t.Context(), StressOptions{Options: o, StartRate: rate, MaxRate: rate, Factor: 2, StepFor: step}))(t)
			}
			const step = 3 * time.Second
			r := stress(step)
			// A step in which this machine completes not one container, as it is busy, is too short here.
			// One in which calls take longer than they may is no better if longer.
			whole := func() bool { return r.GivenUp == 0 && len(r.FirstErrors) == 0 }
			for longer := 2 * step; r.KneeRate == 0 && whole() && longer <= 8*step; longer *= 2 {
				r = stress(longer)
			}
			dots := 0
			for _, p := range r.Series[0].Points {
				if p[1] > 1 {
					dots++
				}
			}
			if dots != int(r.LateOnWatch) {
				t.Errorf("%d dots of the chart are late, and %d events on Watch", dots, r.LateOnWatch)
			}
			steps := uint64(0)
			for _, s := range r.Steps {
				steps += s.LateOnWatch
			}
			stood := r.StoodSeconds > 0 // on a busy machine: what is late then makes no knee
			if steps > r.LateOnWatch || !stood && (r.Late+r.LateOnWatch > 0) != (r.End == bench.EndKnee) {
				t.Errorf(
					"%s: %d late, %d on Watch, %d of them in the steps",
					r.End,
					r.Late,
					r.LateOnWatch,
					steps,
				)
			}
			slow := test.end == bench.EndRuntime && r.End == bench.EndKnee &&
				r.Late+r.LateOnWatch > 0 // of a machine without CPU
			said := r.Document().Verdict
			emptied := strings.HasPrefix(said, "NO VERDICT") && r.CheckedPods == 0
			if (r.End == bench.EndNothing || emptied) && !whole() { // there is nothing else to judge
				if r.OK {
					t.Errorf("%s; the calls were given up, or failed", said)
				}
				return
			}
			stopped := r.End == test.end || slow || r.End == bench.EndStood
			if test.end != "" && !stopped {
				t.Errorf("%s, want %s: %+v", r.End, test.end, r.Steps)
			}
			passes := test.fails == "" && r.End != bench.EndNoEvents
			fails := test.fails != ""
			if r.OK != passes || !strings.Contains(said, test.fails) || strings.HasPrefix(said, "FAIL") != fails {
				t.Errorf("%s; want %q", said, test.fails)
			}
			if test.end == bench.EndNoEvents {
				return
			}
			// A start that was given up, as the machine is busy, is told by no event. An event that is
			// late may be so by more than the generator waits for it.
			missed := r.Missed > 0 && r.Late+r.LateOnWatch == 0
			lost, _ := untold(history())
			unannounced := whole() && (lost > 0 || missed)
			if unannounced || r.Events == 0 {
				t.Errorf("%d events received, %d changes without one, %d missed", r.Events, lost, r.Missed)
			}
		})
	}
}

// TestStressSteps checks what follows a step of a stress test: a higher rate, the same once more,
// or the end.
func TestStressSteps(t *testing.T) {
	o := StressOptions{MaxRate: 40, Factor: 2}
	for _, test := range []struct {
		name  string
		steps []bench.StressStep
		rate  float64
		end   string
	}{
		{"it keeps up", []bench.StressStep{{Rate: 10, Achieved: 9}}, 20, ""},
		{"the last rate", []bench.StressStep{{Rate: 20, Achieved: 19}, {Rate: 40, Achieved: 35}}, 0, bench.EndMaxRate},
		{"not beyond the last", []bench.StressStep{{Rate: 30, Achieved: 29}}, 40, ""},
		{"it begins slowly", []bench.StressStep{{Rate: 10, Achieved: 2}}, 10, ""},
		{"it has begun", []bench.StressStep{{Rate: 10, Achieved: 2}, {Rate: 10, Achieved: 10}}, 20, ""},
		{"it does not keep up", []bench.StressStep{{Rate: 10, Achieved: 2}, {Rate: 10, Achieved: 6}}, 0, bench.EndRuntime},
		{"nor with a higher rate", []bench.StressStep{{Rate: 10, Achieved: 2}, {Rate: 10, Achieved: 9}, {Rate: 20, Achieved: 9}}, 20, ""},
		{"nor with the last", []bench.StressStep{{Rate: 40, Achieved: 9}, {Rate: 40, Achieved: 9}}, 0, bench.EndRuntime},
		{"late by the histogram", []bench.StressStep{{Rate: 10, Achieved: 9, Late: 1}}, 0, bench.EndKnee},
		{"late as it did not run itself", []bench.StressStep{{Rate: 10, Achieved: 9, Late: 1, StoodSeconds: 2}}, 10, ""},
		{"behind as it did not run itself", []bench.StressStep{{Rate: 10, Achieved: 2, StoodSeconds: 2}}, 10, ""},
		{"behind, once by itself", []bench.StressStep{{Rate: 10, Achieved: 2, StoodSeconds: 2}, {Rate: 10, Achieved: 2}}, 10, ""},
		{"it keeps up although it did not run", []bench.StressStep{{Rate: 10, Achieved: 9, StoodSeconds: 2}}, 20, ""},
		{"it did not run for a moment", []bench.StressStep{{Rate: 10, Achieved: 9, Late: 1, StoodSeconds: 0.2}}, 0, bench.EndKnee},
		{"it did not run again and again", slices.Repeat([]bench.StressStep{{Rate: 10, Achieved: 9, Late: 1, StoodSeconds: 2}}, 4), 0, bench.EndStood},
		{"late on Watch, and slow", []bench.StressStep{{Rate: 10, Achieved: 1, LateOnWatch: 1}}, 0, bench.EndKnee},
	} {
		if rate, end := o.next(test.steps); rate != test.rate || end != test.end {
			t.Errorf("%s: %v %q, want %v %q", test.name, rate, end, test.rate, test.end)
		}
	}
}
