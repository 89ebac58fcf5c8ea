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

// Assertions of the kubelet's own tests of its pod cache, repeated for this cache; the tests of
// package cache hold those about times. A kubelet's test wakes a waiter by a write as of exactly
// the asked time, although a lookup at the moment would find the write too old: a known defect.
// Here a single predicate decides both, and the write must be later.

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
	for name, wake := range map[string]func(*Cache, time.Time){
		"Set":             func(c *Cache, at time.Time) { c.Set(uid, status(uid), nil, at) },
		"Set of an error": func(c *Cache, at time.Time) { c.Set(uid, nil, errors.New("broken"), at) },
		"SetObservedTime": func(c *Cache, at time.Time) { c.SetObservedTime(uid, at) },
		"UpdateTime":      func(c *Cache, at time.Time) { c.UpdateTime(at) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, first := newCache(), time.Now()
				time.Sleep(10 * time.Second)
				asked := time.Now()
				c.Set(uid, status(uid), nil, first)
				answer := ask(c, uid, asked)
				wake(c, asked.Add(-time.Second))
				synctest.Wait()
				if len(answer) != 0 {
					t.Fatal("woken by what is too old")
				}
				wake(c, asked.Add(time.Second))
				synctest.Wait()
				if len(answer) != 1 {
					t.Fatal("not woken")
				}
				if s := <-answer; s.ID != uid {
					t.Errorf("got the status of %q", s.ID)
				}
			})
		})
	}
}
