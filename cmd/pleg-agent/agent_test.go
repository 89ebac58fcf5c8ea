// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/spf13/pflag"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/exits"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/pages"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestFakeShowsEndsOfEveryKind: within a minute a newcomer sees what the agent is for.
func TestFakeShowsEndsOfEveryKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, notes bytes.Buffer
		root := newRoot(&out, &notes)
		root.SetArgs([]string{"--fake", "--duration", "1m", "--node", "n1", "--output", "json"})
		testkit.Check(t, root.ExecuteContext(t.Context()))
		counts := make(map[string]int32)
		for text := range strings.Lines(out.String()) {
			var e line
			testkit.Check(t, json.Unmarshal([]byte(text), &e))
			key := e.Reason + " " + e.Namespace + "/" + e.Name
			if e.Count != 1 && e.Count <= counts[key] && e.Name != "cart-0" {
				t.Errorf("%s: a count of %d after %d", key, e.Count, counts[key])
			}
			counts[key] = e.Count
		}
		for _, key := range []string{
			"ContainerFailed shop/worker-5d9f7", "ContainerOOMKilled shop/cart-0", "ContainerCompleted batch/report-28190-x7k2p",
			"ContainerKilled kube-system/dns-7f6c9", "SandboxDied shop/web-84c7d", "ContainerLost shop/web-84c7d", "ContainerFailed test/short-lived",
		} {
			if counts[key] == 0 {
				t.Errorf("no %s in a minute: %v", key, counts)
			}
		}
		if loop := counts["ContainerFailed shop/worker-5d9f7"]; loop < 4 {
			t.Errorf("the loop of shop/worker stands as x%d", loop)
		}
		for key := range counts {
			if strings.Contains(key, "ContainerEvent") {
				t.Errorf("an ordinary end of the agent is told as trouble: %s", key)
			}
		}
		testkit.Says(t, "the summary", notes.String(), "A fake runtime", " ends in ", " Events.")
		// No end has a line in the log, as docs/fleet.md says where it counts what logs cost.
		if lines := strings.Count(notes.String(), "\n"); lines != 2 {
			t.Errorf("%d lines beside the Events, want the first and the summary:\n%s", lines, notes.String())
		}
	})
}

// config returns options of a command line.
func config(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	var o options
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.add(flags)
	testkit.Check(t, flags.Parse(args))
	if err := o.readConfig(flags); err != nil {
		return &o, err
	}
	return &o, o.validate(flags)
}

func TestConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.yaml")
	testkit.Check(t, os.WriteFile(path, []byte("kinds: [oom, failed]\nqps: 7\nnode-events: false\nsettle: 1s\nselector: app=db\n"), 0o600))
	o := testkit.Must(config(t, "--fake", "--config", path, "--qps", "9", "--node", "n"))(t)
	if !slices.Equal(o.kinds, []string{"oom", "failed"}) || o.qps != 9 || o.nodeEvents || o.settle != time.Second || o.selector != "app=db" {
		t.Errorf("%+v", o)
	}
	bad := map[string]string{
		"kind: [oom]":       `the key "kind" is no flag`,
		"kinds: {a: b}":     "kinds: the value is a map",
		"kinds: [[a]]":      "kinds: the value is a list in a list",
		"kinds: &k [*k]":    "kinds: the value is a list in a list",
		"kinds: ~":          "kinds: the value is nothing",
		"kinds: []":         "--kinds names no kind",
		"node-events: off":  `"off" for "--node-events"`,
		"qps: many":         "qps: ",
		"qps: 1\nqps: 2":    "unmarshal errors: line 2:",
		"- a":               "cannot unmarshal",
		"config: other":     `the key "config" is no flag`,
		"selector: '=('":    "--selector: ",
		"kinds: [oomkills]": `no kind of end is named "oomkills"`,
		"namespaces: [a]\nexcept-namespaces: [a]": `the namespace "a"`,
		"namespace-rate: -1":                      "--namespace-rate -1",
		"settle: 0s":                              "--settle 0s",
		"settle: 61s":                             "--settle 1m1s",
		"namespaces: [a, Shop]":                   `--namespaces: Choice.Namespaces: no namespace is named "Shop"`,
		"except-namespaces: ['', a]":              `--except-namespaces: Choice.ExceptNamespaces: no namespace is named ""`,
		"node-rate: .inf":                         "--node-rate",
		"node-rate: Inf":                          "--node-rate +Inf",
		"namespace-rate: NaN":                     "--namespace-rate NaN",
		"qps: Inf":                                "--qps +Inf",
		"http-addr: '9465'":                       "--http-addr 9465: missing port in address: use HOST:PORT",
		"http-addr: ':99999'":                     "--http-addr :99999: invalid port",
		"http-addr: ':metricz'":                   "--http-addr :metricz: ",
		"node: My_Node":                           `--node "My_Node": no node has this name`,
	}
	for text, want := range bad {
		testkit.Check(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := config(t, "--fake", "--config", path)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %q in it", text, err, want)
		}
	}
	for _, args := range [][]string{
		{"--fake", "--endpoint", "unix:///x"},
		{"--endpoint", "tcp://x"},
		{"--fake", "--output", "yaml"},
		{"--endpoint", "unix:///x", "--output", "json"},
		{"--fake", "--http-addr", "9465"},
		{"--fake", "--node", "a b"},
		{"--fake", "--state", filepath.Join(path, "..", "none", "reported.json")},
		{"--fake", "--state", filepath.Dir(path)},
		{"--fake", "--state", path},
	} {
		if _, err := config(t, args...); !cli.IsUsage(err) {
			t.Errorf("%q: %v is no error of usage", args, err)
		}
	}
}

