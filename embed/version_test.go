// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// asks asks for the version, and wants this answer after a number of the runtime's calls.
func (k *kubelet) asks(api, want string, calls int) {
	k.t.Helper()
	before := k.toy.count("Version")
	answer, err := k.Version(k.t.Context(), api)
	if err != nil {
		k.t.Fatal(err)
	}
	if n := k.toy.count("Version") - before; answer.Version != api || answer.RuntimeVersion != want || n != calls {
		k.t.Errorf("%s of API %s after %d calls, want %s of %s after %d", answer.RuntimeVersion, answer.Version, n, want, api, calls)
	}
}

func (k *kubelet) counts(want map[string]int) {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, n := range want {
		if k.counted[name] != n {
			k.t.Errorf("%s: %d, want %d; all: %v", name, k.counted[name], n, k.counted)
		}
	}
}

func TestAVersionIsGoodForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(t)
		defer k.close()
		k.toy.version = "v1"
		k.asks("0.1.0", "v1", 1)
		k.toy.version = "v2"
		time.Sleep(versionMaxAge - 1)
		k.asks("0.1.0", "v1", 0)
		time.Sleep(time.Nanosecond)
		k.asks("0.1.0", "v2", 1)
		k.asks("0.1.0", "v2", 0)
		k.counts(map[string]int{"versions_served": 2, "versions_forwarded/unasked": 1, "versions_forwarded/stale": 1})
	})
}

// TestOneAsksAgain: of many concurrent callers with an outdated answer, a single caller asks the
// runtime, and the others need not wait; nor for ever, without an answer.
func TestOneAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(t)
		defer k.close()
		k.serve(2 * versionMaxAge)
		k.toy.version = "v1"
		k.asks("0.1.0", "v1", 1)
		time.Sleep(versionMaxAge)
		k.toy.version = "v2"
		proceed := make(chan struct{})
		k.toy.onAsk = func() error { <-proceed; return errors.New("the runtime hangs") }
		var first sync.WaitGroup
		first.Go(func() {
			if _, err := k.Version(t.Context(), "0.1.0"); err == nil {
				t.Error("no error")
			}
		})
		synctest.Wait()
		k.asks("0.1.0", "v1", 0)
		time.Sleep(versionMaxAge - 1)
		k.asks("0.1.0", "v1", 0)
		time.Sleep(time.Nanosecond)
		k.toy.onAsk = nil
		k.asks("0.1.0", "v2", 1) // two minutes: whoever comes asks for himself
		k.asks("0.1.0", "v2", 0)
		close(proceed)
		first.Wait()
		k.asks("0.1.0", "v2", 0)
		time.Sleep(versionMaxAge)
		k.asks("0.1.0", "v2", 1) // who failed is asking no more
		k.counts(map[string]int{"versions_served": 4, "versions_forwarded/unasked": 1, "versions_forwarded/stale": 3})
	})
}

// TestAVersionIsAsOldAsItsQuestion: the answer took most of the minute.
func TestAVersionIsAsOldAsItsQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKubelet(t)
		defer k.close()
		k.toy.version = "v1"
		k.toy.onAsk = func() error { time.Sleep(versionMaxAge - time.Second); return nil }
		k.asks("0.1.0", "v1", 1)
		k.toy.onAsk = nil
		k.asks("0.1.0", "v1", 0)
		time.Sleep(time.Second)
		k.asks("0.1.0", "v1", 1)
	})
}

// TestNoVersionOutlivesItsConnection: a newer runtime took over, however short the loss of the
// connection was.
func TestNoVersionOutlivesItsConnection(t *testing.T) {
	k := newKubelet(t)
	k.toy.version = "v1"
	k.asks("0.1.0", "v1", 1)
	k.asks("0.1.0", "v1", 0)
	k.close()
	k.asks("0.1.0", "v1", 1) // the generator still reports a connection
	k.asks("0.1.0", "v1", 1)
	k.toy.version = "v2"
	k.stream()
	k.asks("0.1.0", "v2", 1)
	k.asks("0.1.0", "v2", 0)
	k.trusted.Store(false)
	k.asks("0.1.0", "v2", 1)
	k.trusted.Store(true)
	k.asks("0.1.0", "v2", 0)
	k.close()
	k.counts(map[string]int{"versions_served": 3, "versions_forwarded/unasked": 2, "versions_forwarded/untrusted": 3})
}

