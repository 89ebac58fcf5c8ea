// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

var prometheusServer = flag.String("prometheus", "", "path of a Prometheus server that evaluates the dashboards' queries on a real run (.ci/alerts)")

// TestQueriesOfAServer has a Prometheus server scrape a run of pleg-bench and a process with every
// metric, and runs each query of the dashboards, as Grafana would. Each query of served metrics
// must have a result.
func TestQueriesOfAServer(t *testing.T) {
	if *prometheusServer == "" {
		t.Skip("-prometheus names no server; .ci/alerts does")
	}
	run, all := freePort(t), serveAll(t)
	startBench(t, run)
	s := startPrometheus(t, map[string]string{"run": run, "all": all})
	s.await(t, "rate(evented_pleg_client_calls_total{instance=\"run\"}[10s]) > 0") // two scrapes with calls in between
	s.await(t, "rate(event_recorder_emitted_total{instance=\"all\"}[10s]) > 0")
	serves := s.names(t, "run")
	if len(serves) < 30 {
		t.Errorf("the run serves %d metrics, which is too few: %v", len(serves), serves)
	}
	asked := 0
	for _, q := range queries(t) {
		for _, instance := range []string{"run", "all"} {
			if instance == "run" && !slices.ContainsFunc(serves, func(name string) bool { return strings.Contains(q.expr, name+"{") }) {
				continue
			}
			asked++
			expr := strings.NewReplacer("[5m]", "[10s]", `=~".*"`, `="`+instance+`"`).Replace(q.expr)
			if n, err := s.query(expr); err != nil || n == 0 {
				t.Errorf("%s, panel %q, of %s: %d series, %v, for %s", q.board, q.panel, instance, n, err, expr)
			}
		}
	}
	t.Logf("%d queries asked; the run serves %d metrics", asked, len(serves))
}

// freePort returns an unused loopback address.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serveAll serves every metric of a generator and of a recorder, each growing with every scrape,
// and returns where.
func serveAll(t *testing.T) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := New(Plain(registry), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := NewEvents(Plain(registry), everyGauge(eventsMetrics)); err != nil {
		t.Fatal(err)
	}
	m.SetGauges(everyGauge(slices.Concat(gauges, clientCounters)))
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grow(&m.set, pushed)
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// everyGauge yields a value of each gauge.
func everyGauge(list []gaugeDefinition) func(yield func(string, float64)) {
	return func(yield func(string, float64)) {
		for _, g := range list {
			name := g.source
			if strings.HasSuffix(name, "/") {
				name += "x"
			}
			yield(name, float64(time.Now().Unix()))
		}
		yield("stream_state", 2)
		yield("containers_running", 1)
	}
}

// grow reports each metric once.
func grow(s *set, list []definition) {
	for _, d := range list {
		name := d.source
		if d.label != "" {
			name += "x"
		}
		s.Add(name, 1)
		s.Observe(name, time.Millisecond)
	}
}

// startBench starts a run of pleg-bench with metrics at the address.
func startBench(t *testing.T, addr string) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "pleg-bench")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../cmd/pleg-bench").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	start(t, bin, "run", "--duration", "5m", "--metrics-addr", addr)
}

// server is a Prometheus server of the test's own.
type server struct{ addr string }

// startPrometheus starts a server that scrapes the addresses every second, each as an instance of
// its name.
func startPrometheus(t *testing.T, targets map[string]string) server {
	t.Helper()
	var jobs []map[string]any
	for _, name := range []string{"run", "all"} {
		jobs = append(jobs, map[string]any{"job_name": name, "static_configs": []map[string]any{
			{"targets": []string{targets[name]}, "labels": map[string]string{"instance": name}},
		}})
	}
	raw, err := json.Marshal(map[string]any{ // which is YAML too
		"global": map[string]string{"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs,
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	s := server{freePort(t)}
	start(t, *prometheusServer, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+s.addr)
	return s
}

// start starts a command for the length of the test, and shows its output after a failure.
func start(t *testing.T, name string, args ...string) {
	t.Helper()
	var out strings.Builder
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Errorf("%s has ended before the test: %v", filepath.Base(name), err)
		}
		kill := time.AfterFunc(20*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		defer kill.Stop()
		_ = cmd.Wait() // the signal is its reason
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(name), out.String())
		}
	})
}

// ask asks the server's API, and returns the data field.
func (s server) ask(path string, values url.Values, data any) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + s.addr + path + "?" + values.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
}

// query returns how many series a query brings.
func (s server) query(expr string) (int, error) {
	var data struct{ Result []json.RawMessage }
	err := s.ask("/api/v1/query", url.Values{"query": {expr}}, &data)
	return len(data.Result), err
}

// await asks until the query brings something.
func (s server) await(t *testing.T, expr string) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		n, err := s.query(expr)
		switch {
		case err == nil && n > 0:
			return
		case time.Now().After(deadline):
			t.Fatalf("after 90 s %s still brings %d series, %v", expr, n, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// kindOfSeries is the suffix of a histogram's series.
var kindOfSeries = regexp.MustCompile(`_(bucket|sum|count)$`)

// names returns the metrics of an instance that the dashboards could query.
func (s server) names(t *testing.T, instance string) []string {
	t.Helper()
	var names []string
	if err := s.ask("/api/v1/label/__name__/values", url.Values{"match[]": {fmt.Sprintf("{instance=%q}", instance)}}, &names); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !strings.Contains(name, "pleg_") && !strings.HasPrefix(name, "kubelet_") || kindOfSeries.MatchString(name) && !strings.HasSuffix(name, "_bucket")
	})
}
