// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// The assertions of the kubelet's own tests of its pod cache, repeated for this cache. A kubelet's
// test wakes a waiter by a write as of exactly the asked time, although a lookup at the moment
// would find the write too old: a known defect. Here a single predicate decides both, and the write
// must be later.

func status(uid types.UID, containers ...string) *kubecontainer.PodStatus {
	s := &kubecontainer.PodStatus{ID: uid, Name: "name-" + string(uid), Namespace: "ns"}
	for _, c := range containers {
		s.ContainerStatuses = append(s.ContainerStatuses, &kubecontainer.Status{Name: c})
	}
	return s
}

// ask calls GetNewerThan and returns where its answer comes.
func ask(c *Cache, uid types.UID, minTime time.Time) <-chan *kubecontainer.PodStatus {
	answer := make(chan *kubecontainer.PodStatus, 1)
	go func() {
		s, _ := c.GetNewerThan(uid, minTime)
		answer <- s
	}()
	synctest.Wait()
	return answer
}

// release ends every waiter, so that the bubble can end.
func release(c *Cache) {
	c.UpdateTime(time.Now().Add(time.Hour))
	synctest.Wait()
}

func TestEmptyCacheAnswersNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache()
		answer := ask(c, "p", time.Time{})
		if len(answer) != 0 {
			t.Error("answered before anything was read")
		}
		c.UpdateTime(time.Now())
		synctest.Wait()
		if len(answer) != 1 {
			t.Error("no answer after the first list")
		}
	})
}

func TestNewerByEitherTime(t *testing.T) {
	for _, test := range []struct {
		name           string
		global, entry  time.Duration // of the cache and of the pod, from the asked time
		absent, answer bool
	}{
		{"both newer", time.Second, time.Second, false, true},
		{"list newer, pod long unchanged", time.Second, -10 * time.Second, false, true},
		{"pod newer, list still being applied", -time.Second, 3 * time.Second, false, true},
		{"neither", -time.Second, -time.Second, false, false},
		{"no such pod, list newer", time.Second, 0, true, true},
		{"no such pod, list older", -time.Second, 0, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Minute)
				asked, c := time.Now(), newCache()
				if !test.absent {
					c.Set("p", status("p", "a"), nil, asked.Add(test.entry))
				}
				c.UpdateTime(asked.Add(test.global))
				answer := ask(c, "p", asked)
				if got := len(answer) == 1; got != test.answer {
					t.Errorf("answered: %v, want %v", got, test.answer)
				}
				release(c)
			})
		})
	}
}

func TestSetThenGet(t *testing.T) {
	c := newCache()
	for _, s := range []*kubecontainer.PodStatus{status("a", "1", "2", "3"), status("b")} {
		if !c.Set(s.ID, s, nil, time.Time{}) {
			t.Errorf("%s: refused", s.ID)
		}
		if got, err := c.Get(s.ID); got != s || err != nil {
			t.Errorf("%s: got %v, %v", s.ID, got, err)
		}
	}
	// The kubelet's asserts that any status beside an error is stored. Here the last good status
	// stays beside the error.
	broken := errors.New("broken")
	for _, with := range []*kubecontainer.PodStatus{nil, {}} {
		c.Set("a", with, broken, time.Time{})
		if got, err := c.Get("a"); got == nil || len(got.ContainerStatuses) != 3 || err != broken {
			t.Errorf("after an error with %v: got %v, %v", with, got, err)
		}
	}
}

func TestUnknownAndDeletedPodsHaveAnEmptyStatus(t *testing.T) {
	c := newCache()
	check := func() {
		t.Helper()
		if s, err := c.Get("p"); err != nil || s.ID != "p" || s.Name != "" || s.ContainerStatuses != nil {
			t.Errorf("got %v, %v", s, err)
		}
	}
	check()
	c.Set("p", status("p", "a"), nil, time.Now())
	c.Delete("p")
	check()
}

func TestOlderWritesAreRefused(t *testing.T) {
	c, now := newCache(), time.Now()
	newer := status("p", "new")
	c.Set("p", newer, nil, now)
	if c.Set("p", status("p", "old"), nil, now.Add(-time.Nanosecond)) {
		t.Error("an older write was taken")
	}
	if got, _ := c.Get("p"); got != newer {
		t.Errorf("got %v", got)
	}
}

func TestWaitersAreWoken(t *testing.T) {
	const uid = types.UID("p")
	for name, test := range map[string]struct {
		present bool
		wake    func(*Cache, time.Time)
	}{
		"by Set":                             {true, func(c *Cache, at time.Time) { c.Set(uid, status(uid), nil, at) }},
		"by SetObservedTime":                 {true, func(c *Cache, at time.Time) { c.SetObservedTime(uid, at) }},
		"by UpdateTime":                      {true, func(c *Cache, at time.Time) { c.UpdateTime(at) }},
		"of a pod not there, by Set":         {false, func(c *Cache, at time.Time) { c.Set(uid, status(uid), nil, at) }},
		"of a pod not there, by UpdateTime":  {false, func(c *Cache, at time.Time) { c.UpdateTime(at) }},
		"of a pod not there, by an error":    {false, func(c *Cache, at time.Time) { c.Set(uid, nil, errors.New("broken"), at) }},
		"of a pod there, by an error":        {true, func(c *Cache, at time.Time) { c.Set(uid, nil, errors.New("broken"), at) }},
		"of a pod there, by a nil Set first": {true, func(c *Cache, at time.Time) { c.Set(uid, nil, nil, at.Add(time.Hour)); c.UpdateTime(at) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, first := newCache(), time.Now()
				time.Sleep(10 * time.Second)
				asked := time.Now()
				c.UpdateTime(first)
				if test.present {
					c.Set(uid, status(uid), nil, first)
				}
				answer := ask(c, uid, asked)
				test.wake(c, asked.Add(-time.Second))
				synctest.Wait()
				if len(answer) != 0 {
					t.Fatal("woken by what is too old")
				}
				test.wake(c, asked.Add(time.Second))
				synctest.Wait()
				if len(answer) != 1 {
					t.Fatal("not woken")
				}
				if s := <-answer; s.ID != uid {
					t.Errorf("got the status of %q", s.ID)
				}
				if len(ask(c, uid, asked)) != 1 {
					t.Error("the next one had to wait")
				}
			})
		})
	}
}
