// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// timings is a Metrics that sums durations by name.
type timings struct {
	mu    sync.Mutex // guards the fields below
	sum   map[string]time.Duration
	count map[string]int
}

func (m *timings) Add(string, int) {}

func (m *timings) Observe(name string, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sum == nil {
		m.sum, m.count = make(map[string]time.Duration), make(map[string]int)
	}
	m.sum[name] += d
	m.count[name]++
}

// TestStampsThatTellNoLatency: a stamp from before the stream was opened, or from the future, is a
// replay's and no latency.
func TestStampsThatTellNoLatency(t *testing.T) {
	m := &timings{}
	inBubble(t, func(c *Config[status], toy *toyRuntime) {
		c.Metrics = m
		toy.set("p", Container, "c", PhaseRunning)
	}, func(b *bed) {
		opened := time.Now()
		time.Sleep(time.Minute)
		for _, at := range []time.Time{time.Unix(0, 1), opened.Add(-time.Second), time.Now().Add(time.Hour), time.Now().Add(1), time.Now().Add(-3 * time.Second), {}} {
			b.toy.replay(Claim[status]{Pod: "p", Item: Item{ID: "c", Phase: PhaseRunning}, CreatedAt: at})
		}
		synctest.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.count[MetricLatency] != 1 || m.sum[MetricLatency] != 3*time.Second {
			t.Errorf("%d latencies of %v in all, want one of 3s", m.count[MetricLatency], m.sum[MetricLatency])
		}
		if s := b.gen.Stats(); s.ReplayedClaims != 4 {
			t.Errorf("%d replays, want 4", s.ReplayedClaims)
		}
	})
}

// TestAnIDInTwoPods: a runtime that shows an ID as a sandbox of one pod and as a container of
// another does not have its stream blamed.
func TestAnIDInTwoPods(t *testing.T) {
	recorder := &reportLog{}
	inBubble(t, func(c *Config[status], toy *toyRuntime) {
		c.Recorder = recorder
		toy.set("p", Sandbox, "x", PhaseRunning)
		toy.set("q", Sandbox, "s", PhaseRunning)
	}, func(b *bed) {
		time.Sleep(time.Minute)
		b.toy.set("q", Container, "x", PhaseRunning)
		time.Sleep(10 * time.Minute)
		s := b.gen.Stats()
		if s.State != StreamConnected || s.Reconnects != 0 || s.Missed != 0 {
			t.Errorf("%+v", s)
		}
		if n := len(recorder.of(ReasonStreamLost)) + len(recorder.of(ReasonEventsMissed)); n != 0 {
			t.Errorf("the stream is blamed %d times", n)
		}
	})
}
