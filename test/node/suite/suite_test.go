// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package suite

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/report"
)

func newEnv(t *testing.T) *Env {
	t.Helper()
	dir := t.TempDir()
	return &Env{Options: Options{Root: dir, Base: filepath.Join(dir, "base"), Results: filepath.Join(dir, "results"), Out: io.Discard}}
}

// TestOutcomes: however a scenario ends, it has an outcome and a reason, and its
// cleanups ran, last first.
func TestOutcomes(t *testing.T) {
	tests := []struct {
		name     string
		scenario Scenario
		endpoint string
		want     report.Outcome
		message  string
	}{
		{"passes", Scenario{Run: func(*T) {}}, "", report.Passed, ""},
		{"an error", Scenario{Run: func(t *T) { t.Errorf("got %d", 3) }}, "", report.Failed, "got 3"},
		{"a fatal error", Scenario{Run: func(t *T) { t.Check(errors.New("no")); panic("not reached") }}, "", report.Failed, "no"},
		{"a panic", Scenario{Run: func(*T) { panic("oops") }}, "", report.Failed, "panic: oops"},
		{"a panic in a cleanup", Scenario{Run: func(t *T) { t.Cleanup(func() { panic("late") }) }}, "", report.Failed, "panic: late"},
		{
			"what never comes", Scenario{Run: func(t *T) {
				t.Eventually(time.Millisecond, "it comes", func() error { return errors.New("not yet") })
			}}, "", report.Failed, "it comes: not within 1ms: not yet",
		},
		{"restarts a runtime that is not ours", Scenario{Restarts: true, Run: func(*T) { panic("ran") }}, "unix:///x", report.NotApplicable, "not ours to restart"},
		{"needs a private one", Scenario{Private: true, Why: "it breaks it", Run: func(*T) { panic("ran") }}, "unix:///x", report.NotApplicable, "it breaks it"},
		{"may restart its own", Scenario{Restarts: true, Run: func(*T) {}}, "", report.Passed, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := newEnv(t)
			env.Endpoint = tt.endpoint
			s := tt.scenario
			s.Name = "42-example"
			var order []string
			inner := s.Run
			s.Run = func(st *T) {
				st.Cleanup(func() { order = append(order, "first") })
				st.Cleanup(func() { order = append(order, "last") })
				inner(st)
			}
			result := run(t.Context(), env, s)
			if result.Outcome != tt.want || !strings.Contains(strings.Join(result.Messages, "\n"), tt.message) {
				t.Errorf("outcome %s, messages %q, want %s with %q", result.Outcome, result.Messages, tt.want, tt.message)
			}
			if tt.want != report.NotApplicable {
				if diff := cmp.Diff([]string{"last", "first"}, order); diff != "" {
					t.Errorf("cleanups (-want +got):\n%s", diff)
				}
			}
			_, err := os.Stat(filepath.Join(env.Results, s.Name, "scenario.log"))
			if kept := err == nil; kept != (tt.want == report.Failed) {
				t.Errorf("log kept: %v, with outcome %s", kept, tt.want)
			}
		})
	}
}

func TestInterruptIsNotAFinding(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	result := run(ctx, newEnv(t), Scenario{Name: "42-example", Run: func(t *T) {
		cancel()
		t.Sleep(time.Hour)
	}})
	if diff := cmp.Diff([]string{"interrupted"}, result.Messages); result.Outcome != report.Failed || diff != "" {
		t.Errorf("outcome %s, messages (-want +got):\n%s", result.Outcome, diff)
	}
}

func TestScenariosAreWellFormed(t *testing.T) {
	numbers := map[string]bool{}
	for _, s := range Scenarios {
		if !regexp.MustCompile(`^\d\d-[a-z-]+$`).MatchString(s.Name) || numbers[s.Name[:2]] {
			t.Errorf("%q: want two digits of its own, a dash and words", s.Name)
		}
		numbers[s.Name[:2]] = true
		if s.Source == "" || s.Run == nil || s.Private != (s.Why != "") {
			t.Errorf("%s: it needs a source and a function, and a reason if it is private", s.Name)
		}
	}
	if got := len(pick(regexp.MustCompile("^0[13]"))); got != 2 {
		t.Errorf("^0[13] picks %d scenarios, want 2", got)
	}
	if err := Run(t.Context(), Options{Run: regexp.MustCompile("nothing"), Out: io.Discard}); err == nil || !strings.Contains(err.Error(), "--list") {
		t.Errorf("a pattern without a match: %v, want an error that tells of --list", err)
	}
}

func TestDigest(t *testing.T) {
	event := crikit.Event{ContainerEventResponse: &runtimeapi.ContainerEventResponse{
		ContainerId: "0123456789", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, CreatedAt: 50e6,
		ContainersStatuses: []*runtimeapi.ContainerStatus{
			{Id: "fedcba9876", State: runtimeapi.ContainerState_CONTAINER_RUNNING},
			{Id: "0123456789", State: runtimeapi.ContainerState_CONTAINER_EXITED, FinishedAt: 20e6},
		},
	}}
	if got, want := digest([]crikit.Event{event}, nil), "STOPPED(+30ms) 012345 {nil 012345=EXITED fedcba=RUNNING}"; got != want {
		t.Errorf("digest %q, want %q", got, want)
	}
	if !tellsItself(event) {
		t.Error("an event that shows its container exited tells itself")
	}
	event.ContainersStatuses[1].State = runtimeapi.ContainerState_CONTAINER_RUNNING
	if tellsItself(event) {
		t.Error("a STOPPED that shows its container running does not tell itself")
	}
}
