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

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// latency is that of a node's run, with seconds by the length of its name.
func latency(node string) bench.LatencyResult {
	n := float64(len(node))
	return bench.LatencyResult{Count: 100, P50: n, P90: 2 * n, P99: 3 * n, Max: 4 * n}
}

// logOf is the log of a pod's end, in which standard error is mixed with standard output.
func logOf(kind, node, venom string) string {
	r := bench.Result{Schema: bench.Schema, OK: kind != "bad", Runtime: bench.RuntimeResult{Name: "containerd", Version: "v2" + venom}, Load: bench.LoadResult{Changes: 7}}
	r.Latency = latency(node)
	switch kind {
	case "refused":
		return "pleg-bench: the runtime at unix:///run/x/y.sock holds 3 pods that pleg-bench has not made" + venom + "\nSee pleg-bench run --help.\n"
	case "bad":
		r.Events.Missed, r.Failures = 2, []string{"1 events were delivered twice" + venom}
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
	cmd := newRun(a.cluster)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"--nodes", "pool=a", "--job-image", "x", "--duration", "20s", "-o", "json"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err = cmd.ExecuteContext(ctx)
	r = new(LoadReport)
	if e := json.Unmarshal(out.Bytes(), r); e != nil && bytes.HasPrefix(out.Bytes(), []byte("{")) {
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
		"good-1", "bad-1", "dead-1", "refused-1", "good-22", "pulls-1", "hangs-1", "good-333", "good-4444",
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
		if a.most != 3 || len(a.placed) != 9 || !a.removed {
			t.Errorf("%d at once, want 3; %d nodes, want 9; removed %v", a.most, len(a.placed), a.removed)
		}
		want := map[string]string{
			"bad-1": "delivered twice", "dead-1": "its kubelet stopped answering at", "refused-1": "holds 3 pods", "pulls-1": "ErrImagePull no such image",
			"hangs-1": "no result after 1m50s",
		}
		for _, f := range r.Failed {
			if !strings.Contains(f.Reason, want[f.Node]) || want[f.Node] == "" {
				t.Errorf("%s: %s, want %q", f.Node, f.Reason, want[f.Node])
			}
		}
		testkit.Says(t, "left out", fmt.Sprint(r.LeftOut), "tainted taint other:NoSchedule", "annotated annotation "+forbidden, "unready not ready")
		if len(r.Failed) != len(want) || r.Finished != 9 || r.Passed != 4 || r.Results != 5 || r.Missed != 2 || r.Changes != 35 {
			t.Errorf("%s", text)
		}
		if len(r.LeftBehind) != 1 || !strings.Contains(r.LeftBehind[0], "dead-1") {
			t.Errorf("left behind: %v, want the pod of the dead kubelet", r.LeftBehind)
		}
		worst := latency("good-4444")
		worst.Count *= r.Results
		if r.Latency != worst || r.Groups[0].Latency != r.Latency {
			t.Errorf("latency %+v, want %+v", r.Latency, worst)
		}
		page := testkit.Must(os.ReadFile(filepath.Join(dir, "report.html")))(t)
		testkit.Says(t, "the page", string(page), "FAIL: 4 of 9 nodes passed", "dead-1 failed: its kubelet", "unready was left out", "Left behind")
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
		if calls["patch pods"] != 40 || calls["get podslog"] != 40 || calls["get jobs"] > 10 || calls["watch pods"] > 2 || calls["list nodes"] != 1 {
			t.Errorf("%v", calls)
		}
	}, names...)
}

// TestRunInterrupted removes the Job when the user ends the run.
func TestRunInterrupted(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		asked, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		r, text, err := a.load(asked, "--at-once", "2")
		if err == nil || r.OK || !r.Interrupted || len(r.Failed) != 3 || !a.removed || len(a.pods()) != 0 {
			t.Errorf("%v, removed %v, %d pods: %s", err, a.removed, len(a.pods()), text)
		}
	}, "good-1", "good-2", "good-3")
}

