// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestEventsThatAreSwitchedOff: a runtime that was connected and now ends every stream in order at
// once is restarting for some seconds, and after that has no events. A wire that was frozen while a
// stream was being opened makes a runtime without events look like that.
func TestEventsThatAreSwitchedOff(t *testing.T) {
	for _, tc := range []struct {
		name  string
		off   time.Duration
		notes int
		state StreamState
	}{
		{"for a restart", 5 * time.Second, 0, StreamConnected},
		{"for good", 5 * time.Minute, 1, StreamUnsupported},
	} {
		t.Run(tc.name, func(t *testing.T) {
			recorder := &notes{}
			inBubble(t, func(c *Config[status], _ *toyRuntime) { c.Recorder = recorder }, func(b *bed) {
				time.Sleep(2 * time.Minute)
				set := func(refuse error) {
					b.toy.mu.Lock()
					defer b.toy.mu.Unlock()
					b.toy.refuse, b.toy.endErr = refuse, io.EOF
				}
				set(io.EOF)
				b.toy.cutStreams()
				time.Sleep(tc.off)
				if tc.state == StreamConnected {
					set(nil)
					time.Sleep(10 * time.Second)
				}
				if s := b.gen.Stats(); s.State != tc.state {
					t.Errorf("the stream is %v, want %v", s.State, tc.state)
				}
				if n := recorder.count(ReasonStreamUnsupported); n != tc.notes {
					t.Errorf("told %d times that there are no events, want %d", n, tc.notes)
				}
			})
		})
	}
}

// TestListsThatFlap: lists that fail now and then are no reason to open a stream that cannot be
// opened more often than they work again.
func TestListsThatFlap(t *testing.T) {
	away := errors.New("nobody listens")
	inBubble(t, func(_ *Config[status], toy *toyRuntime) { toy.refuse = away }, func(b *bed) {
		const flaps = 30
		for range flaps {
			for _, err := range []error{away, nil} {
				b.toy.mu.Lock()
				b.toy.listErr = err
				b.toy.mu.Unlock()
				time.Sleep(2 * time.Second)
			}
		}
		// At once, at once, and after a second and two, in each flap and once before the first.
		if s := b.gen.Stats(); s.ConnectErrors > 4*(flaps+1) {
			t.Errorf("the stream was opened %d times in %d flaps", s.ConnectErrors, flaps)
		}
	})
}

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
	recorder := &notes{}
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
		if n := recorder.count(ReasonStreamLost) + recorder.count(ReasonEventsMissed); n != 0 {
			t.Errorf("the stream is blamed %d times", n)
		}
	})
}
