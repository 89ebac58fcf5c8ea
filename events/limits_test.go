// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

func TestTenThousandDistinct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		r := newRig(t, server, nil)
		const n = 10_000
		for i := range n {
			r.pod(fmt.Sprint("p", i), 1)
		}
		pass(time.Minute)
		if got := len(server.Events()); got != n {
			t.Errorf("%d events are stored, want %d", got, n)
		}
		r.wantBooks(0, 0)
		if s := r.Stats(); s.Series > DefaultMaxSeries {
			t.Errorf("%d series in the table", s.Series)
		}
	})
}

func TestDistinctStormWhileTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		server.SetFault(during(time.Minute, errAway))
		r := newRig(t, server, func(o *Options) { o.MaxQueue, o.MaxSeries = 1000, 200 })
		const n = 20_000
		before := runtime.NumGoroutine()
		for i := range n {
			r.pod(fmt.Sprint("p", i), 2)
		}
		if grown := runtime.NumGoroutine() - before; grown > 0 {
			t.Errorf("%d more goroutines", grown)
		}
		if s := r.Stats(); s.Series != 1000 {
			t.Errorf("%d series are held", s.Series)
		}
		pass(10 * time.Minute)
		if got := len(server.Events()); got != 1000 {
			t.Errorf("%d events are stored, want 1000", got)
		}
		for i, e := range server.Events() {
			if want := fmt.Sprint("p", i); e.Regarding.Name != want || e.Series == nil || e.Series.Count != 2 {
				t.Fatalf("event %d is about %s and says %s", i, e.Regarding.Name, told(&e))
			}
		}
		r.wantBooks(2*(n-1000), 0)
		if s := r.Stats(); s.Dropped[DropQueueFull] != 2*(n-1000) {
			t.Errorf("dropped: %v", s.Dropped)
		}
	})
}

// TestEviction: more live series than the table holds; each that has to go is flushed first, and comes back with its count.
func TestEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		r := newRig(t, server, func(o *Options) { o.MaxSeries = 10 })
		const pods, rounds = 30, 8
		for range rounds {
			for i := range pods {
				r.pod(fmt.Sprint("p", i), 2)
				pass(time.Second)
			}
			if s := r.Stats(); s.Series > 12 {
				t.Fatalf("%d series in a table of 10", s.Series)
			}
		}
		pass(7 * time.Minute)
		all := server.Events()
		if len(all) != pods {
			t.Fatalf("%d events, want %d", len(all), pods)
		}
		for _, e := range all {
			if e.Series == nil || e.Series.Count != 2*rounds {
				t.Errorf("%s says %s, want ×%d", e.Name, told(&e), 2*rounds)
			}
		}
		r.wantBooks(0, 0)
	})
}

func TestEvictedSeriesThatNeverComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		r := newRig(t, server, func(o *Options) { o.MaxSeries = 1 })
		r.pod("a", 5)
		settle(r)
		r.pod("a", 5)
		r.pod("b", 1)
		settle(r)
		if e := server.Events()[0]; told(&e) != "Unknown ×10" {
			t.Errorf("it says %s", told(&e))
		}
	})
}

func TestRateLimitPerObjectAndReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		r := newRig(t, server, nil)
		emit := func(reason string, n int) {
			for i := range n {
				ref := podRef("a")
				ref.FieldPath = fmt.Sprintf("spec.containers{c%d}", i)
				r.rec.Eventf(ref, nil, corev1.EventTypeNormal, reason, "A", "")
			}
		}
		emit("Noisy", 40)
		emit("Quiet", 1) // client-go's filter has no reason in its key: this one would be lost
		pass(time.Second)
		if n := len(server.Events()); n != 26 {
			t.Errorf("%d events, want 25 and one", n)
		}
		if s := r.Stats(); s.Dropped[DropRateLimited] != 15 {
			t.Errorf("dropped: %v", s.Dropped)
		}
		pass(10 * time.Minute)
		emit("Noisy", 40)
		pass(time.Second)
		if n := len(server.Events()); n != 28 {
			t.Errorf("%d events after ten minutes, want two more", n)
		}
	})
}

func TestRateLimitSparesActiveSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		r := newRig(t, server, func(o *Options) { o.Burst = 1 })
		r.pod("a", 1000)
		pass(6 * time.Minute)
		r.wantTold("Finished ×1000")
		r.wantBooks(0, 0)
	})
}

func TestObjectCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		r := newRig(t, server, nil)
		for i := range 150 {
			r.rec.Eventf(podRef("a"), nil, corev1.EventTypeNormal, reasonOf(i), "A", "")
		}
		r.pod("b", 1)
		pass(time.Second)
		if n := len(server.Events()); n != DefaultMaxPerObject+1 {
			t.Errorf("%d events", n)
		}
		if s := r.Stats(); s.Dropped[DropObjectCap] != 50 {
			t.Errorf("dropped: %v", s.Dropped)
		}
		pass(6 * time.Minute) // the cap is on what is live
		r.rec.Eventf(podRef("a"), nil, corev1.EventTypeNormal, "Later", "A", "")
		settle(r)
		if n := len(server.Events()); n != DefaultMaxPerObject+2 {
			t.Errorf("%d events later", n)
		}
	})
}

func TestLimiterIsBounded(t *testing.T) {
	l := newLimiter(2, time.Minute, 100)
	now := time.Now()
	for i := range 10_000 {
		k := bucketKey{reason: fmt.Sprint(i)}
		for _, want := range []bool{true, true, false} {
			if l.allow(k, now) != want {
				t.Fatal("a bucket of two did not give two")
			}
		}
		if len(l.buckets) > 100 {
			t.Fatalf("%d buckets", len(l.buckets))
		}
	}
	k := bucketKey{reason: "9999"}
	if l.allow(k, now.Add(59*time.Second)) || !l.allow(k, now.Add(61*time.Second)) {
		t.Error("the bucket does not fill at one a minute")
	}
}

func TestTableIsEmptyInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		r := newRig(t, server, nil)
		for i := range 500 {
			r.pod(fmt.Sprint("p", i), 1+i%3)
		}
		pass(13 * time.Minute)
		b := r.Broadcaster
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.tab.all != 0 || b.tab.pending != 0 || len(b.tab.byKey) != 0 || len(b.tab.objects) != 0 || len(b.tab.timers) != 0 || b.tab.aged.len != 0 || b.tab.queue.len != 0 {
			t.Errorf("left: all %d, pending %d, keys %d, objects %d, timers %d, aged %d, queue %d", b.tab.all, b.tab.pending, len(b.tab.byKey),
				len(b.tab.objects), len(b.tab.timers), b.tab.aged.len, b.tab.queue.len)
		}
	})
}
