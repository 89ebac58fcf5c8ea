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
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// An Agent is an agent's process, with the events of its Watch. It belongs to its scenario's
// goroutine.
type Agent struct {
	*child.Child

	t      *T
	name   string
	config worker.Config
	events []bench.Delivery
	killed bool // by the scenario
}

// workerRate is how often the pod workers of an agent ask for a newer status, a second.
const workerRate = 20

// NewAgent starts an agent behind the proxy, with pod workers that compare with the runtime itself.
// The agent stops with the scenario, which then gets its figures and fails by its violations.
func (t *T) NewAgent(settings ...func(*worker.Config)) *Agent {
	t.agents++
	a := &Agent{
		t:    t,
		name: fmt.Sprintf("agent-%d", t.agents),
		config: worker.Config{
			Endpoint: t.Proxy.Endpoint(),
			Truth:    t.Endpoint,
			Mode:     worker.Evented,
			Check:    true,
		},
	}
	for _, set := range settings {
		set(&a.config)
	}
	log := testkit.Must(os.Create(filepath.Join(t.Dir, a.name+".log")))(t)
	defer log.Close()
	self := testkit.Must(os.Executable())(t)
	cmd := exec.Command(cmp.Or(*another, self))
	cmd.Env = append(os.Environ(), envAgent+"=1")
	cmd.Stderr = log
	a.Child = testkit.Must(child.Run(a.name, cmd))(t)
	ctx, cancel := run.clock.WithTimeout(t.ctx, startLimit)
	defer cancel()
	_, err := child.Ask[worker.Hello](ctx, a.Calls, "Start", a.config)
	if err == nil && a.config.Truth != "" {
		err = child.Tell(ctx, a.Calls, "Probe", float64(workerRate))
	}
	if err != nil {
		a.Kill()
		t.Fatalf("the agent did not start (%v): %s", err, a.lastWords())
	}
	t.Cleanup(a.finish)
	t.Logf("%s started, pid %d: %+v", a.name, a.PID(), a.config)
	return a
}

// Connect starts an agent and waits until its stream is open.
func (t *T) Connect(settings ...func(*worker.Config)) *Agent {
	a := t.NewAgent(settings...)
	a.WaitConnected()
	return a
}

// withoutWorkers leaves the pod workers out.
func withoutWorkers(c *worker.Config) { c.Truth = "" }

// stableAfter sets how long a stream lives to count as stable.
func stableAfter(d time.Duration) func(*worker.Config) {
	return func(c *worker.Config) { c.StableAfter = d }
}

// Kill kills the agent like kill -9, and waits for its end.
func (a *Agent) Kill() {
	a.killed = true
	a.Child.Kill()
}

// crash matches the beginning of what Go's runtime says when it ends a program.
var crash = regexp.MustCompile(`(?m)^(panic: |fatal error: |SIG[A-Z]+: )`)

// lastWords returns the beginning of the crash in the agent's log, or the end of the log.
func (a *Agent) lastWords() []byte {
	const most = 2000
	text, _ := os.ReadFile(filepath.Join(a.t.Dir, a.name+".log")) // or nothing
	if at := crash.FindIndex(text); at != nil {
		return text[at[0]:min(len(text), at[0]+most)]
	}
	return text[max(0, len(text)-most):]
}

// finish asks for figures and violations, and ends the agent. A killed agent has none to report.
func (a *Agent) finish() {
	if a.killed {
		return
	}
	if !a.Alive() {
		a.t.Errorf("%s ended by itself (%v), want it to live until the scenario ends; its log:\n%s",
			a.name, a.Err(), a.lastWords())
		return
	}
	ctx, cancel := run.clock.WithTimeout(context.WithoutCancel(a.t.ctx), startLimit)
	defer cancel()
	report, err := child.Ask[worker.Report](ctx, a.Calls, "Report", true)
	if err != nil {
		a.t.Errorf("%s: %v", a.name, err)
	}
	a.take(report.News)
	for _, violation := range report.Complaints {
		a.t.Errorf("%s: violation: %s", a.name, violation)
	}
	if report.StaleReads > len(report.Complaints) {
		a.t.Errorf("%s: %d violations", a.name, report.StaleReads)
	}
	a.t.Logf("%s at its end: %+v", a.name, report.Progress)
	a.figures(report)
	if err := a.Stop(startLimit); err != nil {
		a.t.Error(err)
	}
}

