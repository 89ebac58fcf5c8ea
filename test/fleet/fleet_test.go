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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/test/node/image"
)

// Images of deploy/, and the label of the pods of `pleg-bench fleet run`.
const (
	benchImage = "ghcr.io/evented-pleg/pleg-bench:" + release
	agentImage = "ghcr.io/evented-pleg/pleg-agent:" + release
	loadPods   = "app.kubernetes.io/name=pleg-bench-fleet-run"
)

// mostSeries is the bound on the series of a node.
const mostSeries = 160

// TestFleet deploys the watch on three nodes. One of two with containerd loses the events of exits:
// alert and verdict name this node and no other. Loads run on all: on fake runtimes in the load's
// pods, until a Ctrl-C, and on runtimes beside the kubelets'. None runs on the kubelets' own. The
// report of the last names the node whose kubelet is killed meanwhile, and no other.
func TestFleet(t *testing.T) {
	c := newCluster(t)
	c.deploy()
	c.startPrometheus()
	watches := c.watches()
	c.scrape("pleg-watch", 9464, watches)
	c.alias()
	c.await("metrics of all nodes in Prometheus", func(ctx context.Context) error {
		got, err := c.query(ctx, `evented_pleg_stream_state{state="Connected"} == 1`)
		if err != nil || len(got) != len(c.nodes) {
			return fmt.Errorf("connected: %v (%w)", got, err)
		}
		return nil
	})
	series, err := c.query(t.Context(), `count by (node) ({job="pleg-watch"})`)
	c.do("count the series", err)
	for name, count := range series {
		if n, err := strconv.Atoi(count); err != nil || n == 0 || n > mostSeries {
			t.Errorf("%s has %s series, want at most %d", name, count, mostSeries)
		}
	}
	c.t.Logf("series: %v", series)

	c.do("drop the exits of n2", c.nodes[1].command(dropExits))
	c.do("hold the statistics of n1", c.nodes[0].command(holdStatistics))
	for _, n := range c.nodes {
		c.churn(n.Name, 1)
	}
	rounds := 1
	c.hint = c.losses
	fake := c.startLoad("--pods", "4", "--duration", "3s") // on the fake runtime in its pods
	c.await("the alert names n2 alone", func(ctx context.Context) error {
		firing, err := c.query(ctx, `ALERTS{alertname="PLEGFleetNodeLosesEvents",alertstate="firing"}`)
		if names := slices.Sorted(maps.Keys(firing)); err != nil || !slices.Equal(names, []string{"n2"}) {
			if c.churned(ctx, "n2", rounds) { // the alert is about a node that goes on to lose events
				rounds++
				c.churn("n2", rounds)
			}
			return fmt.Errorf("after %d rounds of pods on n2, firing: %q (%w)", rounds, names, err)
		}
		return nil
	})
	c.hint = nil
	missed, err := c.query(t.Context(), "kube_pod_missed_events")
	c.do("missed events", err)
	if missed["n1"] != "0" || missed["n3"] != "0" {
		t.Errorf("missed events: %v, want none on n1 and n3", missed)
	}
	if r := fake.end(0); r.Passed != 3 || r.Changes == 0 {
		t.Errorf("the report of the load on fake runtimes is %s", fake.out)
	}
	c.verdict()
	c.doctor(watches)
	c.dashboard()
	c.interrupted()
	c.guarded()
	c.load()
	c.undeploy()
}

// churn runs short pods on a node, for the round of this number.
func (c *cluster) churn(node string, round int) {
	text, err := os.ReadFile("testdata/churn.yaml")
	c.do("read the churn", err)
	name := fmt.Sprintf("churn-%s-%d", node, round)
	path := filepath.Join(c.dir, name+".yaml")
	text = []byte(strings.NewReplacer("NAME", name, "NODE", node).Replace(string(text)))
	c.do("write the churn", os.WriteFile(path, text, 0o644))
	c.kubectl("apply", "-f", path)
}

// churned reports whether the pods of a round have ended.
func (c *cluster) churned(ctx context.Context, node string, round int) bool {
	job, err := c.BatchV1().Jobs("default").Get(ctx, fmt.Sprintf("churn-%s-%d", node, round), metav1.GetOptions{})
	return err == nil && job.Status.CompletionTime != nil
}

