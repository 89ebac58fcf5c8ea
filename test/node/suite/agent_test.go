// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/agent"
)

// An Agent is an agent's process and its client.
type Agent struct {
	*agent.Client

	n       *Node
	name    string
	process *os.Process
	ended   chan struct{}
}

// NewAgent starts an agent behind the proxy, with pod workers that compare with the runtime itself.
// Flags come on top and win. The agent stops with the scenario, and its violations then fail the
// scenario.
func (n *Node) NewAgent(flags ...string) *Agent {
	t := n.t
	n.agents++
	name := fmt.Sprintf("agent-%d", n.agents)
	args := append([]string{"--endpoint", n.Proxy.Endpoint(), "--truth", n.Endpoint, "--namespace", n.Namespace}, flags...)
	log, err := os.Create(filepath.Join(t.Dir, name+".log"))
	t.Check(err)
	defer log.Close()
	self, err := os.Executable()
	t.Check(err)
	cmd := exec.Command(cmp.Or(*another, self), args...)
	cmd.Env = append(os.Environ(), envAgent+"=1")
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.Check(n.target.Enter(cmd))
	stdin, err := cmd.StdinPipe()
	t.Check(err)
	out, in, err := os.Pipe() // not StdoutPipe, which Wait closes before the last answer is read
	t.Check(err)
	cmd.Stdout = in
	t.Check(cmd.Start())
	in.Close()
	a := &Agent{n: n, name: name, process: cmd.Process, ended: make(chan struct{})}
	a.Client = agent.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{out, stdin})
	go func() { // ends with the process
		defer close(a.ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		a.finish()
		a.Client.Close()
		out.Close()
	})
	if _, err := a.Stats(t.ctx); err != nil {
		t.Fatalf("the agent did not start (%v): %s", err, tailOf(log.Name()))
	}
	t.Logf("%s started, pid %d: %s", name, a.PID(), strings.Join(args, " "))
	return a
}

// PID is the process ID.
func (a *Agent) PID() int { return a.process.Pid }

func (a *Agent) alive() bool {
	select {
	case <-a.ended:
		return false
	default:
		return true
	}
}

// finish asks for violations and ends the agent. A killed agent has none to report.
func (a *Agent) finish() {
	if !a.alive() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.n.t.ctx), startLimit)
	defer cancel()
	a.reportViolations(ctx)
	if stats, err := a.Stats(ctx); err == nil {
		a.n.t.Logf("%s at its end: %+v", a.name, stats)
		if stats.Generator.Missed > 0 {
			a.n.t.Figure(a.name+" missed", "%d", stats.Generator.Missed)
		}
	}
	_ = a.process.Signal(syscall.SIGTERM)
	select {
	case <-a.ended:
	case <-ctx.Done():
		a.n.t.Errorf("%s did not end at SIGTERM", a.name)
		a.Kill()
	}
}

func (a *Agent) reportViolations(ctx context.Context) {
	violations, err := a.Violations(ctx)
	if err != nil {
		a.n.t.Errorf("%s: %v", a.name, err)
	}
	for i, violation := range violations {
		a.n.t.Logf("violation: %s", violation)
		if i < 5 {
			a.n.t.Errorf("%s: %s", a.name, violation)
		}
	}
}

// Kill is kill -9.
func (a *Agent) Kill() {
	_ = a.process.Kill()
	<-a.ended
}

// Signal sends a signal, SIGSTOP and SIGCONT for instance.
func (a *Agent) Signal(s syscall.Signal) { a.n.t.Check(a.process.Signal(s)) }

// MustStats returns Stats; an error ends the scenario.
func (a *Agent) MustStats() agent.Stats {
	stats, err := a.Stats(a.n.t.ctx)
	a.n.t.Check(err)
	return stats
}

// MustCache returns Cache; an error ends the scenario.
func (a *Agent) MustCache() []bench.Pod {
	pods, err := a.Cache(a.n.t.ctx)
	a.n.t.Check(err)
	return pods
}

// MustEvents returns the agent's events so far.
func (a *Agent) MustEvents() []agent.Event {
	events, err := a.Events(a.n.t.ctx)
	a.n.t.Check(err)
	return events
}

// settle bounds the wait for a state, on a machine however slow.
const settle = 4 * time.Minute

// WaitState waits until the agent's stream is in the state.
func (a *Agent) WaitState(state pleg.StreamState) time.Duration {
	return a.n.t.Eventually(settle, a.name+" reaches "+state.String(), func() error {
		stats, err := a.Stats(a.n.t.ctx)
		if err == nil && stats.State != state.String() {
			err = fmt.Errorf("the state is %s", stats.State)
		}
		return err
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
		held, err := a.Cache(a.n.t.ctx)
		if err != nil {
			return err
		}
		if pods, lines := bench.Compare(held, truth, 3); pods > 0 {
			return fmt.Errorf("%d pods differ, the first: %s", pods, strings.Join(lines, "; "))
		}
		return nil
	})
	a.n.t.converged = max(a.n.t.converged, took)
	return took
}

// WaitEvent waits for an event of the type for the ID.
func (a *Agent) WaitEvent(kind pleg.EventType, id string) agent.Event {
	var found agent.Event
	a.n.t.Eventually(settle, fmt.Sprintf("%s tells %s of %s", a.name, kind, id), func() error {
		events, err := a.Events(a.n.t.ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Type == kind && e.ID == id {
				found = e
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(events))
	})
	return found
}

func tailOf(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}