// manyEvents is a number of events during which pod workers have pods to ask about.
const manyEvents = 50

// figures records the latencies of the events: from the runtime's stamp to Watch, with the
// generator's share from learning of the change; the runtime's share from a container's end to its
// stamp. It records the waits of the pod workers, whose answers must have been compared during many
// events.
func (a *Agent) figures(report worker.Report) {
	var stamped, own, runtime []time.Duration
	for _, e := range a.events {
		own = append(own, time.Duration(e.At-e.Seen))
		if e.Stamp != 0 {
			stamped = append(stamped, time.Duration(e.At-e.Stamp))
			if e.State() == pleg.PhaseExited && e.FinishedAt != 0 {
				runtime = append(runtime, time.Duration(e.Stamp-e.FinishedAt))
			}
		}
	}
	a.figure("created_at→Watch", "%s", quantiles(stamped))
	a.figure("learned→Watch", "%s", quantiles(own))
	a.figure("finished_at→created_at", "%s", quantiles(runtime))
	a.figure("events", "%d", len(a.events))
	a.figure("missed", "%d", report.Progress.Missed)
	if a.config.Truth == "" {
		return
	}
	a.figure("GetNewerThan", "%s", quantiles(report.Waits))
	if len(report.Waits) == 0 && len(a.events) > manyEvents {
		a.t.Errorf("%s: no answer of GetNewerThan could be compared with the runtime", a.name)
	}
}

// figure records a figure of the agent, by its name beside others.
func (a *Agent) figure(name, format string, args ...any) {
	if a.t.agents > 1 {
		name = a.name + " " + name
	}
	a.t.Figure(name, format, args...)
}

// take keeps the events of the news.
func (a *Agent) take(n worker.News) {
	a.events = append(a.events, n.Deliveries...)
}

// Signal sends a signal, SIGSTOP and SIGCONT for instance.
func (a *Agent) Signal(s syscall.Signal) { a.t.Check(a.Process.Signal(s)) }

// Stats returns the state of the generator.
func (a *Agent) Stats() worker.Progress {
	news := must[worker.News](a, "News", true)
	a.take(news)
	return news.Progress
}

// must returns an answer of the agent; an error ends the scenario.
func must[A any](a *Agent, method string, argument any) A {
	answer := testkit.Must(child.Ask[A](a.t.ctx, a.Calls, method, argument))(a.t)
	return answer
}

// Cache returns the agent's cache, in the form of Truth: the pods of the run.
func (a *Agent) Cache() []bench.Pod {
	pods := slices.DeleteFunc(
		must[[]bench.Pod](a, "Cache", true),
		func(p bench.Pod) bool { return !strings.HasPrefix(p.UID, a.t.UID("")) },
	)
	for i := range pods {
		crikit.Bare(&pods[i])
	}
	return pods
}

// Empty waits until the cache equals the runtime without pods.
func (a *Agent) Empty() {
	a.Converge()
	if held := a.Cache(); len(held) != 0 {
		a.t.Errorf("every pod is gone, and the cache of %s holds %v", a.name, held)
	}
}

// Events returns the agent's events so far.
func (a *Agent) Events() []bench.Delivery {
	a.Stats()
	return slices.Clone(a.events)
}

// types counts the events of an ID by state.
func types(events []bench.Delivery, id string) map[pleg.Phase]int {
	count := map[pleg.Phase]int{}
	for _, e := range events {
		if e.ID == id {
			count[e.State()]++
		}
	}
	return count
}

// Whole demands a whole life of each ID: one Died, one Removed and at most one Started.
func (a *Agent) Whole(ids ...string) {
	events := a.Events()
	for _, id := range ids {
		if count := types(events, id); count[pleg.PhaseExited] != 1 || count[pleg.PhaseRemoved] != 1 || count[pleg.PhaseRunning] > 1 {
			a.t.Errorf("%s: events %v, want one Died, one Removed and at most one Started", id, count)
		}
	}
}

// Newer demands a running ID from the cache's answer to the question for a status newer than now.
func (a *Agent) Newer(uid, id string) {
	newer := []bench.Pod{must[worker.Newer](a, "Newer", uid).Pod}
	if bench.Find(newer, uid, id).State != pleg.PhaseRunning {
		a.t.Errorf("asked after %s ran, the cache answers %v", id, newer)
	}
}

