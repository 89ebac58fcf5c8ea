// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"io"
	"net/rpc"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

// An Event is a lifecycle event from Watch.
type Event struct {
	Pod, ID, Kind, Cause string
	Type                 pleg.EventType
	Stamp                time.Time // the runtime's created_at
	Seen                 time.Time // when the generator learned of the change
	At                   time.Time // the consumer's time of reading, by the machine's clock
	FinishedAt           time.Time // the container's, in the cache at the moment
}

// Stats is the agent's own state.
type Stats struct {
	Generator pleg.Stats
	State     string // Generator.State
	Workers   WorkerStats
	// Events is how many the consumer has read from Watch.
	Events, Violations int
}

// WorkerStats is the measurements of the simulated pod workers.
type WorkerStats struct {
	Workers int // alive
	// Gets counts answers of GetNewerThan, Checked those compared with the runtime's lists.
	Gets, Checked int
	// Waits are the durations of GetNewerThan while the runtime answered before and after.
	Waits bench.Quantiles
}

// A Newer is the answer of GetNewerThan for the present moment.
type Newer struct {
	Pod bench.Pod
	Err string
}

// service is the calls of a test. Each method is a net/rpc method called by name from [Client].
type service struct {
	a   *Agent
	ctx context.Context
}

// Cache returns the cache in the form of tests: pods of the agent's namespace.
func (s *service) Cache(_ bool, pods *[]bench.Pod) error {
	for _, uid := range s.a.cache.UIDs() {
		status, _ := s.a.cache.Get(uid)
		if s.a.config.Namespace == "" || status.Namespace() == s.a.config.Namespace {
			*pods = append(*pods, show(uid, status))
		}
	}
	return nil
}

// Stats returns the agent's counters.
func (s *service) Stats(_ bool, stats *Stats) error {
	g := s.a.generator.Stats()
	_, violations, events := s.a.observer.said()
	*stats = Stats{Generator: g, State: g.State.String(), Workers: s.a.workers.snapshot(), Events: events, Violations: violations}
	return nil
}

// Violations returns the violations so far.
func (s *service) Violations(_ bool, violations *[]string) error {
	*violations, _, _ = s.a.observer.said()
	return nil
}

// Events returns the events so far.
func (s *service) Events(_ bool, events *[]Event) error {
	*events = s.a.observer.all()
	return nil
}

// Health returns the generator's health as the call's error.
func (s *service) Health(_ bool, _ *bool) error { return s.a.generator.Health() }

// Newer asks the cache for a status of the pod newer than now.
func (s *service) Newer(uid string, newer *Newer) error {
	status, err := s.a.cache.GetNewerThan(s.ctx, cache.UID(uid), time.Now())
	newer.Pod = show(cache.UID(uid), status)
	if err != nil {
		newer.Err = err.Error()
	}
	return nil
}

// StepClock sets the wall clock to the machine's plus the step.
func (s *service) StepClock(step time.Duration, _ *bool) error {
	s.a.step.Store(int64(step))
	return nil
}

// Consume stops or resumes the consumer of Watch.
func (s *service) Consume(read bool, _ *bool) error {
	if read {
		<-s.a.consumer
	} else {
		s.a.consumer <- struct{}{}
	}
	return nil
}

// ResetWorkers clears the measurements of the pod workers. Violations stay.
func (s *service) ResetWorkers(_ bool, _ *bool) error {
	s.a.workers.reset()
	return nil
}

// Metrics returns the metrics in the text format.
func (s *service) Metrics(_ bool, text *[]byte) error {
	families, err := s.a.registry.Gather()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
			return err
		}
	}
	*text = out.Bytes()
	return nil
}

// show is bare like crikit's Truth.
func show(uid cache.UID, status *cri.PodStatus) bench.Pod {
	pod := worker.Show(uid, status, nil)
	crikit.Bare(&pod)
	return pod
}

// A Client calls an agent. Clients are safe for concurrent use.
type Client struct{ rpc *rpc.Client }

// NewClient calls the agent at the other end of the connection.
func NewClient(conn io.ReadWriteCloser) *Client { return &Client{rpc.NewClient(conn)} }

// Close ends the connection, and so the agent.
func (c *Client) Close() error { return c.rpc.Close() }

func call[A any](ctx context.Context, c *Client, method string, argument any) (answer A, err error) {
	done := c.rpc.Go("Agent."+method, argument, &answer, make(chan *rpc.Call, 1)).Done
	select {
	case made := <-done:
		return answer, made.Error
	case <-ctx.Done():
		var none A // answer may still be written
		return none, context.Cause(ctx)
	}
}

// Cache returns the content of the agent's cache.
func (c *Client) Cache(ctx context.Context) ([]bench.Pod, error) {
	return call[[]bench.Pod](ctx, c, "Cache", false)
}

// Events returns the agent's events so far.
func (c *Client) Events(ctx context.Context) ([]Event, error) {
	return call[[]Event](ctx, c, "Events", false)
}

// Stats returns the agent's counters.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	return call[Stats](ctx, c, "Stats", false)
}

// Violations returns the violations recorded so far.
func (c *Client) Violations(ctx context.Context) ([]string, error) {
	return call[[]string](ctx, c, "Violations", false)
}

// Newer asks the agent's cache for a status newer than the present moment.
func (c *Client) Newer(ctx context.Context, uid string) (Newer, error) {
	return call[Newer](ctx, c, "Newer", uid)
}

// Health returns nil if the generator is healthy.
func (c *Client) Health(ctx context.Context) error {
	_, err := call[bool](ctx, c, "Health", false)
	return err
}

// Metrics returns the metrics as [bench.Scrape] does.
func (c *Client) Metrics(ctx context.Context) (map[string]float64, error) {
	text, err := call[[]byte](ctx, c, "Metrics", false)
	return bench.Scrape(text), err
}

// StepClock sets the agent's wall clock to the real clock plus the step.
func (c *Client) StepClock(ctx context.Context, step time.Duration) error {
	_, err := call[bool](ctx, c, "StepClock", step)
	return err
}

// Consume stops or resumes the agent's reading of Watch.
func (c *Client) Consume(ctx context.Context, read bool) error {
	_, err := call[bool](ctx, c, "Consume", read)
	return err
}

// ResetWorkers clears the measurements of the pod workers.
func (c *Client) ResetWorkers(ctx context.Context) error {
	_, err := call[bool](ctx, c, "ResetWorkers", false)
	return err
}