// losses says what the alerts about lost events are made of.
func (c *cluster) losses(ctx context.Context) string {
	said := ""
	for _, expr := range []string{"up", `evented_pleg_stream_state == 1`, "evented_pleg_runtime_info", "kube_pod_missed_events", "increase(kube_pod_missed_events[30m])"} {
		values, err := c.ask(ctx, expr)
		said += fmt.Sprintf("\n%s: %v (%v)", expr, values, err)
	}
	pods, complaints, _ := c.run(
		ctx,
		filepath.Join(c.Kube, "kubectl"),
		"get",
		"pods",
		"--selector=app=churn",
		"--output=wide",
		"--no-headers",
	)
	return said + "\n" + pods + complaints
}

// named is a node in a finding.
type named struct {
	Node, Class, Reason string
}

// verdict checks the verdict on the fleet.
func (c *cluster) verdict() {
	out, complaints, err := c.run(
		c.t.Context(),
		c.Bench,
		"fleet",
		"verdict",
		"--prometheus",
		prometheusURL,
		"--window",
		"5m",
		"--by",
		"nodepool",
		"--trusted",
		"8s",
		"-o",
		"json",
		"--out",
		c.out("verdict"),
	)
	c.do("fleet verdict: "+complaints, err)
	var verdict struct {
		Worth         string
		Nodes, Losing int
		Groups        []struct {
			Runtime, Version string
			Nodes, Losing    int
		}
		Named []named
	}
	c.do("read the verdict", json.Unmarshal([]byte(out), &verdict))
	if n := verdict.Named; verdict.Worth != "partial" || verdict.Nodes != 3 || verdict.Losing != 1 ||
		len(n) != 1 ||
		n[0].Node != "n2" ||
		n[0].Class != "losing" {
		c.t.Errorf("the verdict is %s, want n2 named alone, as losing", out)
	}
	var groups []string
	for _, g := range verdict.Groups {
		version, _, _ := strings.Cut(strings.TrimPrefix(g.Version, "v"), "+")
		groups = append(groups, fmt.Sprintf("%s v%s: %d of %d lose", g.Runtime, version, g.Losing, g.Nodes))
	}
	want := []string{
		fmt.Sprintf("containerd %s: 1 of 2 lose", c.Containerd.Runtime.Version),
		fmt.Sprintf("cri-o %s: 0 of 1 lose", c.CRIO.Runtime.Version),
	}
	if !slices.Equal(groups, want) {
		c.t.Errorf("the groups are %q, want %q", groups, want)
	}
	c.step(fmt.Sprintf("the verdict names n2 alone: %q", groups))
}

// dashboard checks that each query of the fleet's dashboard finds something in Prometheus.
func (c *cluster) dashboard() {
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile(filepath.Join(c.Root, "docs/dashboards/fleet.json"))
	c.do("read the dashboard", errors.Join(err, json.Unmarshal(text, &board)))
	queries := 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			expr := strings.NewReplacer("$__range", "5m", "$__rate_interval", "30s").Replace(target.Expr)
			if found, err := c.query(c.t.Context(), expr); err != nil || len(found) == 0 {
				c.t.Errorf("the panel %q shows nothing: %s (%v)", panel.Title, expr, err)
			}
			queries++
		}
	}
	c.step(fmt.Sprintf("the dashboard's %d queries have answers", queries))
}

// loading is `pleg-bench fleet run` on all nodes.
type loading struct {
	c *cluster
	// interrupt is the Ctrl-C; ended closes at the command's end, and the fields below are set then.
	interrupt       context.CancelFunc
	ended           chan struct{}
	out, complaints string
	status          int
	report          loadReport
}

// loadReport is the part of the command's report that the test reads.
type loadReport struct {
	Job, Unfinished                            string
	Nodes, Passed, Changes, Missed, Mismatches int
	OK, Interrupted                            bool
	Failed                                     []named
	LeftOut                                    []named `json:"left_out"`
	RuntimeUnknown                             int     `json:"runtime_unknown"`
}

// startLoad starts the command.
func (c *cluster) startLoad(args ...string) *loading {
	ctx, interrupt := context.WithCancel(c.t.Context())
	l := &loading{c: c, interrupt: interrupt, ended: make(chan struct{})}
	args = append(
		[]string{
			"fleet",
			"run",
			"--namespace",
			namespace,
			"--nodes",
			"kubernetes.io/os=linux",
			"--job-image",
			benchImage,
			"-o",
			"json",
		},
		args...)
	go func() { // ends with the command
		defer close(l.ended)
		var err error
		l.out, l.complaints, err = c.run(ctx, c.Bench, args...)
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			l.status = exit.ExitCode()
		}
		_ = json.Unmarshal([]byte(l.out), &l.report) // or the report stays empty
	}()
	return l
}