// Waits returns the durations of the pod workers' questions compared so far.
func (a *Agent) Waits() []time.Duration { return must[worker.Report](a, "Report", true).Waits }

// Metrics returns the agent's metrics.
func (a *Agent) Metrics() map[string]float64 {
	metrics := testkit.Must(worker.Metrics(a.t.ctx, a.Calls))(a.t)
	return metrics
}

// Until waits until the agent's state is right.
func (a *Agent) Until(what string, right func(worker.Progress) bool) time.Duration {
	return a.t.Eventually(a.name+": "+what, func() error {
		if now := a.Stats(); !right(now) {
			return fmt.Errorf("its state is %+v", now)
		}
		return nil
	})
}

// WaitState waits until the agent's stream is in the state.
func (a *Agent) WaitState(state pleg.StreamState) {
	a.Until("the stream is "+state.String(), func(now worker.Progress) bool { return now.State == state })
}

// WaitConnected waits until the agent hears the runtime's stream, or has found none.
func (a *Agent) WaitConnected() {
	if a.t.Traits.Events {
		a.WaitState(pleg.StreamConnected)
	} else {
		a.WaitState(pleg.StreamUnsupported)
	}
}

// waitErrors waits until the agent counts that many failed connections.
func (a *Agent) waitErrors(count int) {
	a.Until(
		fmt.Sprintf("%d failed connections", count),
		func(now worker.Progress) bool { return now.ConnectErrors >= count },
	)
}

// waitPeriod waits until quiet has earned the agent a relist period of at least d.
func (a *Agent) waitPeriod(d time.Duration) {
	if a.t.Traits.Events { // else polling goes on
		a.Until(
			fmt.Sprintf("the relist period reaches %v", d),
			func(now worker.Progress) bool { return now.RelistPeriod >= d },
		)
	}
}

// Converge waits until the agent's cache equals the runtime, and returns the duration.
func (a *Agent) Converge() time.Duration {
	took := a.t.Eventually(a.name+"'s cache equals the runtime", func() error {
		truth, err := a.t.Truth(a.t.ctx)
		if err != nil {
			return err
		}
		if pods, lines := bench.Compare(a.Cache(), truth, 3); pods > 0 {
			return fmt.Errorf("%d pods differ, the first: %s", pods, strings.Join(lines, "; "))
		}
		return nil
	})
	a.t.converged = max(a.t.converged, took)
	return took
}

// WaitEvent waits for the event of the ID's state.
func (a *Agent) WaitEvent(state pleg.Phase, id string) (found bench.Delivery) {
	a.t.Eventually(fmt.Sprintf("%s delivers %s of %s", a.name, state, id), func() error {
		events := a.Events()
		i := slices.IndexFunc(events, func(e bench.Delivery) bool { return e.State() == state && e.ID == id })
		if i < 0 {
			return fmt.Errorf("not among %d events", len(events))
		}
		found = events[i]
		return nil
	})
	return found
}

// noneMissed fails the scenario if the agent counts more events as missed than came late. An event
// later than the agent's grace of 2 s is rightly counted, so a machine with events of a second gets
// a figure instead.
func (a *Agent) noneMissed(missed int, during string) {
	if missed == 0 {
		return
	}
	metrics := a.Metrics()
	late := int(metrics[worker.MetricLatency+"_count"] - metrics[worker.MetricLatency+`_bucket{le="1"}`])
	if missed > late {
		a.t.Errorf("%s%s: %d events counted as missed, and %d came later than 1 s: want the others heard",
			a.name, during, missed, late)
	}
	a.t.Figure("missed"+during, "%d, with %d events later than 1 s", missed, late)
}

// since returns the time from a moment to a stamp of an event.
func since(from time.Time, at int64) time.Duration { return time.Duration(at - bench.Stamp(from)) }

// quantiles returns p50, p99 and the largest of the samples.
func quantiles(samples []time.Duration) string {
	q := bench.Summarize(slices.Clone(samples))
	return fmt.Sprintf("%s/%s/%s (n=%d)", bench.Short(q.P50), bench.Short(q.P99), bench.Short(q.Max), q.Count)
}
