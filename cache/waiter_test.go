// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// word is the status of these tests.
type word struct{ n int }

var (
	errRead  = errors.New("the read failed")
	errEnded = errors.New("the agent ends")
)

// started is a time with a monotonic reading, long past also by the clock of a bubble, which begins
// in the year 2000.
var started = time.Now().Add(-50 * 365 * 24 * time.Hour)

func moment(n int) time.Time { return started.Add(time.Duration(n) * time.Millisecond) }

func TestNewerThan(t *testing.T) {
	for _, tc := range []struct {
		name  string
		write func(c *Cache[word])
		t     int
		wakes bool // who waits for phases
		whole bool // who waits for the whole status
	}{
		{"a newer status", func(c *Cache[word]) { c.Set("p", &word{1}, nil, moment(10)) }, 9, true, true},
		{"a status of that very time", func(c *Cache[word]) { c.Set("p", &word{1}, nil, moment(9)) }, 9, false, false},
		{"a newer error", func(c *Cache[word]) { c.Set("p", nil, errRead, moment(10)) }, 9, true, true},
		{"a pod that is gone", func(c *Cache[word]) { c.Delete("p", moment(10)) }, 9, true, true},
		{"a list of everything", func(c *Cache[word]) { c.Advance(moment(10)) }, 9, true, true},
		{"an older list", func(c *Cache[word]) { c.Advance(moment(9)) }, 9, false, false},
		{"another pod", func(c *Cache[word]) { c.Set("q", &word{1}, nil, moment(10)) }, 9, false, false},
		{"an observation of nothing", func(c *Cache[word]) { c.Observe("p", moment(10)) }, 9, false, false},
		{"an observation", func(c *Cache[word]) { c.Set("p", &word{1}, nil, moment(5)); c.Observe("p", moment(10)) }, 9, true, false},
		{"a payload over an observation", func(c *Cache[word]) {
			c.SetLooked("p", &word{1}, nil, Looks{At: moment(10), Read: moment(5)})
		}, 9, true, false},
		{"a status read before a later look", func(c *Cache[word]) {
			c.Set("p", &word{1}, nil, moment(5))
			c.Observe("p", moment(20))
			c.SetLooked("p", &word{2}, nil, Looks{At: moment(20), Read: moment(10)})
		}, 9, true, true},
		{"a read that does not move back", func(c *Cache[word]) {
			c.Set("p", &word{1}, nil, moment(10))
			c.SetLooked("p", &word{2}, nil, Looks{At: moment(11), Read: moment(3)})
		}, 9, true, true},
		{"a list of everything over an older status", func(c *Cache[word]) {
			c.Set("p", &word{1}, nil, moment(5))
			c.Advance(moment(10))
		}, 9, true, false},
		{"neither status nor error", func(c *Cache[word]) { c.Set("p", nil, nil, moment(10)) }, 9, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for k := range 4 {
				before, phases, wakes := k%2 == 0, k < 2, tc.whole
				if phases {
					wakes = tc.wakes
				}
				synctest.Test(t, func(t *testing.T) {
					c := New[word](nil)
					if before {
						tc.write(c)
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					woken := make(chan error, 1)
					go func() {
						get := c.GetNewerThan
						if phases {
							get = c.GetPhasesNewerThan
						}
						s, err := get(ctx, "p", moment(tc.t))
						if s == nil {
							t.Error("handed nil")
						}
						woken <- err
					}()
					synctest.Wait()
					if !before {
						tc.write(c)
						synctest.Wait()
					}
					select {
					case <-woken:
						if !wakes {
							t.Errorf("written before %t, phases %t: it returned", before, phases)
						}
					default:
						if wakes {
							t.Errorf("written before %t, phases %t: it still waits", before, phases)
						}
						cancel()
						if err := <-woken; !errors.Is(err, context.Canceled) {
							t.Errorf("cancelled: %v", err)
						}
					}
				})
			}
		})
	}
}

