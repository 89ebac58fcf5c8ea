// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/internal/hostile"
)

// stateMetricsAddress is that of stateMetrics.
const stateMetricsAddress = "127.0.0.1:9091"

// stateMetrics serves the metrics of kube-state-metrics that the alerts of docs/alerts/fleet.yaml
// read, from the API server, until the test ends.
func (c *cluster) stateMetrics() {
	server := &http.Server{Addr: stateMetricsAddress, ReadHeaderTimeout: time.Second}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sets, err := c.AppsV1().DaemonSets(metav1.NamespaceAll).List(r.Context(), metav1.ListOptions{})
		nodes, wrong := c.CoreV1().Nodes().List(r.Context(), metav1.ListOptions{})
		if err = errors.Join(err, wrong); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for _, s := range sets.Items {
			labels := fmt.Sprintf("{namespace=%q,daemonset=%q}", s.Namespace, s.Name)
			fmt.Fprintf(
				w,
				"kube_daemonset_status_desired_number_scheduled%s %d\n",
				labels,
				s.Status.DesiredNumberScheduled,
			)
			fmt.Fprintf(w, "kube_daemonset_status_number_ready%s %d\n", labels, s.Status.NumberReady)
		}
		for _, n := range nodes.Items {
			fmt.Fprintf(
				w,
				"kube_node_info{node=%q,container_runtime_version=%q} 1\n",
				n.Name,
				n.Status.NodeInfo.ContainerRuntimeVersion,
			)
		}
	})
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	c.t.Cleanup(func() {
		c.do("end the server of state metrics", server.Close())
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			c.t.Errorf("the server of state metrics: %v", err)
		}
	})
}

// impatient writes a copy of alerts that waits seconds instead of minutes, and returns its path.
// Unit tests by promtool hold the true times.
func (c *cluster) impatient(name string) string {
	text, err := os.ReadFile(filepath.Join(c.Root, "docs/alerts", name+".yaml"))
	c.do("read the alerts", err)
	text = regexp.MustCompile(`\bfor: \d+m\b`).ReplaceAll(text, []byte("for: 2s"))
	text = regexp.MustCompile(`\+ 180\b`).ReplaceAll(text, []byte("+ 5"))
	path := filepath.Join(c.dir, name+"-alerts.yaml")
	c.do("write the alerts", os.WriteFile(path, text, 0o644))
	return path
}

// TestTrouble takes the watch from n1, makes the runtime of n2 a hostile one whose lists hang, and
// denies the socket of n3 to its watch by the file's mode. Alerts name each for its own, and no
// alert else stays: not for another node, and not of an agent. What is told of n2 is clean.
func TestTrouble(t *testing.T) {
	c := newCluster(t)
	c.deploy()
	c.startPrometheus()
	c.scrape("pleg-watch", 9464, c.watches())
	c.poison()
	c.kubectl("label", "node", "n1", "type=kwok") // the DaemonSets leave such nodes out
	c.do("hold the lists of n2", c.nodes[1].command(holdLists))
	c.do("deny the socket of n3", c.nodes[2].command(denySocket))
	c.kubectl(
		"--namespace",
		namespace,
		"delete",
		"pods",
		"--selector=app.kubernetes.io/instance=crio",
		"--wait=false",
	)
	c.await("the watch of n3 names what denies the socket", func(ctx context.Context) error {
		for _, previous := range []string{"--previous=false", "--previous=true"} {
			log, _, err := c.run(
				ctx,
				filepath.Join(c.Kube, "kubectl"),
				"--namespace",
				namespace,
				"logs",
				"--prefix",
				"--selector=app.kubernetes.io/instance=crio",
				previous,
			)
			if err == nil && strings.Contains(log, "it belongs to 0:0 with mode 0600") {
				return nil
			}
		}
		return errors.New("no log does")
	})
	c.await("watches on n2 and n3 alone", func(ctx context.Context) error {
		pods := c.watchPods(ctx)
		var on []string
		for _, p := range pods {
			if p.Status.PodIP != "" {
				on = append(on, p.Spec.NodeName)
			}
		}
		if slices.Sort(on); len(pods) != len(on) || !slices.Equal(on, []string{"n2", "n3"}) {
			return fmt.Errorf("of %d watches those on %q have an address", len(pods), on)
		}
		c.scrape("pleg-watch", 9464, pods)
		return nil
	})
	want := []string{
		"PLEGFleetNodeSick: n2",
		"PLEGFleetNodeUnwatched: n3",
		"PLEGFleetNodeWithoutTarget: n1",
		"PLEGFleetRuntimeUnread: n2",
		"PLEGFleetSick: call-hangs",
		"PLEGFleetWatchNotReady: pleg-watch-crio",
	}
	c.await("alerts name n1, n2 and n3, each for its own", func(ctx context.Context) error {
		firing, err := c.firing(ctx)
		if err == nil && !slices.Equal(firing, want) {
			err = fmt.Errorf("firing: %q, want %q", firing, want)
		}
		return err
	})
	c.clean()
}