// TestRunFails tries a Job that makes no pods, one that somebody removes, and a choice of no node.
func TestRunFails(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		a.noPods = true
		if _, text, err := a.load(ctx); err == nil || !strings.Contains(err.Error(), "violates PodSecurity") || !a.removed {
			t.Errorf("%v: %s", err, text)
		}
	}, "good-1")
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		a.life.Go(func() {
			_ = bench.Sleep(a.ended, 10*time.Second)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.job.Status.Conditions = []batch.JobCondition{{Type: batch.JobFailed, Status: core.ConditionTrue, Reason: "DeadlineExceeded"}}
		})
		if r, text, err := a.load(ctx); err != cli.ErrBad || len(r.Failed) != 1 || !strings.Contains(r.Failed[0].Reason, "DeadlineExceeded") {
			t.Errorf("%v: %s", err, text)
		}
	}, "hangs-1")
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		a.node("good-1", func(n *core.Node) { n.Annotations = map[string]string{socketAnnotation: "unix:///var/run/own/x.sock"} })
		r, text, err := a.load(ctx, "--endpoint", "unix:///run/own/x.sock", "--image", "y")
		if err == nil || !strings.Contains(err.Error(), "the endpoint is the kubelet's runtime") || a.job != nil ||
			!strings.Contains(r.Unfinished, "no node takes the load") || r.Schema == "" {
			t.Errorf("%v: %s", err, text)
		}
	}, "good-1")
}

// TestGuard leaves out the nodes whose kubelet uses the endpoint, by the kubelet's configuration,
// and reports those that do not tell.
func TestGuard(t *testing.T) {
	load := []string{"--endpoint", "unix:///run/own/x.sock", "--image", "y"}
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		r, text, err := a.load(ctx, load...)
		left := fmt.Sprint(r.LeftOut)
		if err != nil || r.Finished != 2 || r.RuntimeUnknown != 1 || a.placed["same-1"] != 0 {
			t.Errorf("%v: %s", err, text)
		}
		testkit.Says(t, "left out", left, "same-1 the endpoint is the kubelet's runtime, by the kubelet's configuration")
		testkit.Says(t, "the notice", text, "the runtime of 1 of 2 kubelets is not known, as of strange-1: its configz is no JSON")
	}, "good-1", "same-1", "strange-1")
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		a.forbidden = true
		r, text, err := a.load(ctx, load...)
		if err != nil || r.RuntimeUnknown != 2 || r.Finished != 2 {
			t.Errorf("%v: %s", err, text)
		}
		testkit.Says(t, "the notice", text, "the runtime of 2 of 2 kubelets is not known", "forbidden", "refuses it")
	}, "good-1", "good-2")
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		_, _, err := a.load(ctx, load...)
		if err == nil || !strings.Contains(err.Error(), "by the kubelet's configuration") || a.job != nil {
			t.Errorf("%v, want no Job", err)
		}
	}, "same-1")
}

// TestJob looks at the Job that would be made.
func TestJob(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		_, text, err := a.load(ctx, "--dry-run", "--at-once", "2", "--endpoint", "unix:///run/bench/containerd.sock", "--image", "busybox", "-n", "load")
		var job batch.Job
		if err != nil || a.job != nil || json.Unmarshal([]byte(text), &job) != nil {
			t.Fatalf("%v: %s", err, text)
		}
		s, pod := job.Spec, job.Spec.Template.Spec
		if *s.Completions != 3 || *s.Parallelism != 2 || *s.BackoffLimitPerIndex != 0 || *s.TTLSecondsAfterFinished == 0 || *s.ActiveDeadlineSeconds != 520 || job.Namespace != "load" {
			t.Errorf("%+v", s)
		}
		if len(pod.SchedulingGates) != 1 || pod.RestartPolicy != core.RestartPolicyNever || *pod.AutomountServiceAccountToken {
			t.Errorf("%+v", pod)
		}
		for _, arg := range []string{"--output=json", "--log-directory=/var/log/pleg-bench", "--endpoint=unix:///run/bench/containerd.sock"} {
			if !slices.Contains(pod.Containers[0].Args, arg) {
				t.Errorf("the arguments %q lack %s", pod.Containers[0].Args, arg)
			}
		}
		if v := pod.Volumes[1].HostPath; v.Path != "/run/bench" {
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
