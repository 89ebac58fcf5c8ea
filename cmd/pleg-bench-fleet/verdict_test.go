// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/pages"
)

var keep = flag.String("keep", "", "folder for the pages of a verdict and of a load")

// kept returns a folder for a page.
func kept(t *testing.T, name string) string {
	if *keep == "" {
		return filepath.Join(t.TempDir(), name)
	}
	return filepath.Join(*keep, name)
}

// prometheusServer answers recorded queries, and fails the test for others. The record has a line
// for each query, with its answer behind a tab.
func prometheusServer(t *testing.T) string {
	text := testkit.Must(os.ReadFile("testdata/prometheus.txt"))(t)
	answers := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		query, answer, _ := strings.Cut(line, "\t")
		answers[query] = answer
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answers[r.FormValue("query")] == "" {
			t.Errorf("not recorded: %s", r.FormValue("query"))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answers[r.FormValue("query")])
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// fleet runs the command line.
func fleet(args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetErr(&err)
	status = cli.Execute(root, args, nil)
	return status, out.String(), err.String()
}

// TestVerdict judges a recorded fleet: fake runtimes with and without lost events and with a stream
// for one client only, a scrape that fails, and a node that has gone.
func TestVerdict(t *testing.T) {
	address := prometheusServer(t)
	args := []string{"verdict", "--prometheus", address, "--window", "15m", "--trusted", "8s", "--by", "pool", "--selector", `job="pleg-watch"`}
	dir := kept(t, "verdict")
	status, stdout, stderr := fleet(append(args, "--out", dir, "-o", "json", "--expect", "missed=0", "--expect", "trusted_share>0.3")...)
	if status != 3 || !strings.Contains(stderr, "expected missed=0") || strings.Contains(stderr, "trusted_share") {
		t.Errorf("status %d: %s", status, stderr)
	}
	var v Verdict
	testkit.Check(t, json.Unmarshal([]byte(stdout), &v))
	var groups, named []string
	for _, g := range v.Groups {
		groups = append(groups, g.name())
	}
	for _, n := range v.Named {
		named = append(named, n.Node+" "+n.Class)
	}
	if want := []string{"containerd v1.7.35 pool=y", "containerd v2.4.2 pool=x", "cri-o 1.36.3 pool=y", "unknown runtime pool=y"}; !slices.Equal(groups, want) {
		t.Errorf("groups %q, want %q", groups, want)
	}
	if want := []string{"n-b losing", "n-e silent", "n-f silent"}; !slices.Equal(named, want) {
		t.Errorf("named %q, want %q", named, want)
	}
	if v.Nodes != 6 || v.Trusted != 2 || v.Polling != 1 || v.Worth != "partial" || v.Groups[2].Missed != 0 || v.Groups[2].SavedShare < 0.5 || v.Groups[0].SavedShare > 0.2 {
		t.Errorf("%+v", v)
	}
	page := testkit.Must(os.ReadFile(filepath.Join(dir, "report.html")))(t)
	testkit.Says(t, "the page", string(page), "containerd v2.4.2 pool=x", "n-b", "its scrape fails", "PARTIAL")
	status, stdout, stderr = fleet(args...)
	if status != 0 || stderr != "" || !strings.Contains(stdout, "nodes to look at") {
		t.Errorf("status %d: %s\n%s", status, stderr, stdout)
	}
}

// TestClasses holds the arithmetic against a table of nodes.
func TestClasses(t *testing.T) {
	const hour = 3600
	for _, c := range []struct {
		name  string
		node  node
		class string
		named bool
	}{
		{"trusted", node{state: "Connected", period: 300, seen: hour, received: 9, lists: 20}, trusted, false},
		{"a moment ago", node{state: "Connected", period: 8, seen: 20, received: 9}, earning, false},
		{"never earns", node{state: "Connected", period: 2, seen: hour, received: 9, lists: 1800}, earning, true},
		{"quiet", node{state: "Connected", period: 300, seen: hour}, untested, false},
		{"loses", node{state: "Connected", period: 300, seen: hour, received: 9, missed: 1.02}, losing, true},
		{"loses a little of one", node{state: "Connected", period: 300, seen: hour, received: 9, missed: 0.3}, losing, true},
		{"loses and is away", node{state: "Backoff", period: 1, missed: 3}, losing, true},
		{"away now", node{state: "Backoff", period: 1, seen: hour, received: 9}, away, true},
		{"was away", node{state: "Connected", period: 300, seen: hour, received: 9, unheard: 4}, away, true},
		{"no events", node{state: "Unsupported", period: 1, seen: hour}, unsupported, true},
		{"polls", node{state: "Idle", period: 1, seen: hour, missed: 0}, polling, false},
		{"silent", node{silent: "its scrape fails", missed: 3}, silent, true},
		{"no state", node{period: 1}, away, true},
	} {
		class, reason := c.node.classify(30 * time.Second)
		if class != c.class || (reason != "") != c.named {
			t.Errorf("%s: %s %q, want %s, named %v", c.name, class, reason, c.class, c.named)
		}
	}
	fleets := map[string][]*node{
		"full":     {{state: "Connected", period: 300, received: 9}, {state: "Idle"}, {silent: "x"}},
		"partial":  {{state: "Connected", period: 300, received: 9}, {state: "Unsupported"}},
		"none":     {{state: "Unsupported"}, {state: "Idle"}},
		"untested": {{state: "Connected", period: 300}, {state: "Connected", period: 300, received: 9}},
	}
	for worth, nodes := range fleets {
		if v := judge(nodes, time.Now(), time.Hour, 30*time.Second); v.Worth != worth || v.Nodes != len(nodes) {
			t.Errorf("%s, want %s: %s", v.Worth, worth, v.Summary)
		}
	}
	// 100 nodes of one version lose events. Two versions in the window are noted, the worst first.
	var many []*node
	for i := range 100 {
		many = append(many, &node{name: string(rune('a' + i)), runtime: "r", version: "1", runtimes: 1 + i%2, state: "Connected", seen: hour, lists: 900, missed: float64(i), received: 1})
	}
	v := judge(many, time.Now(), time.Hour, 30*time.Second)
	text := new(bytes.Buffer)
	testkit.Check(t, v.Document().WriteText(text, bench.Columns))
	if v.Missed != 4950 || v.Lists != 90_000 || v.ListsPolled != 360_000 || v.SavedShare != 0.75 || v.Upgraded != 50 || len(v.Named) != 100 || v.Named[0].Missed != 99 {
		t.Errorf("%+v", v.Totals)
	}
	words := strings.Join(strings.Fields(text.String()), " ")
	testkit.Says(t, "the text", words, "70 more are named", "lost events on 99 of 100 nodes", "50 nodes changed")
}

// TestVerdictFails tries wrong usage, and servers that have nothing or are none.
func TestVerdictFails(t *testing.T) {
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer abc" {
			http.Error(w, "who?", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	}))
	defer empty.Close()
	unlabelled := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"instance":"a"},"value":[1,"1"]}]}}`)
	}))
	defer unlabelled.Close()
	token := filepath.Join(t.TempDir(), "token")
	testkit.Check(t, os.WriteFile(token, []byte("abc\n"), 0o600))
	refuses := refusingAddress(t)
	for args, want := range map[string]struct {
		status int
		says   string
	}{
		"":                                            {2, "--prometheus is missing"},
		"--prometheus foo":                            {2, "--prometheus foo: write a URL"},
		"--prometheus 127.0.0.1:9090":                 {2, "http://127.0.0.1:9090"},
		"-v":                                          {2, "'v' in -v"},
		"--prometheus http://x --window 1s":           {2, "--window 1s"},
		"--prometheus http://x --window soon":         {2, "soon"},
		"--prometheus http://x --trusted 1h":          {2, "--trusted 1h0m0s"},
		"--prometheus http://x --by a-b":              {2, `"a-b"`},
		"--prometheus http://x --selector {a}":        {2, "without braces"},
		"--prometheus http://x -o yaml":               {2, "yaml"},
		"--prometheus http://x --expect nonsense<1":   {2, "nonsense"},
		"--prometheus http://x extra":                 {2, "extra"},
		"--prometheus http://x --token-file /nowhere": {2, "/nowhere"},
		"--prometheus http://" + refuses: {1, fmt.Sprintf(
			"fleet: a query of Prometheus failed: Post \"http://%[1]s/api/v1/query\": dial tcp %[1]s: connect: connection refused", refuses)},
		"--prometheus " + empty.URL:                             {1, "401"},
		"--prometheus " + empty.URL + "/ --token-file " + token: {1, "no node has metrics"},
		"--prometheus " + unlabelled.URL:                        {1, "--node-label"},
	} {
		status, stdout, stderr := fleet(append([]string{"verdict"}, strings.Fields(args)...)...)
		if status != want.status || !strings.Contains(stderr, want.says) || stdout != "" {
			t.Errorf("%s: status %d, %s, want %d and %q", args, status, stderr, want.status, want.says)
		}
		if strings.Contains(args, "-o") {
			continue
		}
		_, stdout, _ = fleet(append([]string{"verdict", "-o", "json"}, strings.Fields(args)...)...)
		var v Verdict
		_ = json.Unmarshal([]byte(stdout), &v) // the fields tell
		if failed := want.status == 1; failed != (strings.Contains(v.Unfinished, strings.TrimPrefix(want.says, "fleet: ")) && v.Worth == "unknown") || failed != (stdout != "") {
			t.Errorf("%s: with -o json it printed %s", args, stdout)
		}
	}
}

// refusingAddress returns an address that refuses all connections until the test ends: a socket
// has it, and does not listen. A port that nobody uses may be somebody's on the next machine.
func refusingAddress(t *testing.T) string {
	fd := testkit.Must(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))(t)
	t.Cleanup(func() { testkit.Check(t, syscall.Close(fd)) })
	testkit.Check(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name := testkit.Must(syscall.Getsockname(fd))(t)
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
}

// TestCallsOfDocumentsAreUnderstood parses each call of pleg-bench fleet in the documents and in
// the help of its commands.
func TestCallsOfDocumentsAreUnderstood(t *testing.T) {
	calls := pages.Calls(t, "../..", "pleg-bench")
	calls = append(calls, pages.Examples(newRoot(), "pleg-bench")...)
	fleets := 0
	for _, call := range calls {
		if len(call.Args) > 0 && call.Args[0] == "fleet" {
			fleets++
			call.Args = call.Args[1:]
			pages.Understood(t, newRoot(), call)
		}
	}
	if fleets < 10 {
		t.Errorf("%d calls, want more", fleets)
	}
}
