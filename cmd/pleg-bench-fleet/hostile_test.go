// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/hostile"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// checkClean fails the test for text that a terminal obeys, a forged line, or an enormous text.
func checkClean(t *testing.T, name, text string) {
	t.Helper()
	if err := hostile.Clean(text); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// checkFolder does the same for the files of a folder.
func checkFolder(t *testing.T, dir string) {
	t.Helper()
	files := testkit.Must(os.ReadDir(dir))(t)
	for _, f := range files {
		checkClean(t, f.Name(), string(testkit.Must(os.ReadFile(filepath.Join(dir, f.Name())))(t)))
	}
	if len(files) != 3 {
		t.Errorf("%d files in %s", len(files), dir)
	}
}

// TestHostilePrometheus judges a fleet whose nodes, pools and runtimes have venom in their names,
// by a Prometheus that has it in its warnings and errors.
func TestHostilePrometheus(t *testing.T) {
	quoted := strings.Trim(string(testkit.Must(json.Marshal(hostile.Venom))(t)), `"`)
	text := string(testkit.Must(os.ReadFile("testdata/prometheus.txt"))(t))
	answers := make(map[string]string)
	for line := range strings.Lines(text) {
		query, answer, _ := strings.Cut(line, "\t")
		for _, label := range []string{"node", "pool", "runtime", "version", "finding", "grade", "worth", "area"} {
			answer = strings.ReplaceAll(answer, `"`+label+`":"`, `"`+label+`":"`+quoted)
		}
		answer = strings.ReplaceAll(answer, quoted+"v1.7", quoted+hostile.Filler+"v1.7")
		answers[query] = strings.Replace(answer, `"status":"success"`, `"status":"success","warnings":["`+quoted+hostile.Filler+`"]`, 1)
	}
	fails := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := answers[r.FormValue("query")]
		if fails {
			w.WriteHeader(http.StatusUnprocessableEntity)
			answer = `{"status":"error","errorType":"execution","error":"` + quoted + hostile.Filler + `"}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	args := []string{"verdict", "--prometheus", server.URL, "--window", "15m", "--trusted", "8s", "--by", "pool", "--selector", `job="pleg-watch"`}
	for _, form := range []string{"text", "json"} {
		dir := filepath.Join(t.TempDir(), form)
		status, stdout, stderr := fleet(append(args, "-o", form, "--out", dir)...)
		if status != 0 || !strings.Contains(stdout, "owned") || !strings.Contains(stderr, "owned") {
			t.Errorf("%s: status %d: %.2000q %.2000q", form, status, stdout, stderr)
		}
		checkClean(t, form, stdout)
		checkClean(t, form+" of errors", stderr)
		checkFolder(t, dir)
	}
	fails = true
	status, _, stderr := fleet(args...)
	if status != 1 || !strings.Contains(stderr, "owned") {
		t.Errorf("status %d: %.2000q", status, stderr)
	}
	checkClean(t, "the error", stderr)
}

// TestHostileNodes puts a load on nodes with venom in logs, messages and reasons.
func TestHostileNodes(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, a *fakeAPI) {
		a.venom = hostile.Venom + hostile.Filler
		a.node("tainted", func(n *core.Node) {
			n.Spec.Taints = []core.Taint{{Key: hostile.Venom, Effect: core.TaintEffectNoSchedule}}
		})
		for _, form := range []string{"json", "text"} {
			dir := filepath.Join(t.TempDir(), form)
			_, text, err := a.load(ctx, "--out", dir, "-o", form)
			if err != cli.ErrBad || !strings.Contains(text, "owned") {
				t.Fatalf("%v: %.2000q", err, text)
			}
			checkClean(t, form, text)
			checkFolder(t, dir)
		}
	}, "good-1", "bad-1", "refused-1", "pulls-1", "tainted")
}

// TestHostileWarnings: an API server's warnings reach the log of the program.
func TestHostileWarnings(t *testing.T) {
	var b strings.Builder
	cli.SetLogger(&b, 0)
	defer klog.ClearLogger()
	klog.Background().Info("Warning: "+hostile.Venom, "err", hostile.Venom+hostile.Filler)
	klog.Warning(hostile.Venom + hostile.Filler)
	checkClean(t, "the log", b.String())
	if strings.Count(b.String(), "\n") != 2 {
		t.Errorf("not two lines: %.1000q", b.String())
	}
}
