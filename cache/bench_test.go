// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/evented-pleg/evented-pleg/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type benchStatus struct{ _ int }

// full returns a cache of so many pods, read at the returned time, and their UIDs.
func full(pods int) (*cache.Cache[benchStatus], []cache.UID, time.Time) {
	c, at := cache.New[benchStatus](nil), time.Now()
	var uids []cache.UID
	for i := range pods {
		uids = append(uids, cache.UID(fmt.Sprintf("%036d", i)))
		c.Set(uids[i], &benchStatus{}, nil, at)
	}
	return c, uids, at
}

// BenchmarkReadAndWrite is each call that does not wait, on caches of different sizes: none may
// depend on the size.
func BenchmarkReadAndWrite(b *testing.B) {
	for _, pods := range []int{500, 50_000} {
		c, uids, at := full(pods)
		i := 0
		run := func(name string, f func(uid cache.UID)) {
			b.Run(fmt.Sprintf("%s/pods=%d", name, pods), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					f(uids[i%pods])
					i++
				}
			})
		}
		run("Get", func(uid cache.UID) { _, _ = c.Get(uid) })
		run("GetNewerThan-there", func(uid cache.UID) { _, _ = c.GetNewerThan(b.Context(), uid, at.Add(-1)) })
		run("Set", func(uid cache.UID) { at = at.Add(1); c.Set(uid, &benchStatus{}, nil, at) })
		run("Observe", func(uid cache.UID) { at = at.Add(1); c.Observe(uid, at) })
		run("Advance", func(cache.UID) { at = at.Add(1); c.Advance(at) })
	}
}

// BenchmarkWait is a call that waits, from the call to its return: a pod's own read wakes it.
func BenchmarkWait(b *testing.B) {
	c, uids, _ := full(5000)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(b.Context())
	go func() { // the generator
		defer close(done)
		for {
			select {
			case <-c.Demand():
				for uid, d := range c.TakeDemand() {
					status, _ := c.Get(uid)
					c.Set(uid, status, nil, d.Content.Add(1))
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := c.GetNewerThan(ctx, uids[i%len(uids)], time.Now()); err != nil {
			b.Fatal(err)
		}
		i++
	}
	cancel()
	<-done
}

// BenchmarkWakeAll wakes a thousand waiters of different pods with one move of the global time. It
// must not depend on the pods that nobody waits for.
func BenchmarkWakeAll(b *testing.B) {
	const waiters = 1000
	for _, pods := range []int{1000, 50_000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			c, uids, _ := full(pods)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				var group sync.WaitGroup
				t := time.Now()
				for i := range waiters {
					group.Go(func() { _, _ = c.GetNewerThan(b.Context(), uids[i], t) })
				}
				for c.Waiting() < waiters {
					time.Sleep(time.Millisecond)
				}
				c.TakeDemand()
				b.StartTimer()
				c.Advance(t.Add(1))
				b.StopTimer()
				group.Wait()
				b.StartTimer()
			}
		})
	}
}
