// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/cli"
)

// latencies are those of a node's run: a hundred between 1 and 100 ms times the length of its name.
func latencies(node string) (list []time.Duration) {
	for i := range 100 {
		list = append(list, time.Duration(i+1)*time.Duration(len(node))*time.Millisecond)
	}
	return list
}

// logOf is the log of a pod's end, in which standard error is mixed with standard output.
func logOf(kind, node string) string {
	r := bench.Result{Schema: bench.Schema, OK: kind != "bad", Runtime: bench.RuntimeResult{Name: "containerd", Version: "v2"}, Load: bench.LoadResult{Changes: 7}}
	r.Histograms = map[string]string{"latency_seconds": bench.HistogramOf(latencies(node)).String()}
	switch kind {
	case "refused":
		return "pleg-bench: the runtime at unix:///run/x/y.sock holds 3 pods that pleg-bench has not made\n"
	case "bad":
		r.Events.Missed, r.Failures = 2, []string{"1 events were delivered twice"}
	case "garbled":
		r.Histograms["latency_seconds"] = "xyz"
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic(err)
	}
	return "pleg-bench: removing 3 pods that run x has left\n{not json\n" + string(raw) + "\n{\"schema\":\"other\"}\nI1122 late words\n"
}

// load runs the command in a bubble on a fake API, and returns what it printed.
func (a *fakeAPI) load(ctx context.Context, args ...string) (r *LoadReport, text string, err error) {
	var out, errs bytes.Buffer
	cmd := newRun(a.connect)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"--nodes", "pool=a", "--job-image", "x", "--duration", "20s", "-o", "json"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err = cmd.ExecuteContext(ctx)
	r = new(LoadReport)
	if e := json.Unmarshal(out.Bytes(), r); e != nil && out.Len() > 0 {
		panic(e)
	}
	return r, out.String() + errs.String(), err
}

// inBubble calls f with an API of nodes in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, ctx context.Context, a *fakeAPI), nodes ...string) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := newFakeAPI(ctx, nodes...)
		defer a.life.Wait()
		defer cancel()
		f(t, ctx, a)
	})
}

// TestRunOnAFleet puts a load on nodes of every fate, three at a time.
func TestRunOnAFleet(t *testing.T) {
	nodes := []string{
		"good-1", "bad-1", "dead-1", "refused-1", "good-22", "pulls-1", "hangs-1", "garbled-1", "good-333", "good-4444",
		"tainted", "annotated", "unready", "elsewhere",
	}
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		a.node("tainted", func(n *core.Node) { n.Spec.Taints = []core.Taint{{Key: "other", Effect: core.TaintEffectNoSchedule}} })
		a.node("annotated", func(n *core.Node) { n.Annotations = map[string]string{forbidden: ""} })
		a.node("unready", func(n *core.Node) { n.Status.Conditions[0].Status = core.ConditionUnknown })
		a.node("elsewhere", func(n *core.Node) { n.Labels = nil })
		dir := kept(t, "load")
		r, text, err := a.load(ctx, "--at-once", "3", "--out", dir, "--run-arg=--probe-rate=5")
		if err != cli.ErrBad {
			t.Fatalf("%v: %s", err, text)
		}
		for node, n := range a.placed {
			if n != 1 {
				t.Errorf("%d pods on %s", n, node)
			}
		}
		if left := a.pods(); a.most != 3+1 || len(a.placed) != 10 || len(left) != 1 { // one stays on the dead kubelet
			t.Errorf("%d at once, want 3; %d nodes, want 10; left behind %v", a.most, len(a.placed), left)
		}
		want := map[string]string{
			"bad-1": "delivered twice", "dead-1": "its kubelet stopped answering at", "refused-1": "holds 3 pods", "pulls-1": "ErrImagePull no such image",
			"hangs-1": "no result after 1m51s", "garbled-1": "histogram latency_seconds",
		}
		for _, f := range r.Failed {
			if !strings.Contains(f.Reason, want[f.Node]) || want[f.Node] == "" {
				t.Errorf("%s: %s, want %q", f.Node, f.Reason, want[f.Node])
			}
		}
		left := fmt.Sprint(r.LeftOut)
		for _, reason := range []string{"tainted taint other:NoSchedule", "annotated annotation " + forbidden, "unready not ready"} {
			if !strings.Contains(left, reason) {
				t.Errorf("left out %s, want %s", left, reason)
			}
		}
		if len(r.Failed) != len(want) || r.Finished != 10 || r.Passed != 4 || r.Results != 5 || r.Missed != 2 || r.Changes != 35 {
			t.Errorf("%s", text)
		}
		if len(r.LeftBehind) != 1 || !strings.Contains(r.LeftBehind[0], "dead-1") {
			t.Errorf("left behind: %v, want the pod of the dead kubelet", r.LeftBehind)
		}
		var all bench.Histogram
		for _, node := range []string{"good-1", "bad-1", "good-22", "good-333", "good-4444"} {
			for _, d := range latencies(node) {
				all.Record(d)
			}
		}
		if r.Latency != all.Seconds() || r.Groups[0].Latency != r.Latency {
			t.Errorf("latency %+v, want %+v", r.Latency, all.Seconds())
		}
		page, err := os.ReadFile(filepath.Join(dir, "report.html"))
		for _, part := range []string{"FAIL: 4 of 10 nodes passed", "dead-1 failed: its kubelet", "unready was left out", "Left behind"} {
			if !strings.Contains(string(page), part) {
				t.Errorf("the page lacks %q (%v)", part, err)
			}
		}
	}, nodes...)
}