// TestAnEmptyEndpointIsRefused: it is a variable without a value, and the agent would follow
// another runtime.
func TestAnEmptyEndpointIsRefused(t *testing.T) {
	t.Setenv(endpointVariable, "unix:///run/other.sock")
	path := filepath.Join(t.TempDir(), "agent.yaml")
	testkit.Check(t, os.WriteFile(path, []byte("endpoint: ''"), 0o600))
	for _, args := range [][]string{{"--endpoint", ""}, {"--config", path}} {
		o, err := config(t, append(args, "--print", "--node", "n")...)
		if !cli.IsUsage(err) || !strings.Contains(err.Error(), "--endpoint is empty") {
			t.Errorf("%q: the endpoint is %q, and the error %v", args, o.endpoint, err)
		}
	}
}

// TestKubeconfigThatIsNotThere is an error of usage that names the file and the remedy.
func TestKubeconfigThatIsNotThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	root := newRoot(io.Discard, io.Discard)
	root.SetArgs([]string{"--endpoint", path + ".sock", "--kubeconfig", path})
	err := root.ExecuteContext(t.Context())
	if !cli.IsUsage(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "with --kubeconfig") {
		t.Errorf("%v: want an error of usage that names %s and the flag", err, path)
	}
}

// TestConfigKeepsTheText: what YAML takes for a number or a truth may be the name of a namespace.
func TestConfigKeepsTheText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.yaml")
	text := "except-namespaces: [20240601, 1e3, 0123, no, 0x1f, 2024-06-01, a]\nnode-burst: 1000000\nnode-rate: 2.50\n"
	testkit.Check(t, os.WriteFile(path, []byte(text), 0o600))
	o := testkit.Must(config(t, "--fake", "--config", path))(t)
	want := []string{"20240601", "1e3", "0123", "no", "0x1f", "2024-06-01", "a"}
	if !slices.Equal(o.exceptNamespaces, want) || o.nodeBurst != 1000000 || o.nodeRate != 2.5 {
		t.Errorf("%q, %d at once, %v a second", o.exceptNamespaces, o.nodeBurst, o.nodeRate)
	}
}

// TestNodeEventsAreThoseOfTheNode: kubectl describe node asks for the Events with the node's UID,
// and for those with the node's name as UID, as kubelets have it.
func TestNodeEventsAreThoseOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testkit.Must(config(t, "--fake", "--node", "n1"))(t)
		sink := newPrinter(new(bytes.Buffer), false)
		refuse := func(context.Context) (net.Conn, error) { return nil, errors.New("refused") }
		a := testkit.Must(newAgent(o, parts{sink: sink, noRoster: true, dial: refuse}))(t)
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		ended := make(chan error)
		go func() { ended <- a.run(ctx) }()
		time.Sleep(time.Minute)
		cancel()
		testkit.Check(t, <-ended)
		if len(sink.events) == 0 {
			t.Fatal("no Event about a runtime that does not answer")
		}
		for name, e := range sink.events {
			about := e.event.Regarding
			if about.Kind != "Node" || about.Name != "n1" || about.UID != "n1" {
				t.Errorf("%s is about %+v", name, about)
			}
		}
	})
}