// await waits for a pod at work on each node.
func (l *loading) await() {
	l.c.await("a load on all nodes", func(context.Context) error {
		select {
		case <-l.ended:
			l.c.fatalf("fleet run has ended with %d:\n%s%s", l.status, l.out, l.complaints)
		default:
		}
		if running := l.c.names("pods", "--field-selector=status.phase=Running"); len(running) != len(l.c.nodes) {
			return fmt.Errorf("of the load run %q", running)
		}
		return nil
	})
}

// names returns the names of the load's objects of these kinds.
func (c *cluster) names(kinds string, flags ...string) []string {
	args := []string{"--namespace", namespace, "get", kinds, "--selector=" + loadPods, "--output=name"}
	return strings.Fields(c.kubectl(append(args, flags...)...))
}

// end waits for the end of the command, with a status, and of all that the command has made.
func (l *loading) end(status int) loadReport {
	<-l.ended
	if l.status != status {
		l.c.t.Errorf("fleet run: exit status %d, want %d\n%s%s", l.status, status, l.out, l.complaints)
	}
	l.c.await("the load has gone", func(context.Context) error {
		if left := l.c.names("pods,jobs"); len(left) > 0 {
			return fmt.Errorf("of the load are left %q", left)
		}
		return nil
	})
	return l.report
}

// interrupted ends a load on the fake runtime in its pods by a Ctrl-C.
func (c *cluster) interrupted() {
	l := c.startLoad("--duration", "5m")
	l.await()
	l.interrupt()
	if r := l.end(130); !r.Interrupted || r.OK || !strings.Contains(l.complaints, "interrupted (interrupt)") {
		c.t.Errorf("the report of an interrupted load is %s%s", l.out, l.complaints)
	}
}

// guarded tries to put a load on the kubelets' own runtimes. The command leaves out each node, by
// the configuration of its kubelet, and makes nothing. By a name of the socket that no
// configuration has it makes pods, which refuse a runtime in which they find themselves.
func (c *cluster) guarded() {
	load := []string{"--image", image.DefaultRef, "--pods", "1", "--duration", "3s"}
	before := c.jobsMade()
	l := c.startLoad(append(load, "--endpoint", ownEndpoint)...)
	r := l.end(1)
	if made := c.jobsMade() - before; made != 0 || r.Job != "" || r.Nodes != 0 ||
		!strings.Contains(r.Unfinished, "no node takes the load") {
		c.t.Errorf("%d Jobs were made for the kubelets' own runtimes: %s", made, l.out)
	}
	var left []string
	for _, n := range r.LeftOut {
		if strings.HasSuffix(n.Reason, "by the kubelet's configuration") {
			left = append(left, n.Node)
		}
	}
	if slices.Sort(left); !slices.Equal(left, []string{"n1", "n2", "n3"}) {
		c.t.Errorf("by the kubelet's configuration %q are left out, want all nodes: %s%s", left, l.out, l.complaints)
	}
	c.step("no load on the kubelets' own runtimes: " + r.Unfinished)
	l = c.startLoad(append(load, "--endpoint", ownAlias)...)
	r = l.end(1)
	if r.Passed != 0 || r.Changes != 0 || len(r.Failed) != 3 {
		c.t.Errorf("the report of a load on the kubelets' own runtimes is %s%s", l.out, l.complaints)
	}
	for _, n := range r.Failed {
		if !strings.Contains(n.Reason, "a kubelet seems to use the runtime") {
			c.t.Errorf("the load on %s failed by %q, want the runtime refused", n.Node, n.Reason)
		}
	}
	c.step("pods refuse the runtime that they find themselves in")
}

// jobsMade is how many Jobs the API server has made, also those that are gone.
func (c *cluster) jobsMade() (made int) {
	for line := range strings.Lines(c.kubectl("get", "--raw", "/metrics")) {
		if strings.HasPrefix(line, "apiserver_request_total{") &&
			strings.Contains(line, `resource="jobs"`) && strings.Contains(line, `verb="POST"`) {
			n, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndex(line, " "):]))
			c.do("read the number of Jobs", err)
			made += n
		}
	}
	return made
}

