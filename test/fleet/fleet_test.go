// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/test/node/image"
)

// benchImage is the image of deploy/base, loadPods the label of the pods of `pleg-bench fleet run`.
const (
	benchImage = "ghcr.io/evented-pleg/pleg-bench:" + release
	loadPods   = "app.kubernetes.io/name=pleg-bench-fleet-run"
)

// mostSeries is the bound on the series of a node.
const mostSeries = 150

// TestFleet deploys the watch on two nodes. One of them loses the events of exits: alert and
// verdict name this node and not the other. A load runs on both, and its report names the node
// whose kubelet is killed meanwhile, and not the other.
func TestFleet(t *testing.T) {
	c := newCluster(t)
	c.deploy()
	c.startPrometheus(c.watches())
	c.await("metrics of both nodes in Prometheus", func(ctx context.Context) error {
		got, err := c.query(ctx, `evented_pleg_stream_state{state="Connected"} == 1`)
		if err != nil || len(got) != len(c.nodes) {
			return fmt.Errorf("connected: %v (%w)", got, err)
		}
		return nil
	})
	series, err := c.query(t.Context(), `count by (node) ({node!=""})`)
	c.do("count the series", err)
	for name, count := range series {
		if n, err := strconv.Atoi(count); err != nil || n == 0 || n > mostSeries {
			t.Errorf("%s has %s series, want at most %d", name, count, mostSeries)
		}
	}
	c.t.Logf("series: %v", series)

	c.do("drop the exits of n2", c.nodes[1].command(dropExits))
	c.churn(24)
	c.await("the alert names n2 alone", func(ctx context.Context) error {
		firing, err := c.query(ctx, `ALERTS{alertname="PLEGFleetNodeLosesEvents",alertstate="firing"}`)
		if names := slices.Sorted(maps.Keys(firing)); err != nil || !slices.Equal(names, []string{"n2"}) {
			return fmt.Errorf("firing: %q (%w)", names, err)
		}
		return nil
	})
	missed, err := c.query(t.Context(), "kube_pod_missed_events")
	c.do("missed events", err)
	if missed["n1"] != "0" {
		t.Errorf("missed events: %v, want none on n1", missed)
	}
	c.verdict()
	c.load()
	c.undeploy()
}

// named is a node in a finding.
type named struct {
	Node, Class, Reason string
}

// verdict checks the verdict on the fleet.
func (c *cluster) verdict() {
	out, complaints, err := c.run(c.t.Context(), c.Bench, "fleet", "verdict", "--prometheus", prometheusURL, "--window", "5m", "--by", "nodepool",
		"--trusted", "8s", "-o", "json", "--out", c.out("verdict"))
	c.do("fleet verdict: "+complaints, err)
	var verdict struct {
		Worth         string
		Nodes, Losing int
		Named         []named
	}
	c.do("read the verdict", json.Unmarshal([]byte(out), &verdict))
	if n := verdict.Named; verdict.Worth != "partial" || verdict.Nodes != 2 || verdict.Losing != 1 || len(n) != 1 || n[0].Node != "n2" || n[0].Class != "losing" {
		c.t.Errorf("the verdict is %s, want n2 named alone, as losing", out)
	}
	c.step("the verdict names n2 alone")
}

// load puts a load on a runtime beside the kubelet's on both nodes, and kills the kubelet of n2.
func (c *cluster) load() {
	type result struct {
		out, complaints string
		err             error
	}
	ended, out := make(chan result, 1), c.out("load")
	go func() { // ends with the command
		var r result
		r.out, r.complaints, r.err = c.run(c.t.Context(), c.Bench, "fleet", "run", "--namespace", namespace, "--nodes", "kubernetes.io/os=linux",
			"--job-image", benchImage, "--endpoint", loadEndpoint, "--image", image.DefaultRef, "--pods", "4", "--rate", "10", "--duration", "15s",
			"-o", "json", "--out", out)
		ended <- r
	}()
	c.await("a load on both nodes", func(ctx context.Context) error {
		select {
		case r := <-ended:
			c.t.Fatalf("fleet run has ended: %v\n%s%s", r.err, r.out, r.complaints)
		default:
		}
		list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: loadPods})
		running := 0
		if err == nil {
			for _, p := range list.Items {
				if p.Status.Phase == corev1.PodRunning {
					running++
				}
			}
		}
		if err != nil || running != len(c.nodes) {
			return fmt.Errorf("%d pods run (%w)", running, err)
		}
		return nil
	})
	n2 := c.nodes[1]
	c.do("kill the kubelet of n2", n2.command(killKubelet))
	r := <-ended
	if status, ok := errors.AsType[*exec.ExitError](r.err); !ok || status.ExitCode() != 1 {
		c.t.Errorf("fleet run: %v, want exit status 1\n%s%s", r.err, r.out, r.complaints)
	}
	var report struct {
		Nodes, Passed, Changes, Missed, Mismatches int
		Failed                                     []named
	}
	c.do("read the report", json.Unmarshal([]byte(r.out), &report))
	if f := report.Failed; report.Nodes != 2 || report.Passed != 1 || report.Changes == 0 || report.Missed+report.Mismatches != 0 ||
		len(f) != 1 || f[0].Node != "n2" || !strings.Contains(f[0].Reason, "kubelet stopped answering") {
		c.t.Errorf("the report is %s, want n1 passed and n2 failed by its kubelet", r.out)
	}
	c.step("the report names n2 alone: " + fmt.Sprint(report.Failed))
	c.do("start the kubelet of n2", n2.command(startKubelet))
	c.await("the load has gone", func(ctx context.Context) error {
		pods, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: loadPods})
		if err != nil || len(pods.Items) > 0 {
			return fmt.Errorf("%d pods of the load are left (%w)", len(pods.Items), err)
		}
		jobs, err := c.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{LabelSelector: loadPods})
		if err != nil || len(jobs.Items) > 0 {
			return fmt.Errorf("%d Jobs of the load are left (%w)", len(jobs.Items), err)
		}
		for _, n := range c.nodes {
			sandboxes, err := n.loadSandboxes(ctx)
			if err != nil || sandboxes > 0 {
				return fmt.Errorf("%d sandboxes of the load are left on %s (%w)", sandboxes, n.Name, err)
			}
		}
		return nil
	})
}