// TestWallTimeIsTheTimeOfTheCall: a time without a monotonic reading cannot be compared across a
// step of the clock, so the answer is newer than the call.
func TestWallTimeIsTheTimeOfTheCall(t *testing.T) {
	c := New[word](nil)
	c.Set("p", &word{1}, nil, time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.GetNewerThan(ctx, "p", time.Now().Add(-time.Hour).Round(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("an hour ago by the wall clock: %v, want a wait", err)
	}
	if _, err := c.GetNewerThan(ctx, "p", time.Time{}); err != nil {
		t.Errorf("any read: %v", err)
	}
}

// TestTimesInTheFuture: who asks for a time to come asks for nothing before it has come, and keeps
// nobody waiting who asks for less.
func TestTimesInTheFuture(t *testing.T) {
	// A bubble's times have no monotonic reading, and one is needed; its wall clock is what counts
	// against times of the bubble.
	reading := time.Now()
	synctest.Test(t, func(t *testing.T) {
		c, now := New[word](nil), time.Now()
		in := func(d time.Duration) time.Time { return reading.Add(now.Add(d).Sub(reading.Round(0))) }
		woken := make(chan time.Duration, 2)
		for _, ahead := range []time.Duration{0, time.Minute} {
			go func() {
				if _, err := c.GetNewerThan(t.Context(), "p", in(ahead)); err != nil {
					t.Error(err)
				}
				woken <- ahead
			}()
		}
		synctest.Wait()
		if got, want := c.TakeDemand(), in(0); len(got) != 1 || !got["p"].Content.Equal(want) || c.Waiting() != 1 {
			t.Errorf("demanded %v by %d, want %v by 1", got, c.Waiting(), want)
		}
		c.Set("p", &word{1}, nil, in(time.Second))
		if ahead := <-woken; ahead != 0 {
			t.Errorf("the waiter for %v was served first", ahead)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := c.TakeDemand(), in(time.Minute); len(got) != 1 || !got["p"].Content.Equal(want) {
			t.Errorf("a minute later demanded %v, want %v", got, want)
		}
		c.Set("p", &word{2}, nil, in(time.Minute+1))
		<-woken

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if s, err := c.GetNewerThan(ctx, "p", in(time.Hour)); s == nil || !errors.Is(err, context.DeadlineExceeded) || c.Waiting() != 0 {
			t.Errorf("gave up after a second: %v, %v, %d waiting", s, err, c.Waiting())
		}
	})
}

// TestTenThousandWaiters waits for 10,000 pods at once: half give up, half are served, and nothing
// of them is left.
func TestTenThousandWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10000
		c := New[word](nil)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				own := t.Context()
				if i%2 == 0 {
					own = ctx
				}
				s, err := c.GetNewerThan(own, UID(fmt.Sprint(i)), moment(5))
				if s == nil || (err != nil) != (i%2 == 0) {
					t.Errorf("waiter %d: %v, %v", i, s, err)
				}
			})
		}
		synctest.Wait()
		if c.Waiting() != n || len(c.Wanted()) != n || len(c.TakeDemand()) != n {
			t.Errorf("%d waiting, %d wanted", c.Waiting(), len(c.Wanted()))
		}
		c.RenewDemand()
		cancel()
		synctest.Wait()
		if c.Waiting() != n/2 || len(c.waiters) != n/2 || len(c.demand) != n/2 {
			t.Errorf(
				"half gave up: %d waiting, %d pods with waiters, %d in demand",
				c.Waiting(),
				len(c.waiters),
				len(c.demand),
			)
		}
		c.Advance(moment(6))
		all.Wait()
		c.TakeDemand()
		if c.Waiting()+len(c.waiters)+len(c.demand)+c.Len()+c.Tombstones() != 0 {
			t.Errorf(
				"left: %d waiting, %d pods with waiters, %d in demand, %d pods, %d tombstones",
				c.Waiting(),
				len(c.waiters),
				len(c.demand),
				c.Len(),
				c.Tombstones(),
			)
		}
	})
}

// TestCancelledWaiterAmongOthers takes waiters of one pod out in every order.
func TestCancelledWaiterAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		for first := range n {
			c := New[word](nil)
			var all sync.WaitGroup
			cancels := make([]context.CancelFunc, n)
			got := make([]error, n)
			for i := range n {
				ctx, cancel := context.WithCancel(t.Context())
				cancels[i] = cancel
				all.Go(func() { _, got[i] = c.GetNewerThan(ctx, "p", moment(i)) })
				synctest.Wait()
			}
			cancels[first]()
			synctest.Wait()
			c.Set("p", &word{1}, nil, moment(3)) // serves those who asked for 0, 1, 2
			synctest.Wait()
			for i := range n {
				wants := i < 3 && i != first
				if served := got[i] == nil && c.AsOf("p").After(moment(i)); served != wants {
					t.Errorf("cancelled %d: waiter %d served %t, want %t (%v)", first, i, served, wants, got[i])
				}
				cancels[i]()
			}
			all.Wait()
			if c.Waiting() != 0 || len(c.waiters) != 0 {
				t.Errorf("cancelled %d: %d waiters left", first, c.Waiting())
			}
		}
	})
}

