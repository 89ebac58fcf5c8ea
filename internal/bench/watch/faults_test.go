// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/internal/bench/watch"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outcome is what a watch printed as JSON, and how it ended.
type outcome struct {
	summary watch.Summary
	// reports are the notes of reports, with their reasons.
	reports string
	err     error
}

// watchFake watches a fake runtime on which pods come and go.
func watchFake(t *testing.T, long time.Duration, profile string, faults ...string) outcome {
	t.Helper()
	return keepFake(t, watch.Keep{}, long, profile, faults...)
}

// keepFake is watchFake, and keeps what it finds.
func keepFake(t *testing.T, keep watch.Keep, long time.Duration, profile string, faults ...string) outcome {
	t.Helper()
	p, err := fakeruntime.ProfileByName(profile)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fakeruntime.ParseFaults(faults...)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := fakeruntime.New(fakeruntime.Config{Profile: p, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	dir, err := os.MkdirTemp("", "pw") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "cri.sock")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { _ = rt.Serve(ctx, lis) })
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	driver, err := load.New(load.Config{
		Conn: conn, RunID: "w", Pods: 4, Containers: 2, Rate: 60, Seed: 1, Image: fakeruntime.WorkloadImage,
		JobLife: 20 * time.Millisecond, CallTimeout: time.Second, LogDirectory: filepath.Join(dir, "logs"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Setup(ctx); err != nil {
		t.Fatal(err)
	}
	if err := rt.SetFaults(f); err != nil {
		t.Fatal(err)
	}
	group.Go(func() { driver.Run(ctx, time.Hour) })
	var out bytes.Buffer
	o := outcome{err: watch.Run(ctx, watch.Options{Endpoint: socket, Mode: worker.Evented, Duration: long, Keep: keep, Output: "json", Out: &out, Err: &out})}
	for line := range strings.Lines(out.String()) {
		var l struct{ Type, Reason, Note string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch l.Type {
		case "Report":
			o.reports += l.Reason + ": " + l.Note + "\n"
		case "Summary":
			if err := json.Unmarshal([]byte(line), &o.summary); err != nil {
				t.Fatal(err)
			}
		}
	}
	if o.summary.Stream == nil || o.summary.Verdict == nil || o.summary.Verdict.Summary == "" {
		t.Fatalf("the summary is not whole: %+v\n%s", o.summary, out.String())
	}
	return o
}

// TestHonestRuntime has nothing to say against a runtime that does what it should.
func TestHonestRuntime(t *testing.T) {
	o := watchFake(t, 4*time.Second, "containerd-2")
	s := o.summary
	if o.err != nil || s.Verdict.Worth != stream.WorthFull || len(s.Verdict.Maintainers) != 0 || o.reports != "" || s.ListErrors+s.ReadErrors+s.ListsHung+s.ReadsHung != 0 {
		t.Errorf("%v, verdict %+v, reports %q", o.err, s.Verdict, o.reports)
	}
}

// TestEveryFaultIsSeen lets the fake misbehave in each of its ways that concern one who only reads: the
// watch must say so.
func TestEveryFaultIsSeen(t *testing.T) {
	flaw := func(f stream.Flaw) func(outcome) bool {
		return func(o outcome) bool { return o.summary.Stream.Flaws[f] > 0 }
	}
	report := func(text string) func(outcome) bool {
		return func(o outcome) bool { return strings.Contains(o.reports, text) }
	}
	seen := map[string]func(outcome) bool{
		"drop=0.3":                            func(o outcome) bool { return len(o.summary.Stream.Skipped) > 0 },
		"duplicate=0.5":                       flaw(stream.Duplicate),
		"delay=0.5":                           func(o outcome) bool { return o.summary.Stream.Delays[stream.AllKinds].P90 > 0.1 },
		"swap-stop-delete=1":                  func(o outcome) bool { return o.summary.Stream.Reordered["STOPPED after DELETED"] > 0 },
		"stale=0.5":                           flaw(stream.StalePayload),
		"nil-sandbox=0.5":                     flaw(stream.NoSandbox),
		"nil-statuses=0.5":                    flaw(stream.NoStatuses),
		"oversize=0.05":                       func(o outcome) bool { return o.summary.Stream.LargestBytes > 16<<20 },
		"invalid-event=0.3":                   flaw(stream.Malformed),
		"silent-exit=0.5":                     func(o outcome) bool { return o.summary.Missed+o.summary.Stream.Skipped["STOPPED"] > 0 },
		"start-error=0.5":                     func(o outcome) bool { return o.summary.Missed+o.summary.Stream.Skipped["STOPPED"] > 0 },
		"cut=0.05":                            report("the event stream ended: Unavailable"),
		"eof=0.05":                            report("the event stream ended: EOF"),
		"stall=0.1":                           report("ContainerEventsMissed"),
		"replay=1 cut=0.05":                   func(o outcome) bool { return o.summary.Stream.Replayed > 0 },
		"eof-at-once=1":                       report("ContainerEventStreamUnsupported"),
		"unimplemented=1":                     report("ContainerEventStreamUnsupported"),
		"exit-lag=200ms":                      func(o outcome) bool { return o.summary.Stream.ExitLag.Max > 0.15 },
		"clock-skew=-90s":                     func(o outcome) bool { return o.summary.Stream.Replayed == o.summary.Stream.Received },
		"clock-skew=90s":                      flaw(stream.FromFuture),
		"clock-step=-30s clock-step-every=1s": func(o outcome) bool { return o.summary.Stream.Flaws[stream.StampBack]+o.summary.Stream.Replayed > 0 },
		"slow-list=50ms":                      func(o outcome) bool { return o.summary.ListSeconds.P50 > 0.045 },
		"slow-status=20ms":                    func(o outcome) bool { return o.summary.ReadSeconds.P90 > 0.018 },
		"fail-list=1":                         func(o outcome) bool { return o.err != nil && strings.Contains(o.reports, "RelistFailed") },
		"fail-list=0.5":                       report("RelistFailed"),
		"fail-status=1":                       report("PodInspectFailed"),
		"hang-list=1":                         func(o outcome) bool { return o.err != nil && o.summary.ListsHung > 0 },
		"hang-status=1": func(o outcome) bool {
			return o.summary.ReadsHung > 0 && strings.Contains(o.reports, "has not been answered")
		},
		"cut-list=1": report("RelistFailed"),
		"unknown-enum=0.3": func(o outcome) bool {
			return o.summary.UnknownPhase > 0 || o.summary.Stream.Flaws[stream.UnknownType] > 0
		},
		"duplicate-id=0.5":   func(o outcome) bool { return o.summary.ListedTwice > 0 },
		"orphan-container=1": func(o outcome) bool { return o.summary.TakenBack > 0 },
	}
	limit := make(chan struct{}, 8)
	for faults, found := range seen {
		t.Run(faults, func(t *testing.T) {
			t.Parallel()
			limit <- struct{}{}
			defer func() { <-limit }()
			// What a fault may do to any event shows only when there are many: a starved machine has 50 in
			// 5 s, and is watched for longer.
			const longest = 40 * time.Second
			o := watchFake(t, 5*time.Second, "containerd-2", strings.Fields(faults)...)
			for span := 10 * time.Second; span <= longest && !found(o); span *= 2 {
				o = watchFake(t, span, "containerd-2", strings.Fields(faults)...)
			}
			if !found(o) {
				raw, _ := json.MarshalIndent(o.summary, "", " ")
				t.Errorf("it does not show (%v):\n%s\n%s", o.err, o.reports, raw)
			}
		})
	}
	t.Run("all are tried", func(t *testing.T) {
		// What concerns calls that change something, and items of replies without an effect on phases,
		// is not a watch's to see; what has no example only tunes another fault. Whether a start is held
		// back until the stop depends on how busy the machine is: that order is judged in virtual time.
		beyond := "sandbox-error restart-exit slow-write fail-write hang-write nil-fields invalid-utf8 swap-start-stop"
		for _, f := range fakeruntime.FaultList() {
			tried := f.Example == "" || strings.Contains(beyond, f.Name)
			for faults := range seen {
				tried = tried || strings.Contains(" "+faults, " "+f.Name+"=")
			}
			if !tried {
				t.Errorf("the fault %s is not tried", f.Name)
			}
		}
	})
}