// out returns a folder for a page, from the repository's root.
func (c *cluster) out(name string) string {
	dir := filepath.Join("build/fleet", name)
	c.do("remove the last page", os.RemoveAll(filepath.Join(c.Root, dir)))
	return dir
}

// deploy validates all of deploy/ by the server, and applies what is for this cluster.
func (c *cluster) deploy() {
	for _, kind := range []string{"podmonitors", "prometheusrules"} {
		c.kubectl("apply", "--server-side", "-f", filepath.Join(c.CRDs, "monitoring.coreos.com_"+kind+".yaml"))
	}
	c.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
	c.kubectl("apply", "--server-side", "--validate=strict", "-k", "deploy/base")
	for _, folder := range []string{"crio", "k3s"} {
		c.kubectl("apply", "--server-side", "--validate=strict", "--dry-run=server", "-k", "deploy/"+folder)
	}
	c.kubectl("apply", "--server-side", "--validate=strict", "-k", "deploy/prometheus-operator")
	c.step("deploy/ applied")
}

// watches waits for the pods of the DaemonSet, one a node.
func (c *cluster) watches() (pods []corev1.Pod) {
	c.await("a ready watch on each node", func(ctx context.Context) error {
		list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=pleg-watch"})
		if err != nil {
			return err
		}
		var ready []string
		for _, p := range list.Items {
			if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				ready = append(ready, p.Spec.NodeName)
			}
		}
		if slices.Sort(ready); !slices.Equal(ready, []string{"n1", "n2"}) {
			return fmt.Errorf("ready on %q: %s", ready, c.conditions(ctx, list.Items))
		}
		pods = list.Items
		return nil
	})
	return pods
}

// conditions returns why pods wait.
func (c *cluster) conditions(ctx context.Context, pods []corev1.Pod) string {
	var why []string
	for _, p := range pods {
		for _, s := range p.Status.ContainerStatuses {
			why = append(why, fmt.Sprintf("%s: %+v, restarts %d", p.Name, s.State, s.RestartCount))
		}
	}
	if events, err := c.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"}); err == nil {
		for _, e := range events.Items {
			why = append(why, e.InvolvedObject.Name+": "+e.Message)
		}
	}
	return strings.Join(why, "\n")
}

// churn runs short pods, half of them on each node.
func (c *cluster) churn(pods int32) {
	labels := map[string]string{"app": "churn"}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "churn"},
		Spec: batchv1.JobSpec{
			Completions: new(pods), Parallelism: new(pods / 2), CompletionMode: new(batchv1.IndexedCompletion),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), DNSPolicy: corev1.DNSDefault,
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 2, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
					}},
					Containers: []corev1.Container{{Name: "c", Image: image.DefaultRef, ImagePullPolicy: corev1.PullNever, Args: []string{"sleep", "1s"}}},
				},
			},
		},
	}
	_, err := c.BatchV1().Jobs("default").Create(c.t.Context(), job, metav1.CreateOptions{})
	c.do("make the churn", err)
}

// undeploy removes what deploy applied.
func (c *cluster) undeploy() {
	c.kubectl("delete", "-k", "deploy/prometheus-operator")
	c.kubectl("delete", "--timeout=60s", "-k", "deploy/base")
	c.step("deploy/ removed")
}