// TestRunCalls counts the requests of the API for each node.
func TestRunCalls(t *testing.T) {
	names := make([]string, 40)
	for i := range names {
		names[i] = fmt.Sprintf("good-%d", i)
	}
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		r, text, err := a.load(ctx, "--at-once", "40")
		if err != nil || !r.OK || r.Passed != 40 || len(r.LeftBehind) != 0 {
			t.Fatalf("%v: %s", err, text)
		}
		calls := make(map[string]int)
		for _, action := range a.Actions() {
			calls[action.GetVerb()+" "+action.GetResource().Resource+action.GetSubresource()]++
		}
		if calls["create pods"] != 40 || calls["get podslog"] != 40 || calls["get pods"] > 8*40 || calls["delete pods"] > 2*40 || calls["list nodes"] != 1 {
			t.Errorf("%v", calls)
		}
	}, names...)
}

// TestRunInterrupted removes the pods when the user ends the run.
func TestRunInterrupted(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		asked, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		r, text, err := a.load(asked, "--at-once", "2")
		if err == nil || r.OK || !r.Interrupted || len(r.Failed) != 3 || len(a.placed) != 2 || len(a.pods()) != 0 {
			t.Errorf("%v, %d pods: %s", err, len(a.pods()), text)
		}
	}, "good-1", "good-2", "good-3")
}

// TestRunFails tries a namespace that refuses pods, a pod that somebody removes, and no node.
func TestRunFails(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		r, text, err := a.load(ctx, "--at-once", "1")
		if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") || len(r.Failed) != 2 || len(a.placed) != 0 {
			t.Errorf("%v: %s", err, text)
		}
	}, "forbids-1", "good-1")
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		a.life.Go(func() {
			_ = bench.Sleep(a.ended, 10*time.Second)
			must(a.Tracker().Delete(podResource, "default", "pleg-bench-hangs-1"))
		})
		if r, text, err := a.load(ctx); err != cli.ErrBad || len(r.Failed) != 1 || !strings.Contains(r.Failed[0].Reason, "removed before its end") {
			t.Errorf("%v: %s", err, text)
		}
	}, "hangs-1")
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		a.node("good-1", func(n *core.Node) { n.Annotations = map[string]string{socketAnnotation: "unix:///var/run/own/x.sock"} })
		_, _, err := a.load(ctx, "--endpoint", "unix:///run/own/x.sock", "--image", "y")
		if err == nil || !strings.Contains(err.Error(), "the endpoint is the kubelet's runtime") || len(a.placed) > 0 {
			t.Errorf("%v", err)
		}
	}, "good-1")
}

// TestPod looks at the pod that would be made.
func TestPod(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		_, text, err := a.load(ctx, "--dry-run", "--endpoint", "unix:///run/bench/containerd.sock", "--image", "busybox", "-n", "load")
		var pod core.Pod
		if err != nil || len(a.placed) > 0 || json.Unmarshal([]byte(text), &pod) != nil {
			t.Fatalf("%v: %s", err, text)
		}
		s := pod.Spec
		if pod.Namespace != "load" || *s.ActiveDeadlineSeconds != 230 || s.RestartPolicy != core.RestartPolicyNever || *s.AutomountServiceAccountToken {
			t.Errorf("%+v", pod)
		}
		for _, arg := range []string{"--output=json", "--log-directory=/var/log/pleg-bench", "--endpoint=unix:///run/bench/containerd.sock"} {
			if !slices.Contains(s.Containers[0].Args, arg) {
				t.Errorf("the arguments %q lack %s", s.Containers[0].Args, arg)
			}
		}
		if v := s.Volumes[1].HostPath; v.Path != "/run/bench" {
			t.Errorf("%+v", v)
		}
	}, "good-1", "good-2", "good-3")
}

// TestRunUsage tries wrong flags.
func TestRunUsage(t *testing.T) {
	for args, says := range map[string]string{
		"":                                   "--nodes is missing",
		"--nodes a=b":                        "--job-image is missing",
		"--nodes a=(":                        "--nodes a=(",
		"--rate 101":                         "--rate 101",
		"--duration 2h":                      "--duration 2h0m0s",
		"--at-once 0":                        "--at-once 0",
		"--pods 0":                           "--pods 0",
		"--image x":                          "needs --endpoint",
		"--endpoint /run/x/y.sock":           "--image is missing",
		"--endpoint y.sock":                  "in a folder of its own",
		"--run-arg=--beside-kubelet":         "--run-arg --beside-kubelet",
		"--run-arg=x":                        "--run-arg x",
		"--endpoint /var/run/crio/crio.sock": "a kubelet uses this runtime",
		"--expect x<1":                       "x<1",
		"--nodes a --job-image x --kubeconfig /nowhere": "/nowhere",
	} {
		if status, stdout, stderr := fleet(append([]string{"run"}, strings.Fields(args)...)...); status != 2 || !strings.Contains(stderr, says) || stdout != "" {
			t.Errorf("%s: status %d, %s, want %q", args, status, stderr, says)
		}
	}
}