// TestAgentEndsWithItsGenerator: no signal comes, and nothing of the agent stays behind.
func TestAgentEndsWithItsGenerator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testkit.Must(config(t, "--fake", "--node", "n1"))(t)
		dial, stop, err := startFake(t.Context())
		testkit.Check(t, err)
		defer stop()
		a := testkit.Must(newAgent(o, parts{sink: newPrinter(new(bytes.Buffer), false), noRoster: true, dial: dial}))(t)
		generating, endGenerator := context.WithCancel(t.Context())
		go func() { _ = a.generator.Run(generating) }() // in the agent's place, which cannot end it
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.run(ctx) }()
		time.Sleep(time.Minute)
		endGenerator()
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, pleg.ErrAlreadyRun) {
				t.Errorf("the agent ended with %v, want what its generator's Run returned", err)
			}
			cancel()
		default:
			t.Error("the agent goes on a minute after its generator")
			cancel()
			<-ended
		}
	})
}

// TestAgentEndsWithItsReporter: what came to the place of its ledger is another's.
func TestAgentEndsWithItsReporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := filepath.Join(t.TempDir(), "reported.json")
		o := testkit.Must(config(t, "--fake", "--node", "n1", "--state", state))(t)
		dial, stop, err := startFake(t.Context())
		testkit.Check(t, err)
		defer stop()
		a := testkit.Must(newAgent(o, parts{sink: newPrinter(new(bytes.Buffer), false), noRoster: true, dial: dial}))(t)
		testkit.Check(t, os.Mkdir(state, 0o700))
		began := time.Now()
		err = a.run(t.Context())
		if err == nil || !strings.Contains(err.Error(), state+" is a folder") || time.Since(began) > time.Minute {
			t.Errorf("after %v: %v, want an end at once that names the folder", time.Since(began), err)
		}
	})
}

// TestTheNodeHasTheNameThatAKubeletGivesIt: by default that is the host's in small letters.
func TestTheNodeHasTheNameThatAKubeletGivesIt(t *testing.T) {
	for _, test := range []struct {
		options options
		host    string
		want    string
		bad     string
	}{
		{options{}, "Worker-1.example.org\n", "worker-1.example.org", ""},
		{options{node: "worker-2"}, "worker-1", "worker-2", ""},
		{options{}, "my_host", "", `no node has the name of the host, "my_host"`},
		{options{print: true}, "My_Host", "my_host", ""},
		{options{node: "My", print: true}, "a", "", `--node "My"`},
	} {
		o := test.options
		err := o.findNode(func() (string, error) { return test.host, nil })
		switch {
		case test.bad != "" && (!cli.IsUsage(err) || !strings.Contains(err.Error(), test.bad)):
			t.Errorf("%+v on %q: %v, want %q", test.options, test.host, err, test.bad)
		case test.bad == "" && (err != nil || o.node != test.want):
			t.Errorf("%+v on %q: %q, %v, want %q", test.options, test.host, o.node, err, test.want)
		}
	}
}

// TestVerboseIsAnyNumber: a count may be given as a number, also a negative one.
func TestVerboseIsAnyNumber(t *testing.T) {
	for _, verbose := range []string{"-1", "0", "7"} {
		synctest.Test(t, func(t *testing.T) {
			root := newRoot(io.Discard, io.Discard)
			root.SetArgs([]string{"--fake", "--node", "n1", "--verbose=" + verbose, "--duration", "1m"})
			testkit.Check(t, root.ExecuteContext(t.Context()))
		})
	}
}

func TestSummary(t *testing.T) {
	stats := exits.Stats{Ends: map[exits.Kind]uint64{exits.Failed: 1, exits.Completed: 2}}
	for got, want := range map[string]string{
		summary(exits.Stats{}, 1): "0 ends in 1 Event.",
		summary(stats, 2):         "3 ends in 2 Events.",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestInstancesFitTheServer(t *testing.T) {
	long := strings.Repeat("n", 253)
	if a, b := instance(long), instance(long[:252]); len(a) > 128 || a == b {
		t.Errorf("%s, %s", a, b)
	}
	if instance("n1") != "pleg-agent-n1" {
		t.Error(instance("n1"))
	}
}

// failing is a sink that fails.
type failing struct{ *printer }

func (failing) Create(context.Context, *eventsv1.Event) (*eventsv1.Event, error) {
	return nil, errors.New("away")
}

// TestPages looks at the pages of an agent on a fake runtime, with an API server that is away.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testkit.Must(config(t, "--fake", "--node", "n1", "--state", filepath.Join(t.TempDir(), "reported.json")))(t)
		ctx, cancel := context.WithCancel(t.Context())
		dial, stop, err := startFake(ctx)
		testkit.Check(t, err)
		defer stop()
		a := testkit.Must(newAgent(o, parts{sink: failing{newPrinter(new(bytes.Buffer), false)}, dial: dial}))(t)
		get := func(path string) (int, string) {
			answer := httptest.NewRecorder()
			a.handler().ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
			return answer.Code, answer.Body.String()
		}
		if code, text := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "not been read") {
			t.Errorf("before the start: %d %s", code, text)
		}
		ended := make(chan error)
		go func() { ended <- a.run(ctx) }()
		time.Sleep(time.Minute)
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, text := get(path); code != http.StatusOK || text != "ok\n" {
				t.Errorf("%s: %d %s", path, code, text)
			}
		}
		_, text := get("/metrics")
		testkit.Says(t, "/metrics", text, `pleg_agent_ends_total{kind="oom",namespace="shop"} `, `pleg_agent_ends_total{kind="oom",namespace="kube-system"} 0`,
			`pleg_agent_container_restarts_total{namespace="shop"} `, "pleg_agent_end_to_report_seconds_count ", "pleg_agent_containers ",
			"event_recorder_unsent ", "evented_pleg_stream_state", "evented_pleg_client_calls_total",
			`evented_pleg_runtime_info{runtime="`)
		checkDashboard(t, a.registry)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		kept := testkit.Must(os.ReadFile(o.state))(t)
		testkit.Says(t, "the state of an agent whose server was away", string(kept), `"unsent":[{`, `"kind":"ContainerOOMKilled"`)
	})
}