// load puts a load on a runtime beside the kubelet's on all nodes, and kills the kubelet of n2.
func (c *cluster) load() {
	l := c.startLoad(
		"--endpoint",
		loadEndpoint,
		"--image",
		image.DefaultRef,
		"--pods",
		"4",
		"--rate",
		"10",
		"--duration",
		"15s",
		"--out",
		c.out("load"),
	)
	l.await()
	n2 := c.nodes[1]
	c.do("kill the kubelet of n2", n2.command(killKubelet))
	<-l.ended
	c.do("start the kubelet of n2", n2.command(startKubelet))
	r := l.end(1)
	if f := r.Failed; r.Nodes != 3 || r.Passed != 2 || r.Changes == 0 || r.Missed+r.Mismatches != 0 ||
		r.RuntimeUnknown != 0 || len(r.LeftOut) != 0 ||
		len(f) != 1 || f[0].Node != "n2" || !strings.Contains(f[0].Reason, "kubelet stopped answering") {
		c.t.Errorf("the report is %s, want n2 alone failed, by its kubelet, and the runtime of each kubelet known", l.out)
	}
	c.step("the report names n2 alone: " + fmt.Sprint(r.Failed))
	c.await("the runtimes for loads are empty", func(ctx context.Context) error {
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
	c.apply("base", "containerd", "")
	c.kubectl("apply", "--server-side", "--validate=strict", "-k", "deploy/prometheus-operator")
	c.apply(
		"crio",
		"cri-o",
		"nameSuffix: -crio\nlabels: [{includeSelectors: true, pairs: {app.kubernetes.io/instance: crio}}]\n",
	)
	c.apply("k3s", "containerd", "namespace: k3s\n")
	c.step("deploy/ applied")
}

// apply applies a folder of deploy/ to the nodes with a runtime, as docs/fleet.md does with several
// runtimes, and with further lines of its kustomization.
func (c *cluster) apply(folder, runtime, lines string) {
	dir := c.kustomization(folder)
	overlay, err := filepath.Rel(dir, filepath.Join(c.Root, "deploy", folder))
	c.do("name the overlay", err)
	text := fmt.Sprintf(`resources: [%s]
patches:
- patch: |-
    apiVersion: apps/v1
    kind: DaemonSet
    metadata: {name: pleg-watch, namespace: evented-pleg}
    spec: {template: {spec: {nodeSelector: {runtime: %s}}}}
%s%s`, overlay, runtime, examineOften, lines)
	c.do(
		"write the overlay",
		errors.Join(
			os.Mkdir(dir, 0o755),
			os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644),
		),
	)
	c.kubectl("apply", "--server-side", "--validate=strict", "-k", dir)
}

// kustomization is the folder of the kustomization by which a folder of deploy/ was applied.
func (c *cluster) kustomization(folder string) string { return filepath.Join(c.dir, folder) }

// watches waits for the pods of the DaemonSets, one a node.
func (c *cluster) watches() []corev1.Pod {
	for _, name := range []string{"pleg-watch", "pleg-watch-crio"} {
		c.kubectl("--namespace", namespace, "rollout", "status", "daemonset/"+name, "--timeout=2m")
	}
	pods := c.watchPods(c.t.Context())
	var on []string
	for _, p := range pods {
		on = append(on, p.Spec.NodeName)
	}
	if slices.Sort(on); !slices.Equal(on, []string{"n1", "n2", "n3"}) {
		c.fatalf("watches are on %q, want one on each node", on)
	}
	c.step("a ready watch on each node")
	return pods
}

// watchPods lists the pods of the DaemonSets that are not about to go.
func (c *cluster) watchPods(ctx context.Context) []corev1.Pod {
	list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=pleg-watch"})
	c.do("list the watches", err)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// alias waits for the watches of the overlay k3s, whose socket is containerd's by another name and
// which are ready with a socket only, and removes them.
func (c *cluster) alias() {
	c.kubectl("--namespace", "k3s", "rollout", "status", "daemonset/pleg-watch", "--timeout=60s")
	c.kubectl("delete", "--wait=false", "namespace", "k3s")
	c.step("the overlay k3s watches n1 and n2")
}

// undeploy removes what deploy applied.
func (c *cluster) undeploy() {
	c.kubectl("delete", "-k", "deploy/prometheus-operator")
	c.kubectl("delete", "--timeout=60s", "-k", c.kustomization("base"))
	c.kubectl("delete", "--ignore-not-found", "-k", c.kustomization("crio")) // the namespace was that of base
	c.step("deploy/ removed")
}
