// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/test/kubelet/control"
	"github.com/evented-pleg/evented-pleg/test/kubelet/machine"
	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/unshare"
)

// namespace is that of deploy/base.
const namespace = "evented-pleg"

// prometheusURL is the address of the cluster's Prometheus.
const prometheusURL = "http://127.0.0.1:9090"

// cluster is Kubernetes with n1 and n2 on containerd, n3 on CRI-O, and Prometheus.
type cluster struct {
	*control.Plane
	t     *testing.T
	began time.Time
	dir   string
	programs
	nodes []*node
	// hint says more of what is awaited in vain; nil if there is no more to say.
	hint func(context.Context) string
	// why is what has ended the test, if anything has. It is said again at the end, behind all that
	// a failed test prints.
	why string
}

// newCluster starts the cluster and waits until its nodes are ready. It ends with the test.
func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, began: time.Now(), dir: filepath.Join(unshare.Dir(), "cluster")}
	c.do("read the programs", json.Unmarshal([]byte(os.Getenv(envPrograms)), &c.programs))
	c.do(
		"make the network",
		errors.Join(
			os.Mkdir(c.dir, 0o755),
			os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0),
			machine.IP(
				"link set lo up",
				"link add br0 type bridge",
				"addr add "+gateway+"/24 dev br0",
				"link set br0 up",
			),
		),
	)
	var err error
	c.Plane, err = control.Start(t.Context(), control.Config{
		Binaries: c.Kube,
		Dir:      c.dir,
		Address:  gateway,
		Flags:    []string{"--authorization-mode=RBAC", "--kubelet-preferred-address-types=InternalIP"},
	})
	c.do("start the API server", err)
	t.Cleanup(c.close)
	c.step("API server ready")
	for program, flags := range map[string][]string{
		"kube-controller-manager": {"--service-account-private-key-file=" + c.Key, "--root-ca-file=" + c.certificate(), "--node-monitor-grace-period=12s", "--node-monitor-period=2s"},
		"kube-scheduler":          nil,
	} {
		_, err := c.Spawn(
			program,
			append(
				flags,
				"--kubeconfig="+c.Kubeconfig,
				"--bind-address=127.0.0.1",
				"--cert-dir="+c.dir,
				"--leader-elect=false",
			)...)
		c.do("start "+program, err)
	}
	kubeconfig, err := os.ReadFile(c.Kubeconfig)
	c.do("read the kubeconfig", err)
	for i, runtime := range []components.Set{c.Containerd, c.Containerd, c.CRIO} {
		name := fmt.Sprint("n", i+1)
		n := &node{
			Name: name, Number: 11 + i, Programs: c.programs, Runtime: runtime,
			dir: filepath.Join(unshare.Dir(), name),
		}
		c.nodes = append(c.nodes, n)
		c.do("start "+name, n.start(kubeconfig))
	}
	for _, n := range c.nodes {
		c.kubectl("wait", "--for=create", "--timeout=2m", "node/"+n.Name)
		c.kubectl("wait", "--for=condition=Ready", "--timeout=2m", "node/"+n.Name)
	}
	c.step("all nodes ready")
	return c
}

// certificate is the file with the API server's certificate and its authority.
func (c *cluster) certificate() string { return filepath.Join(c.dir, "api-certs/apiserver.crt") }

// do ends the test at an error.
func (c *cluster) do(what string, err error) {
	c.t.Helper()
	if err != nil {
		c.fatalf("%s: %v", what, err)
	}
}

// fatalf ends the test.
func (c *cluster) fatalf(format string, args ...any) {
	c.t.Helper()
	c.why = fmt.Sprintf(format, args...)
	c.t.Fatal(c.why)
}

// step logs the time.
func (c *cluster) step(what string) {
	c.t.Helper()
	c.t.Logf("%5.1f s %s", time.Since(c.began).Seconds(), what)
}

// await waits until check returns nil.
func (c *cluster) await(what string, check func(context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			c.step(what)
			return
		}
		select {
		case <-ctx.Done():
			more := ""
			if c.hint != nil {
				more = c.hint(c.t.Context())
			}
			c.fatalf("%s: in two minutes not: %v%s", what, err, more)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// run runs a program from the root of the repository, until a Ctrl-C at the end of ctx.
func (c *cluster) run(ctx context.Context, program string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Dir = c.Root
	cmd.Env = append(
		os.Environ(),
		"KUBECONFIG="+c.Kubeconfig,
		"PATH="+filepath.Dir(c.Bench)+":"+os.Getenv("PATH"),
	)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err = cmd.Run()
	return out.String(), complaints.String(), err
}

// kubectl runs kubectl, which must succeed.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, complaints, err := c.run(c.t.Context(), filepath.Join(c.Kube, "kubectl"), args...)
	if err != nil {
		c.fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, out, complaints)
	}
	return out
}