var metricName = regexp.MustCompile(`(?:pleg_agent|event_recorder|evented_pleg|kube_pod)_[a-z_]+`)

// TestAStateThatIsNotWritten: the metrics tell since when, and the agent is healthy nevertheless: a
// restart would not mend the disk, and would repeat reports.
func TestAStateThatIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), cli.SetLogger(io.Discard, slog.LevelError)))
		defer cancel()
		dial, stop, err := startFake(ctx)
		testkit.Check(t, err)
		defer stop()
		state := filepath.Join(t.TempDir(), "reported.json")
		o := testkit.Must(config(t, "--fake", "--node", "n1", "--state", state))(t)
		a := testkit.Must(newAgent(o, parts{sink: newPrinter(io.Discard, false), dial: dial}))(t)
		inTheWay := filepath.Join(state+".new", "in the way")
		testkit.Check(t, os.MkdirAll(inTheWay, 0o700)) // of each write
		ended := make(chan error, 1)
		go func() { ended <- a.run(ctx) }()
		page := func(path string) string {
			answer := httptest.NewRecorder()
			a.handler().ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
			return answer.Body.String()
		}
		time.Sleep(time.Minute)
		synctest.Wait() // the write of this moment is over
		testkit.Says(t, "/metrics", page("/metrics"), "\npleg_agent_state_failing_seconds 60\n")
		for _, path := range []string{"/healthz", "/readyz"} {
			if text := page(path); text != "ok\n" {
				t.Errorf("%s: %s", path, text)
			}
		}
		testkit.Check(t, os.RemoveAll(state+".new"))
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.Says(t, "/metrics", page("/metrics"), "\npleg_agent_state_failing_seconds 0\n")
		cancel()
		testkit.Check(t, <-ended)
	})
}

// checkDashboard wants each metric of the dashboard and of the alerts in the registry.
func checkDashboard(t *testing.T, registry *prometheus.Registry) {
	t.Helper()
	served := make(map[string]bool)
	for _, family := range testkit.Must(registry.Gather())(t) {
		served[family.GetName()] = true
	}
	served["event_recorder_rejections_total"] = true
	for _, path := range []string{
		"../../deploy/agent/dashboard.json",
		"../../deploy/agent/prometheus-operator/rules.yaml",
		"../../docs/alerts/agent.yaml",
		"../../docs/agent.md",
	} {
		text := string(testkit.Must(os.ReadFile(path))(t))
		names := metricName.FindAllString(text, -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric", path)
		}
		for _, name := range names {
			if !served[strings.TrimSuffix(name, "_bucket")] && !strings.HasSuffix(name, "_") {
				t.Errorf("%s names %s, and the agent does not serve it", path, name)
			}
		}
	}
}

func TestNamespacesAreBounded(t *testing.T) {
	m := testkit.Must(newMeter(prometheus.NewRegistry()))(t)
	for i := range 2 * maxNamespaces {
		m.observe(exits.End{Kind: exits.Failed, Pod: exits.Ref{Namespace: fmt.Sprint("ns", i)}}, exits.Reported)
	}
	values := make(map[string]bool)
	for i := range 2 * maxNamespaces {
		values[m.label(fmt.Sprint("ns", i))] = true
	}
	if len(values) != maxNamespaces-1 || !values[otherNamespaces] { // and kube-system
		t.Errorf("%d values of the label namespace, want %d with %s among them", len(values), maxNamespaces-1, otherNamespaces)
	}
}

