// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package suite holds the scenarios of the node e2e tests and runs them.
//
// # Model
//
// A Scenario is a function that gets a T: it starts a Node (a private runtime,
// a proxy, a client that plays the other side), starts agents on it, disturbs
// them, and compares the agent's cache with the runtime's own word. What it
// measures are figures; what must hold is an error when it does not. Times are
// measured, never asserted tightly: bounds are there so that a hang ends.
//
// # Concurrency
//
// Scenarios run one after another, each on a goroutine of its own. T's methods
// may be called from any goroutine, Fatalf and Skipf only from the scenario's.
//
// # Errors
//
// A panic fails its scenario with the stack and the run goes on.
package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/test/node/report"
)

// A Scenario is one test of the suite.
type Scenario struct {
	// Name is its number in the list and a word.
	Name string
	// Source is the section of KEP-3386, or the observed fact, that it holds.
	Source string
	// Restarts: it must stop and start the runtime, so it cannot run on one that
	// is not ours.
	Restarts bool
	// Private: it needs a runtime to itself for another reason, told in Why.
	Private bool
	Why     string
	// Run does it.
	Run func(*T)
}

// limit ends a scenario that hangs; a soak that was asked for has its own time beyond.
const limit = 15 * time.Minute

func limitOf(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return limit
	}
	return limit + 2*d
}

// A T is one scenario while it runs. mu guards the fields below it.
type T struct {
	// Env is what the suite runs with.
	Env *Env
	// Dir is the scenario's own directory. What lies in it as *.log is kept when
	// the scenario fails.
	Dir string

	scenario Scenario
	ctx      context.Context

	mu       sync.Mutex
	result   report.Result
	cleanups []func()
	log      *os.File
	started  time.Time
}

// Bounded says whether this is the short form for CI.
func (t *T) Bounded() bool { return t.Env.Bounded }

// Size returns the full size, or the bounded one in the short form.
func (t *T) Size(full, bounded int) int {
	if t.Bounded() {
		return bounded
	}
	return full
}

// Logf writes a line to the scenario's log.
func (t *T) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logLocked(fmt.Sprintf(format, args...))
}

func (t *T) logLocked(line string) {
	fmt.Fprintf(t.log, "%s %8.3f %s\n", time.Now().Format("15:04:05.000"), time.Since(t.started).Seconds(), line)
	if t.Env.Verbose {
		fmt.Fprintf(t.Env.Out, "     | %8.3f %s\n", time.Since(t.started).Seconds(), line)
	}
}

// Errorf fails the scenario and goes on.
func (t *T) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	t.result.Outcome = report.Failed
	if len(t.result.Messages) < 20 {
		t.result.Messages = append(t.result.Messages, line)
	}
	t.logLocked("ERROR " + line)
}

// Fatalf fails the scenario and ends it.
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// Check ends the scenario if err is not nil.
func (t *T) Check(err error) {
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Figure records a measured value.
func (t *T) Figure(name, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	figure := report.Figure{Name: name, Value: fmt.Sprintf(format, args...)}
	t.result.Figures = append(t.result.Figures, figure)
	t.logLocked("FIGURE " + figure.Name + " " + figure.Value)
}

// count changes the figures of the matrix.
func (t *T) count(change func(*report.Result)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.result)
}

// Cleanup runs f when the scenario ends, last registered first.
func (t *T) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// Eventually polls until holds returns nil, and fails the scenario if that takes
// longer than within. It returns how long it took.
func (t *T) Eventually(within time.Duration, what string, holds func() error) time.Duration {
	began := time.Now()
	for {
		err := holds()
		if err == nil {
			return time.Since(began)
		}
		if time.Since(began) > within {
			t.Fatalf("%s: not within %v: %v", what, within, err)
		}
		t.Sleep(10 * time.Millisecond)
	}
}

// Sleep waits, and ends the scenario if it is interrupted meanwhile.
func (t *T) Sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.Fatalf("interrupted: %v", context.Cause(t.ctx))
	}
}

// run runs the scenario to its end, cleanups included.
func run(ctx context.Context, env *Env, s Scenario) report.Result {
	most := limitOf(os.Getenv(envSoak))
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("the scenario did not end within %v", most))
	defer cancel()
	t := &T{Env: env, Dir: filepath.Join(env.Base, s.Name[:2]), scenario: s, ctx: ctx, started: time.Now()}
	t.result = report.Result{Name: s.Name, Source: s.Source, Outcome: report.Passed}
	if reason := env.notApplicable(s); reason != "" {
		t.result.Outcome, t.result.Messages = report.NotApplicable, []string{reason}
		return t.result
	}
	if err := os.MkdirAll(t.Dir, 0o755); err != nil {
		t.result.Outcome, t.result.Messages = report.Failed, []string{err.Error()}
		return t.result
	}
	log, err := os.Create(filepath.Join(t.Dir, "scenario.log"))
	if err != nil {
		t.result.Outcome, t.result.Messages = report.Failed, []string{err.Error()}
		return t.result
	}
	t.log = log
	defer log.Close()

	t.guard(func() { s.Run(t) })
	took := time.Since(t.started)
	for len(t.cleanups) > 0 {
		last := t.cleanups[len(t.cleanups)-1]
		t.cleanups = t.cleanups[:len(t.cleanups)-1]
		t.guard(last)
	}
	t.result.Took = took
	if t.result.Outcome == report.Failed && env.interrupted(ctx) {
		t.result.Messages = []string{"interrupted"}
	}
	if t.result.Outcome == report.Failed {
		t.result.Logs = env.keep(t)
	}
	return t.result
}

// guard runs f on a goroutine of its own, so that Fatalf ends it and a panic
// fails the scenario instead of the suite.
func (t *T) guard(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}