// startPrometheus starts Prometheus with the alerts of docs/alerts. Its targets are stateMetrics
// and those of scrape.
func (c *cluster) startPrometheus() {
	c.stateMetrics()
	rules := []string{strconv.Quote(c.impatient("fleet"))}
	for _, name := range []string{"evented-pleg", "agent"} {
		rules = append(rules, strconv.Quote(filepath.Join(c.Root, "docs/alerts", name+".yaml")))
	}
	jobs := []string{
		fmt.Sprintf(
			`{"job_name": "kube-state-metrics", "static_configs": [{"targets": [%q]}]}`,
			stateMetricsAddress,
		),
	}
	for _, job := range []string{"pleg-watch", "pleg-agent"} { // with the labels of their own, as their PodMonitors
		jobs = append(
			jobs,
			fmt.Sprintf(
				`{"job_name": %q, "honor_labels": true, "file_sd_configs": [{"files": [%q]}]}`,
				job,
				c.targets(job),
			),
		)
		c.do("targets of Prometheus", os.WriteFile(c.targets(job), []byte("[]"), 0o644))
	}
	config := fmt.Sprintf(
		`{"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [%s], "scrape_configs": [%s]}`,
		strings.Join(rules, ", "),
		strings.Join(jobs, ", "),
	)
	c.do(
		"configuration of Prometheus",
		os.WriteFile(filepath.Join(c.dir, "prometheus.yaml"), []byte(config), 0o644),
	)
	cmd := exec.Command(
		filepath.Join(c.Debs, "usr/bin/prometheus"),
		"--config.file="+filepath.Join(c.dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(
			c.dir,
			"prometheus",
		),
		"--web.listen-address=127.0.0.1:9090",
		"--log.level=warn",
	)
	process, err := control.Spawn(cmd, filepath.Join(c.dir, "prometheus.log"))
	c.do("start Prometheus", err)
	c.t.Cleanup(func() { _ = process.Stop(15 * time.Second) })
}

// targets is the file with the targets of a job of Prometheus.
func (c *cluster) targets(job string) string { return filepath.Join(c.dir, job+".json") }

// scrape makes the pods of a DaemonSet, one a node, the targets of a job of Prometheus.
func (c *cluster) scrape(job string, port int, pods []corev1.Pod) {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	var groups []group
	for _, p := range pods { // with the labels of the PodMonitors in deploy/
		name := p.Spec.NodeName
		groups = append(groups, group{
			Targets: []string{fmt.Sprintf("%s:%d", p.Status.PodIP, port)},
			Labels:  map[string]string{"instance": name, "node": name, "nodepool": "test"},
		})
	}
	targets, err := json.Marshal(groups)
	c.do(
		"targets of Prometheus",
		errors.Join(
			err,
			os.WriteFile(c.targets(job)+".new", targets, 0o644),
			os.Rename(c.targets(job)+".new", c.targets(job)),
		),
	)
}

// query returns the values of an expression by node.
func (c *cluster) query(ctx context.Context, expr string) (map[string]string, error) {
	answer, err := c.ask(ctx, expr)
	values := make(map[string]string)
	for _, sample := range answer {
		values[string(sample.Metric["node"])] = sample.Value.String()
	}
	return values, err
}

// ask asks Prometheus for the vector of an expression.
func (c *cluster) ask(ctx context.Context, expr string) (model.Vector, error) {
	client, err := api.NewClient(api.Config{Address: prometheusURL})
	if err != nil {
		return nil, err
	}
	answer, _, _, err := prometheus.NewAPI(client).Query(ctx, expr, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	return answer.(model.Vector), nil
}

// close ends the nodes and the rest. The namespaces of a node take all of its processes and mounts
// along.
func (c *cluster) close() {
	if c.t.Failed() {
		out, complaints, _ := c.run(
			context.Background(),
			filepath.Join(c.Kube, "kubectl"),
			"get",
			"nodes,pods,events",
			"--all-namespaces",
			"--output=wide",
		)
		c.t.Log(out, complaints)
	}
	for _, n := range c.nodes {
		if n.process == nil {
			continue
		}
		if err := n.stop(); err != nil {
			c.t.Errorf("%s: %v", n.Name, err)
		}
	}
	c.Close()
	if c.t.Failed() {
		c.keepLogs()
	}
	c.step("all ended")
	if c.why != "" {
		c.t.Log("ended by: " + c.why)
	}
}

// keepLogs stores the logs of a failed run in build/fleet/logs.
func (c *cluster) keepLogs() {
	kept := filepath.Join(c.Root, "build/fleet/logs")
	logs, _ := filepath.Glob(filepath.Join(unshare.Dir(), "*", "*log"))
	beside, _ := filepath.Glob(filepath.Join(unshare.Dir(), "*", "?", "*log"))
	err := os.MkdirAll(kept, 0o755)
	for _, log := range append(logs, beside...) {
		text, wrong := os.ReadFile(log)
		name := strings.ReplaceAll(strings.TrimPrefix(log, unshare.Dir()+"/"), "/", "-")
		err = errors.Join(err, wrong, os.WriteFile(filepath.Join(kept, name), text, 0o644))
	}
	c.t.Logf("the logs are in %s (%v)", kept, err)
}