// venomous are words of the venom that harm nobody, and show that it was there.
const venomous = "owned"

// poison puts a hostile runtime before that of n2, and waits until its version is in Prometheus.
func (c *cluster) poison() {
	c.do("poison the texts of n2", c.nodes[1].command(poisonTexts))
	c.await("the hostile runtime of n2 is in Prometheus", func(ctx context.Context) error {
		found, err := c.query(ctx, `evented_pleg_runtime_info{version=~".*`+venomous+`.*"}`)
		if err == nil && found["n2"] == "" {
			err = fmt.Errorf("venom on %v", found)
		}
		return err
	})
}

// clean checks that no venom of the runtime of n2 is in the log of its watch, in the labels of its
// series, and in the verdict.
func (c *cluster) clean() {
	texts := make(map[string]string)
	for _, p := range c.watchPods(c.t.Context()) {
		if p.Spec.NodeName == "n2" {
			texts["the log of the watch"] = c.kubectl("--namespace", namespace, "logs", p.Name)
		}
	}
	series, err := c.ask(c.t.Context(), `{node="n2"}`)
	c.do("series of n2", err)
	for _, sample := range series {
		for _, value := range sample.Metric {
			texts["the labels"] += string(value) + "\n"
		}
	}
	pages := c.out("hostile")
	out, complaints, err := c.run(
		c.t.Context(), c.Bench, "fleet", "verdict",
		"--prometheus", prometheusURL, "--window", "5m", "--out", pages,
	)
	c.do("fleet verdict: "+complaints, err)
	texts["the verdict"] = out + complaints
	files, err := filepath.Glob(filepath.Join(c.Root, pages, "*"))
	c.do("list the pages", err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		c.do("read a page", err)
		texts[filepath.Base(file)] = string(text)
	}
	for name, text := range texts {
		if err := hostile.Clean(text); err != nil {
			c.t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(text, venomous) {
			c.t.Errorf("%s has no word of the hostile runtime: nothing was tried", name)
		}
	}
	c.step(fmt.Sprintf("%d texts about n2 are looked through", len(texts)))
}

// firing lists the firing alerts, whichever, each with what it names. Findings about the machine
// that the nodes share are left out.
func (c *cluster) firing(ctx context.Context) (all []string, err error) {
	answer, err := c.ask(ctx, `ALERTS{alertstate="firing"}`)
	for _, alert := range answer {
		m := alert.Metric
		if slices.Contains(ofTheMachine, string(m["finding"])) {
			continue
		}
		// Metrics about a DaemonSet have an instance of their own, that of kube-state-metrics.
		all = append(
			all,
			fmt.Sprintf(
				"%s: %s",
				m["alertname"],
				cmp.Or(m["daemonset"], m["node"], m["instance"], m["finding"]),
			),
		)
	}
	slices.Sort(all)
	return all, err
}
