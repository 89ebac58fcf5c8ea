// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

func TestDistinctStormWhileTheServerIsAway(t *testing.T) {
	bubble(t, func(o *Options) { o.MaxQueue, o.MaxSeries, o.Writers = 1000, 200, 1 }, func(t *testing.T, r *rig) {
		r.server.SetFault(during(time.Minute, errAway))
		synctest.Wait()
		const n = 20_000
		before := runtime.NumGoroutine()
		r.pods(n, 2)
		if grown := runtime.NumGoroutine() - before; grown > 0 {
			t.Errorf("%d more goroutines", grown)
		}
		if s := r.Stats(); s.Series != 1000 {
			t.Errorf("%d series are held", s.Series)
		}
		pass(10 * time.Minute)
		if got := len(r.server.Events()); got != 1000 {
			t.Errorf("%d events are stored, want 1000", got)
		}
		for i, e := range r.server.Events() {
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

// TestEviction: with more live series than the table holds, each evicted series is flushed first
// and returns with its count, if ever.
func TestEviction(t *testing.T) {
	bubble(t, func(o *Options) { o.MaxSeries = 10 }, func(t *testing.T, r *rig) {
		const pods, rounds = 29, 8 // with the one more, as many as the table and its memory of evicted series hold
		r.pod("once", 10)
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
		r.wantAbout("once", "Unknown ×10")
		all := r.server.Events()
		if len(all) != pods+1 {
			t.Fatalf("%d events, want %d", len(all), pods+1)
		}
		for _, e := range all {
			if e.Regarding.Name != "once" && (e.Series == nil || e.Series.Count != 2*rounds) {
				t.Errorf("%s says %s, want ×%d", e.Name, told(&e), 2*rounds)
			}
		}
		r.wantBooks(0, 0)
	})
}

func TestRateLimitPerObjectAndReason(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
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
		r.wantStored(27) // 25, the others together, and the quiet one
		pass(10 * time.Minute)
		emit("Noisy", 40)
		pass(7 * time.Minute)
		r.wantStored(30)
		if count, _ := stored(r.server); count != 81 {
			t.Errorf("%d of 81 are stored", count)
		}
		r.wantBooks(0, 0)
	})
}

// TestTokensOfEvictedSeries: an evicted series that is over begins anew like others: with a token,
// or combined.
func TestTokensOfEvictedSeries(t *testing.T) {
	bubble(t, func(o *Options) { o.MaxSeries, o.Burst = 10, 3 }, func(t *testing.T, r *rig) {
		noisy := func() {
			for i := range 3 {
				ref := podRef("a")
				ref.FieldPath = fmt.Sprintf("spec.containers{c%d}", i)
				r.rec.Eventf(ref, nil, corev1.EventTypeNormal, "Noisy", "A", "")
				pass(time.Second)
			}
		}
		noisy()
		r.pods(10, 1) // push them out
		pass(7 * time.Minute)
		noisy() // with one token
		r.wantAbout("a", "single, single, single, single, Ongoing ×2")
		r.wantBooks(0, 0)
	})
}

func TestObjectCap(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		for i := range 150 {
			r.rec.Eventf(podRef("a"), nil, corev1.EventTypeNormal, reasonOf(i), "A", "")
		}
		r.pod("b", 1)
		pass(time.Second)
		r.wantStored(defaultMaxPerObject + 1)
		if s := r.Stats(); s.Dropped[DropObjectCap] != 50 {
			t.Errorf("dropped: %v", s.Dropped)
		}
		pass(6 * time.Minute) // the cap is on what is live
		r.rec.Eventf(podRef("a"), nil, corev1.EventTypeNormal, "Later", "A", "")
		synctest.Wait()
		r.wantStored(defaultMaxPerObject + 2)
	})
}

func TestLimiterIsBounded(t *testing.T) {
	l := limiter{burst: 2, size: 100, full: map[uint64]time.Time{}}
	now := time.Now()
	for k := range uint64(10_000) {
		for _, want := range []bool{true, true, false} {
			if l.allow(k, now) != want {
				t.Fatal("a bucket of two did not give two")
			}
		}
		if len(l.full) > 100 {
			t.Fatalf("%d buckets", len(l.full))
		}
	}
	if l.allow(9999, now.Add(refill-time.Second)) || !l.allow(9999, now.Add(refill+time.Second)) {
		t.Error("the bucket does not fill in time")
	}
}

