// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package eventsbench

import (
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// meter counts requests as they leave the process, and samples its size.
type meter struct {
	calls, failed, emitted atomic.Int64
	underway               atomic.Int64 // requests without an answer yet
	last                   atomic.Int64 // time of the last request or answer, UnixNano
	phase                  atomic.Pointer[string]

	mu        sync.Mutex // guards what follows
	methods   map[string]int64
	perSecond map[int64]int64
	peakHeap  uint64
	peakGor   int
}

func newMeter() *meter {
	m := &meter{methods: map[string]int64{}, perSecond: map[int64]int64{}}
	m.enter("load")
	return m
}

func (m *meter) enter(phase string) { m.phase.Store(&phase) }

// wrap counts the requests of a transport.
func (m *meter) wrap(next http.RoundTripper) http.RoundTripper { return counting{m, next} }

type counting struct {
	m    *meter
	next http.RoundTripper
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	now := time.Now()
	c.m.calls.Add(1)
	c.m.last.Store(now.UnixNano())
	c.m.mu.Lock()
	c.m.methods[r.Method]++
	c.m.perSecond[now.Unix()]++
	c.m.mu.Unlock()
	c.m.underway.Add(1)
	resp, err := c.next.RoundTrip(r)
	c.m.underway.Add(-1)
	c.m.last.Store(time.Now().UnixNano())
	if err != nil || resp.StatusCode >= 400 {
		c.m.failed.Add(1)
	}
	return resp, err
}

// sample notes the size of the process until stop is closed, and tells of the progress once a second.
func (m *meter) sample(stop <-chan struct{}, begin time.Time, progress func(Progress)) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 1; ; n++ {
		m.look()
		if n%10 == 0 {
			progress(Progress{Elapsed: time.Since(begin), Emitted: m.emitted.Load(), Calls: m.calls.Load(), Phase: *m.phase.Load()})
		}
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

func (m *meter) look() {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	g := runtime.NumGoroutine()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peakHeap = max(m.peakHeap, mem.HeapInuse+mem.StackInuse)
	m.peakGor = max(m.peakGor, g)
}
