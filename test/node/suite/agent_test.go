// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// An Agent is an agent's process, with the events of its Watch.
type Agent struct {
	*child.Child

	n    *Node
	name string

	mu     sync.Mutex // owns the fields below
	events []bench.Delivery
	ledger *bench.Ledger
}

// workerRate is how often the pod workers of an agent ask for a newer status, a second.
const workerRate = 20

// NewAgent starts an agent behind the proxy, with pod workers that compare with the runtime itself.
// The agent stops with the scenario, and its violations then fail the scenario.
func (n *Node) NewAgent(settings ...func(*worker.Config)) *Agent {
	t := n.t
	n.agents++
	a := &Agent{n: n, name: fmt.Sprintf("agent-%d", n.agents), ledger: bench.NewLedger()}
	config := worker.Config{Endpoint: n.Proxy.Endpoint(), Truth: n.Endpoint, Mode: worker.Evented, Check: true}
	for _, set := range settings {
		set(&config)
	}
	log, err := os.Create(filepath.Join(t.Dir, a.name+".log"))
	t.Check(err)
	defer log.Close()
	self, err := os.Executable()
	t.Check(err)
	cmd := exec.Command(cmp.Or(*another, self))
	cmd.Env = append(os.Environ(), envAgent+"=1")
	cmd.Stderr = log
	a.Child, err = child.Run(a.name, cmd)
	t.Check(err)
	ctx, cancel := context.WithTimeout(t.ctx, startLimit)
	defer cancel()
	_, err = child.Ask[worker.Hello](ctx, a.Calls, "Start", config)
	if err == nil && config.Truth != "" {
		err = child.Tell(ctx, a.Calls, "Probe", float64(workerRate))
	}
	if err != nil {
		a.Kill()
		t.Fatalf("the agent did not start (%v): %s", err, tailOf(log.Name()))
	}
	t.Cleanup(a.finish)
	t.Logf("%s started, pid %d: %+v", a.name, a.PID(), config)
	return a
}

// withoutWorkers leaves the pod workers out.
func withoutWorkers(c *worker.Config) { c.Truth = "" }

// stableAfter sets how long a stream lives to count as stable.
func stableAfter(d time.Duration) func(*worker.Config) {
	return func(c *worker.Config) { c.StableAfter = d }
}

// finish asks for violations and ends the agent. A killed agent has none to report.
func (a *Agent) finish() {
	if !a.Alive() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.n.t.ctx), startLimit)
	defer cancel()
	report, err := child.Ask[worker.Report](ctx, a.Calls, "Report", true)
	if err != nil {
		a.n.t.Errorf("%s: %v", a.name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.take(report.News)
	violations := append(report.Complaints, a.ledger.Complaints...)
	for _, violation := range violations {
		a.n.t.Errorf("%s: violation: %s", a.name, violation)
	}
	if report.StaleReads > len(report.Complaints) {
		a.n.t.Errorf("%s: %d violations", a.name, report.StaleReads)
	}
	a.n.t.Logf("%s at its end: %+v", a.name, report.Progress)
	if missed := report.Progress.Missed; missed > 0 {
		a.n.t.Figure(a.name+" missed", "%d", missed)
	}
	if err := a.Stop(startLimit); err != nil {
		a.n.t.Error(err)
	}
}

// take keeps the events of the news. The caller holds mu since the question.
func (a *Agent) take(n worker.News) {
	a.events = append(a.events, n.Deliveries...)
	for _, d := range n.Deliveries {
		a.ledger.Delivered(d)
	}
}

// Signal sends a signal, SIGSTOP and SIGCONT for instance.
func (a *Agent) Signal(s syscall.Signal) { a.n.t.Check(a.Process.Signal(s)) }

// Stats returns the state of the generator.
func (a *Agent) Stats() worker.Progress {
	a.mu.Lock()
	defer a.mu.Unlock()
	news := must[worker.News](a, "News", true)
	a.take(news)
	return news.Progress
}

// must returns an answer of the agent; an error ends the scenario.
func must[A any](a *Agent, method string, argument any) A {
	answer, err := child.Ask[A](a.n.t.ctx, a.Calls, method, argument)
	a.n.t.Check(err)
	return answer
}

// Cache returns the agent's cache, in the form of Truth: the pods of the run.
func (a *Agent) Cache() []bench.Pod { return a.n.bare(must[[]bench.Pod](a, "Cache", true)) }

// bare leaves out pods of others, and what two correct observers may differ in.
func (n *Node) bare(pods []bench.Pod) []bench.Pod {
	pods = slices.DeleteFunc(pods, func(p bench.Pod) bool { return !strings.HasPrefix(p.UID, n.UID("")) })
	for i := range pods {
		crikit.Bare(&pods[i])
	}
	return pods
}

// Events returns the agent's events so far.
func (a *Agent) Events() []bench.Delivery {
	a.Stats()
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.events)
}

// Newer asks the agent's cache for a status of the pod newer than now.
func (a *Agent) Newer(uid string) []bench.Pod {
	return []bench.Pod{must[worker.Newer](a, "Newer", uid).Pod}
}

// Waits returns the durations of the pod workers' questions compared so far.
func (a *Agent) Waits() []time.Duration { return must[worker.Report](a, "Report", true).Waits }

// Metrics returns the agent's metrics.
func (a *Agent) Metrics() map[string]float64 {
	metrics, err := worker.Metrics(a.n.t.ctx, a.Calls)
	a.n.t.Check(err)
	return metrics
}

// settle bounds the wait for a state, on a machine however slow.
const settle = 4 * time.Minute

// WaitState waits until the agent's stream is in the state.
func (a *Agent) WaitState(state pleg.StreamState) time.Duration {
	return a.n.t.Eventually(settle, a.name+" reaches "+state.String(), func() error {
		if now := a.Stats().State; now != state {
			return fmt.Errorf("the state is %s", now)
		}
		return nil
	})
}

// open returns the state of an open stream on this runtime.
func (n *Node) open() pleg.StreamState {
	if !n.Traits.Events {
		return pleg.StreamUnsupported
	}
	return pleg.StreamConnected
}

// WaitConnected waits until the agent hears the runtime's stream, or has found none.
func (a *Agent) WaitConnected() time.Duration { return a.WaitState(a.n.open()) }

// Converge waits until the agent's cache equals the runtime, and returns the duration.
func (a *Agent) Converge() time.Duration {
	took := a.n.t.Eventually(settle, a.name+"'s cache equals the runtime", func() error {
		truth, err := a.n.Truth(a.n.t.ctx)
		if err != nil {
			return err
		}
		if pods, lines := bench.Compare(a.Cache(), truth, 3); pods > 0 {
			return fmt.Errorf("%d pods differ, the first: %s", pods, strings.Join(lines, "; "))
		}
		return nil
	})
	a.n.t.converged = max(a.n.t.converged, took)
	return took
}

// WaitEvent waits for the event of the ID's state.
func (a *Agent) WaitEvent(state bench.State, id string) bench.Delivery {
	var found bench.Delivery
	a.n.t.Eventually(settle, fmt.Sprintf("%s delivers %s of %s", a.name, state, id), func() error {
		events := a.Events()
		i := slices.IndexFunc(events, func(e bench.Delivery) bool { return e.State == state && e.ID == id })
		if i < 0 {
			return fmt.Errorf("not among %d events", len(events))
		}
		found = events[i]
		return nil
	})
	return found
}

// since returns the time from a moment to a stamp of an event.
func since(from time.Time, at int64) time.Duration { return time.Duration(at - bench.Stamp(from)) }

func tailOf(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}
