// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventsbench

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

func run(t *testing.T, o Options) *Report {
	t.Helper()
	if o.Recorder == "" {
		o.Quiet = 100 * time.Millisecond // ours sends what is left in its shutdown
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// hotLoopCalls is the most that one series may cost in one process that is shorter than a heartbeat and than
// the 10 s between two writes of the roster: its create, its second occurrence and its end; the early counts
// 10, 100, 1,000 and 10,000, each of which is a call of its own where the calls are faster than the loop; and
// the roster's read at the start, its write when the series begins to go on, and its write at the shutdown.
const hotLoopCalls = 3 + 4 + 3

// TestOursIsExact runs every load through our recorder.
func TestOursIsExact(t *testing.T) {
	for _, o := range []Options{
		{Load: LoadHotLoop, Count: 50_000},
		{Load: LoadStorm, Count: 300},
		{Load: LoadNodes, Nodes: 20, Pods: 2, Period: 50 * time.Millisecond, Duration: 500 * time.Millisecond},
		{Load: LoadHotLoop, Count: 1000, Fault: Fault429, FaultFor: time.Second},
		{Load: LoadStorm, Count: 100, Fault: FaultUnreachable, FaultFor: time.Second},
	} {
		t.Run(o.Load+" "+o.Fault, func(t *testing.T) {
			r := run(t, o)
			if !r.Exact() || r.Silent != 0 || r.Unsent != 0 || len(r.Counted) != 0 {
				t.Errorf("%+v", r)
			}
			if o.Load == LoadHotLoop && o.Fault == "" && r.Calls > hotLoopCalls {
				t.Errorf("a hot loop took %d calls, more than %d", r.Calls, hotLoopCalls)
			}
			// Without a fault each node has one: it looks for the roster of an earlier process.
			if nodes := int64(max(1, o.Nodes)); (r.FailedCalls > nodes) != (o.Fault != "") {
				t.Errorf("%d calls failed", r.FailedCalls)
			}
		})
	}
}

// TestOthersRun checks that the same load goes through client-go's recorders; what they make of it is theirs.
func TestOthersRun(t *testing.T) {
	for _, recorder := range []string{RecorderClientGo, RecorderClientGoLegacy} {
		r := run(t, Options{Recorder: recorder, Load: LoadStorm, Count: 20})
		if r.Stored == 0 || r.Calls == 0 || r.Counted != nil || r.Stored+r.Silent != r.Emitted {
			t.Errorf("%s: %+v", recorder, r)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"load \"x\" is unknown": {Load: "x"},
		"recorder \"x\"":        {Recorder: "x"},
		"fault \"x\"":           {Fault: "x"},
		"may be negative":       {Count: -1},
		"needs the embedded":    {Fault: Fault500, Kubeconfig: "k"},
		"at most":               {Nodes: 1_000_000},
		"reading kubeconfig":    {Kubeconfig: "/does/not/exist"},
	} {
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := Run(ctx, Options{Load: LoadHotLoop})
	if err == nil || r == nil || r.Emitted == 0 || !r.Exact() {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestReport(t *testing.T) {
	r := run(t, Options{Load: LoadHotLoop, Count: 10})
	var text bytes.Buffer
	if err := WriteText(&text, r, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"events emitted", "lost silently", "series    series"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	data, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(data), `"silentlyLost":0`) {
		t.Errorf("%s, %v", data, err)
	}
}