// TestKeysOfOneHash: keys never share a series, whatever their hashes.
func TestKeysOfOneHash(t *testing.T) {
	r := idleRig(t, eventstest.NewServer(), nil)
	emit := func(name string) *series {
		e := emission{regarding: podRef(name), eventType: "Normal", reason: "R"}
		noError(t, r.rec.identify(&e))
		e.hash = 1
		built, _ := r.rec.build(&e)
		built.hash = 1
		r.mu.Lock()
		defer r.mu.Unlock()
		r.core.take(&e, built, time.Now())
		return r.core.table.byKey[1]
	}
	for _, name := range []string{"a", "b", "b", "a"} {
		if s := emit(name); s.key.regarding.Name != name {
			t.Errorf("%s is counted as %s", name, s.key.regarding.Name)
		}
	}
	r.start()
	r.end(time.Minute)
	r.wantAbout("a", "single, single")
	r.wantAbout("b", "Unknown ×2")
}

func TestTableIsEmptyInTheEnd(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		for i := range 500 {
			r.pod(fmt.Sprint("p", i), 1+i%3)
		}
		pass(13 * time.Minute)
		b := r.Broadcaster
		b.mu.Lock()
		defer b.mu.Unlock()
		n := &b.core.table
		q := &b.core.queue
		left := []int{
			n.all, n.pending.n, len(n.pending.by), n.leaving.n, len(n.leaving.by), len(n.byKey), n.pending.bySize.Len(), n.leaving.bySize.Len(), len(b.core.limits.series), len(b.core.limits.combined),
			n.aged.n, n.hurried.Len(), q.waiting, len(q.namespaces), len(q.objects), q.timers.Len(),
		}
		if slices.Max(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// TestFourWritersAndMoreLiveSeriesThanFit: every occurrence is stored while series are evicted,
// return and are evicted again in the middle of their calls.
func TestFourWritersAndMoreLiveSeriesThanFit(t *testing.T) {
	bubble(t, func(o *Options) { o.MaxSeries, o.MaxQueue, o.Writers = 8, 100, 4 }, func(t *testing.T, r *rig) {
		r.server.SetTTL(1000 * time.Hour)
		r.server.SetFault(slowly(300 * time.Millisecond))
		const pods = 24
		rounds := fewer(2000, 8)
		rnd := rand.New(rand.NewPCG(1, 2))
		for range rounds {
			for range 6 {
				r.pod(fmt.Sprint("p", rnd.IntN(pods)), 1)
			}
			pass(time.Duration(rnd.IntN(600)) * time.Millisecond)
		}
		pass(7 * time.Minute)
		st := r.Stats()
		count, _ := stored(r.server)
		want := int64(6*rounds) - sum(st.Dropped)
		if count != want || st.Transitions["evicted"] < int64(rounds/2) {
			t.Errorf("%d of %d occurrences are stored; %d evictions", count, want, st.Transitions["evicted"])
		}
		r.wantBooks(st.Dropped[DropTableFull], 0) // 16 stored series, those that leave included, fit
	})
}

// TestReplicaSetOf500: events with different related objects are the proposal's objects × objects,
// no spam: all are stored, as are the 180 runs of a CronJob in three hours.
func TestReplicaSetOf500(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.server.SetTTL(100 * time.Hour)
		rs := &corev1.ObjectReference{Kind: "ReplicaSet", APIVersion: "apps/v1", Namespace: "ns", Name: "web", UID: "1"}
		cron := &corev1.ObjectReference{Kind: "CronJob", APIVersion: "batch/v1", Namespace: "ns", Name: "tick", UID: "2"}
		for i := range 500 {
			r.rec.Eventf(rs, podRef(fmt.Sprint("web-", i)), corev1.EventTypeNormal, "SuccessfulCreate", "CreatePod", "created pod web-%d", i)
		}
		for i := range 180 {
			r.rec.Eventf(cron, podRef(fmt.Sprint("tick-", i)), corev1.EventTypeNormal, "SuccessfulCreate", "CreateJob", "created job tick-%d", i)
			pass(time.Minute)
		}
		r.wantStored(680)
		r.wantBooks(0, 0)
	})
}