// TestLatenciesAfterAClockThatWasSetBack: the sums of both histograms do not fall.
func TestLatenciesAfterAClockThatWasSetBack(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := testkit.Must(newMeter(registry))(t)
	ended := time.Now().Add(time.Hour)
	m.observe(exits.End{Kind: exits.Failed, FinishedAt: ended}, exits.Reported)
	sink := &timedSink{newPrinter(new(bytes.Buffer), false), m.stored}
	e := &eventsv1.Event{}
	e.Annotations = map[string]string{exits.AnnotationFinishedAt: ended.Format(time.RFC3339Nano)}
	testkit.Must(sink.Create(t.Context(), e))(t)
	seen := 0
	for _, family := range testkit.Must(registry.Gather())(t) {
		if h := family.GetMetric()[0].GetHistogram(); h != nil {
			seen += int(h.GetSampleCount())
			if h.GetSampleSum() != 0 {
				t.Errorf("the sum of %s is %v", family.GetName(), h.GetSampleSum())
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d observations, want 2", seen)
	}
}

// TestTheInstalledVersionIsPinned: the page and the help name the version whose image the objects
// name. Without one, kubectl takes the objects of the latest commit.
func TestTheInstalledVersionIsPinned(t *testing.T) {
	const folder = "evented-pleg/deploy/agent/"
	objects := string(testkit.Must(os.ReadFile("../../deploy/agent/base/kustomization.yaml"))(t))
	_, tag, _ := strings.Cut(objects, "newTag: ")
	tag, _, found := strings.Cut(tag, "}")
	if !found {
		t.Fatalf("no version of the image: %s", objects)
	}
	page := string(testkit.Must(os.ReadFile("../../docs/agent.md"))(t))
	for name, text := range map[string]string{"docs/agent.md": page, "--help": newRoot(io.Discard, io.Discard).Example} {
		if n, pinned := strings.Count(text, folder), strings.Count(text, "?ref="+tag+"'"); n == 0 || n != pinned {
			t.Errorf("%s names %s %d times, %d with ?ref=%s", name, folder, n, pinned, tag)
		}
	}
}

// TestTheExamplesOfTheHelp: each of pleg-agent is a command line that the agent takes.
func TestTheExamplesOfTheHelp(t *testing.T) {
	tried := 0
	for example := range strings.Lines(newRoot(io.Discard, io.Discard).Example) {
		args, ours := strings.CutPrefix(strings.TrimSpace(example), "pleg-agent ")
		if !ours {
			continue
		}
		tried++
		words := strings.Fields(strings.ReplaceAll(args, "'", ""))
		if !slices.Contains(words, "--fake") { // there may be no runtime here
			words = append(words, "--endpoint", "unix:///run/none.sock")
		}
		if _, err := config(t, append(words, "--node", "n")...); err != nil {
			t.Errorf("%q: %v", example, err)
		}
	}
	if tried < 3 {
		t.Errorf("%d examples of pleg-agent", tried)
	}
}

// TestMetricsFollowTheConventions of Prometheus in names, units, types and help. What has a fixed
// label is there from the start: rate and increase do not see the first of a series that is not.
func TestMetricsFollowTheConventions(t *testing.T) {
	registry := prometheus.NewRegistry()
	testkit.Must(newMeter(registry))(t)
	testkit.Check(t, reporterStats(registry, func() exits.Stats { return exits.Stats{} }))
	families := testkit.Must(registry.Gather())(t)
	problems := testkit.Must(promlint.NewWithMetricFamilies(families).Lint())(t)
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
	served := make(map[string]int)
	for _, family := range families {
		served[family.GetName()] = len(family.GetMetric())
	}
	for name, want := range map[string]int{
		"pleg_agent_ends_total":               len(exits.Kinds()), // of the infrastructure
		"pleg_agent_ends_unreported_total":    3,
		"pleg_agent_container_restarts_total": 1, // of the infrastructure
	} {
		if served[name] != want {
			t.Errorf("%s has %d series at the start, want %d", name, served[name], want)
		}
	}
}

// TestCallsOfDocumentsAreUnderstood parses each call of pleg-agent in the documents.
func TestCallsOfDocumentsAreUnderstood(t *testing.T) {
	calls := pages.Calls(t, "../..", "pleg-agent")
	if len(calls) < 4 {
		t.Errorf("%d calls in the documents, want more", len(calls))
	}
	for _, call := range calls {
		pages.Understood(t, newRoot(io.Discard, io.Discard), call)
	}
}