// TestAWaiterWhoGivesUpLeavesTheDemandOfOthers holds that the demand of a pod lasts as long as
// anybody waits: the generator may look only after the first has given up.
func TestAWaiterWhoGivesUpLeavesTheDemandOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		for first := range n {
			c := New[word](nil)
			var all sync.WaitGroup
			cancels := make([]context.CancelFunc, n)
			for i := range n {
				ctx, cancel := context.WithCancel(t.Context())
				cancels[i] = cancel
				all.Go(func() { c.GetNewerThan(ctx, "p", moment(i)) })
			}
			synctest.Wait()
			cancels[first]()
			synctest.Wait()
			if len(c.demand) != 1 || c.Waiting() != n-1 {
				t.Errorf("cancelled %d: demand %v, %d waiting", first, c.demand, c.Waiting())
			}
			for i := range n {
				cancels[i]()
			}
			synctest.Wait()
			if got := c.TakeDemand(); got != nil {
				t.Errorf("all have given up, and the demand is %v", got)
			}
			all.Wait()
		}
	})
}

// TestRenewedDemand: a generator that takes over hears of all who wait for a pod: of those for the
// phases as of those for all of the status, whoever came first, each at the latest time asked for.
func TestRenewedDemand(t *testing.T) {
	type wait struct {
		t      int
		phases bool
	}
	for _, order := range [][]wait{
		{{1, true}, {3, true}, {2, false}, {4, false}},
		{{4, false}, {2, false}, {3, true}, {1, true}},
		{{3, true}, {4, false}, {1, true}, {2, false}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := New[word](nil)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for _, w := range order {
				all.Go(func() { c.await(ctx, "p", moment(w.t), w.phases) })
				synctest.Wait() // for the order
			}
			first := c.TakeDemand()["p"]
			c.RenewDemand()
			again := c.TakeDemand()["p"]
			want := Demand{Content: moment(4), Phases: moment(3)}
			if first != want || again != want {
				t.Errorf("%v: demanded %v, and then %v, want %v", order, first, again, want)
			}
			cancel()
			all.Wait()
		})
	}
}

// TestLookBesideAnError: a look that began before the read that failed, and ended after it, is
// stored beside the error, and takes nothing from its age. The error is none to waiters for
// phases once a list has confirmed them since.
func TestLookBesideAnError(t *testing.T) {
	c := New[word](nil)
	c.Set("p", nil, errRead, moment(10))
	c.SetLooked("p", &word{1}, errRead, Looks{At: moment(10), Began: moment(5)})
	if _, err := c.GetPhasesNewerThan(t.Context(), "p", moment(9)); !errors.Is(err, errRead) {
		t.Errorf("a read begun after the call has failed: %v", err)
	}
	c.Observe("p", moment(12))
	if s, err := c.GetPhasesNewerThan(t.Context(), "p", moment(11)); err != nil || s.n != 1 {
		t.Errorf("a list has confirmed the phases since: %v, %v", s, err)
	}
	c.SetLooked("p", &word{2}, errRead, Looks{At: moment(12), Began: moment(13), Beside: true})
	if s, err := c.GetPhasesNewerThan(t.Context(), "p", moment(11)); err != nil || s.n != 2 {
		t.Errorf("a later look beside the same error makes it no younger: %v, %v", s, err)
	}
}

// TestOwn: a cache has one owner at a time, and a release that comes twice is none of the next
// one's.
func TestOwn(t *testing.T) {
	c := New[word](nil)
	release, ok := c.Own()
	if _, again := c.Own(); !ok || again {
		t.Errorf("owned %v, and at the same time %v", ok, again)
	}
	release()
	_, ok = c.Own()
	release()
	if _, again := c.Own(); !ok || again {
		t.Errorf("after a release: owned %v, and at the same time %v", ok, again)
	}
}

// TestATimeOutSaysWhatIsKnown: that nothing reads, and that the last read failed.
func TestATimeOutSaysWhatIsKnown(t *testing.T) {
	c := New[word](nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errEnded)
	said := func(want ...error) string {
		_, err := c.GetNewerThan(ctx, "p", time.Now())
		for _, w := range want {
			if !errors.Is(err, w) {
				t.Errorf("%v, which is no %v", err, w)
			}
		}
		return err.Error()
	}
	const unread = "no generator runs"
	if text := said(errEnded); !strings.Contains(text, unread) {
		t.Errorf("of a cache without a generator it says %q", text)
	}
	release, _ := c.Own()
	defer release()
	c.Set("p", nil, errRead, moment(10))
	if text := said(errEnded, errRead); strings.Contains(text, unread) {
		t.Errorf("beside a generator it says %q", text)
	}
}
