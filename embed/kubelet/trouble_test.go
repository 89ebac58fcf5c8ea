// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// hangs has the runtime's lists hang until the returned function is called.
func (n *node) hangs() (answer func()) {
	hang := make(chan struct{})
	n.runtime.with(func() { n.runtime.hang = hang })
	return func() {
		n.runtime.with(func() { n.runtime.hang = nil })
		close(hang)
	}
}

// event is the runtime's event about a container of the pod p with the sandbox s.
func event(id string, what runtimeapi.ContainerEventType) *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{
		ContainerId:        id,
		ContainerEventType: what,
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id:       "s",
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: "p"},
		},
	}
}

// TestWhileListsHang plays what a runtime does while its lists do not answer and its statuses do:
// what events name, and what is known, is told all the same, and nothing comes twice.
func TestWhileListsHang(t *testing.T) {
	const stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	for name, test := range map[string]struct {
		events    func() *fakeEvents
		meanwhile func(n *node)
		after     time.Duration
		want      []string
	}{
		"an event tells of an end": {
			events: newFakeEvents,
			meanwhile: func(n *node) {
				n.now(container("c", exited), container("d", running))
				n.events.feed <- event("c", stopped)
			},
			after: 5 * time.Second,
			want:  []string{"p c Died"},
		},
		"two events tell of two ends": {
			events: newFakeEvents,
			meanwhile: func(n *node) {
				n.now(container("c", exited), container("d", running))
				n.events.feed <- event("c", stopped)
				time.Sleep(time.Second)
				n.now(container("c", exited), container("d", exited))
				n.events.feed <- event("d", stopped)
			},
			after: 5 * time.Second,
			want:  []string{"p c Died", "p d Died"},
		},
		"without events known containers are looked at": {
			events:    noEvents,
			meanwhile: func(n *node) { n.now(container("c", exited), container("d", running)) },
			after:     time.Minute,
			want:      []string{"p c Died"},
		},
		"a false event tells nothing": {
			events:    newFakeEvents,
			meanwhile: func(n *node) { n.events.feed <- event("c", stopped) },
			after:     5 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, test.events())
				n.now(container("c", running), container("d", running))
				n.started().take()
				answer := n.hangs()
				time.Sleep(time.Minute) // a list is due, and hangs
				test.meanwhile(n)
				time.Sleep(test.after)
				n.expect(test.want...)
				answer()
				n.afterRelist()
				n.expect()
				if ok, err := n.pleg.Healthy(); !ok {
					t.Errorf("after the lists answer: %v", err)
				}
			})
		})
	}
}

// now makes the pod p with its ready sandbox and these containers the runtime's only content.
func (n *node) now(containers ...*kubecontainer.Container) {
	p := pod("p", containers...)
	p.Sandboxes = []*kubecontainer.Container{container("s", running)}
	n.runtime.show(p)
}

// TestAWaiterIsServedOnceListsAnswer: a pod worker's wait lasts as long as lists hang, and a status
// that it gets is of a read begun later than it asked.
func TestAWaiterIsServedOnceListsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, noEvents())
		n.now(container("c", running))
		n.started().take()
		answer := n.hangs()
		n.now(container("c", exited))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		served := make(chan *kubecontainer.PodStatus, 1)
		go func() {
			s, _ := n.cache.GetNewerThan("p", time.Now())
			served <- s
			cancel()
		}()
		time.Sleep(10 * time.Second)
		answer()
		<-ctx.Done()
		if s := <-served; len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].State != exited {
			t.Errorf("the waiter was served %+v", s.ContainerStatuses)
		}
	})
}

// TestManyWaitersAreServedByOneList: forty pod workers that wait at the same time cost one list,
// and not forty reads, also right after a list.
func TestManyWaitersAreServedByOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newFakeEvents())
		var pods []*kubecontainer.Pod
		for i := range 40 {
			pods = append(pods, pod(fmt.Sprint("p", i), container(fmt.Sprint("c", i), running)))
		}
		n.runtime.show(pods...)
		n.started().take()
		n.events.feed <- event("c0", runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
		time.Sleep(2 * time.Minute) // the relist period has grown
		for _, after := range []time.Duration{0, 300 * time.Millisecond} {
			time.Sleep(after)
			lists := n.runtime.lists()
			asked := time.Now()
			var waiting sync.WaitGroup
			for _, p := range pods {
				waiting.Go(func() {
					if s, err := n.cache.GetNewerThan(p.ID, asked); err != nil || len(s.ContainerStatuses) != 1 {
						t.Errorf("%s: %v, %v", p.ID, s, err)
					}
				})
			}
			waiting.Wait()
			if n := n.runtime.lists() - lists; n != 1 {
				t.Errorf("%v after the last: %d lists, want 1", after, n)
			}
			if took := time.Since(asked); took > time.Second {
				t.Errorf("%v after the last: served after %v", after, took)
			}
		}
	})
}

// TestSilentRemovalsCostThePeriod: of a runtime that announces removals, one without an event
// counts as missed and takes the relist period back.
func TestSilentRemovalsCostThePeriod(t *testing.T) {
	registered(t)
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newFakeEvents())
		n.runtime.forgets = true
		all := []*kubecontainer.Container{container("kept", running)}
		for i := range 8 {
			all = append(all, container(fmt.Sprint("c", i), exited))
		}
		n.now(all...)
		n.started().take()
		for i := range 6 { // announced
			all = append(all[:1:1], all[2:]...)
			n.now(all...)
			n.events.feed <- event(fmt.Sprint("c", i), runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
			time.Sleep(time.Second)
		}
		n.take()
		time.Sleep(3 * time.Minute)
		stats := n.pleg.core.Stats()
		if stats.RelistPeriod != 45*time.Second || stats.MissedRemovals != 0 {
			t.Fatalf("a period of %v and %d missed removals, want 45s and 0", stats.RelistPeriod, stats.MissedRemovals)
		}
		n.now(all[:2]...) // c7 goes without an event
		for range 50 {
			time.Sleep(time.Second)
			if stats = n.pleg.core.Stats(); stats.MissedRemovals == 1 {
				break
			}
		}
		if stats.MissedRemovals != 1 || stats.RelistPeriod > 2*time.Second {
			t.Errorf("%d missed removals and a period of %v, want 1 and a second", stats.MissedRemovals, stats.RelistPeriod)
		}
		n.expect("p c7 Removed")
	})
}