// TestAnAnswerThatOutlivesItsConnection: the runtime answers, and is replaced before anybody has
// seen the answer.
func TestAnAnswerThatOutlivesItsConnection(t *testing.T) {
	k := newKubelet(t)
	k.toy.version = "v1"
	k.toy.onAsk = func() error {
		k.toy.onAsk = nil
		k.close()
		k.toy.version = "v2"
		k.stream()
		return nil
	}
	k.asks("0.1.0", "v1", 1)
	defer k.close()
	k.asks("0.1.0", "v2", 1)
	k.asks("0.1.0", "v2", 0)
}

// TestAStreamThatIsBeingOpenedProvesNothing: the call for events waits for a connection, so the
// runtime that answers now may not be the sender of events.
func TestAStreamThatIsBeingOpenedProvesNothing(t *testing.T) {
	k := newKubelet(t)
	k.close()
	opening, proceed := make(chan struct{}), make(chan struct{})
	k.toy.onOpen = func() error { close(opening); <-proceed; return nil }
	k.toy.version = "v1"
	var done sync.WaitGroup
	done.Go(k.stream)
	<-opening
	k.asks("0.1.0", "v1", 1)
	k.asks("0.1.0", "v1", 1)
	k.toy.version = "v2"
	close(proceed)
	done.Wait()
	defer k.close()
	k.asks("0.1.0", "v2", 1)
	k.asks("0.1.0", "v2", 0)
}

// TestVersionsThatAreNotKept: failures, another version of the API, and a service that serves
// nothing.
func TestVersionsThatAreNotKept(t *testing.T) {
	k := newKubelet(t)
	defer k.close()
	k.toy.version = "v1"
	k.toy.onAsk = func() error { return errors.New("the runtime hangs") }
	if _, err := k.Version(t.Context(), "0.1.0"); err == nil {
		t.Error("no error")
	}
	k.toy.onAsk = nil
	k.asks("0.1.0", "v1", 1)
	k.asks("0.2.0", "v1", 1)
	k.asks("0.2.0", "v1", 0)

	s := NewService(k.toy)
	versions, lists := k.toy.count("Version"), k.toy.count("ListContainers")
	for range 2 {
		if _, err := s.Version(t.Context(), "0.1.0"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ListContainers(t.Context(), &runtimeapi.ContainerFilter{}); err != nil {
			t.Fatal(err)
		}
	}
	versions, lists = k.toy.count("Version")-versions, k.toy.count("ListContainers")-lists
	if versions != 2 || lists != 2 {
		t.Errorf("before ServeLists the runtime was asked for %d versions and %d lists, of 2 each", versions, lists)
	}
}

// TestWhoAskedForTheStreamIsToldToo: the service's own ear takes nobody else's away.
func TestWhoAskedForTheStreamIsToldToo(t *testing.T) {
	k := newKubelet(t)
	defer k.close()
	ctx, cancel := context.WithCancel(t.Context())
	told := 0
	err := k.GetContainerEvents(ctx, make(chan *runtimeapi.ContainerEventResponse), func(runtimeapi.RuntimeService_GetContainerEventsClient) {
		told++
		cancel()
	})
	if told != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("told %d times, %v", told, err)
	}
}

func TestAFailedStreamProvesNothing(t *testing.T) {
	k := newKubelet(t)
	k.close()
	k.toy.onOpen = func() error { return errors.New("nobody listens") }
	k.toy.version = "v1"
	if err := k.GetContainerEvents(t.Context(), make(chan *runtimeapi.ContainerEventResponse), nil); err == nil {
		t.Error("no error")
	}
	k.asks("0.1.0", "v1", 1)
	k.asks("0.1.0", "v1", 1)
}
