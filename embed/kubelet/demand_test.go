// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/evented-pleg/evented-pleg/pleg"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// connected returns a node with a fully trusted stream, so that its generator relists as rarely as
// possible.
func connected(t *testing.T) *node {
	t.Helper()
	n := newNode(t, newFakeEvents())
	n.runtime.show(pod("p", container("c", running)))
	n.started().expect("p c Started")
	time.Sleep(10 * time.Minute)
	for n.pleg.core.Stats().LastRelist.Before(time.Now().Add(-time.Second)) {
		time.Sleep(time.Second) // so none comes between
		synctest.Wait()
	}
	if s := n.pleg.core.Stats(); s.RelistPeriod != 45*time.Second {
		t.Fatalf(
			"relist period %v, want the longest of a kubelet that syncs once a minute: %+v",
			s.RelistPeriod,
			s,
		)
	}
	return n
}

// TestFailedStartIsNoMissedEvent covers runtimes on which a container whose start fails ends
// without an event, or stays created: the end is the call's effect, whichever of read and answer
// comes first, and even if no read has shown the container before.
func TestFailedStartIsNoMissedEvent(t *testing.T) {
	for _, test := range []struct {
		name   string
		unseen bool // no read shows the container before its start has failed
		play   func(n *node, end, answer func())
	}{
		{"ends, answer, read", false, func(_ *node, end, answer func()) { end(); answer() }},
		{"ends, read, answer", false, func(n *node, end, answer func()) { end(); relist(n.pleg, "p"); atOnce(); answer() }},
		{"answer, ends, read", false, func(n *node, end, answer func()) { answer(); end(); relist(n.pleg, "p") }},
		{"stays created", false, func(_ *node, _, answer func()) { answer() }},
		{"unseen, ends", true, func(_ *node, end, answer func()) { end(); answer() }},
		{"unseen, stays created", true, func(_ *node, _, answer func()) { answer() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := connected(t)
				n.events.feed <- &runtimeapi.ContainerEventResponse{ // nobody misses the events of a runtime without events
					ContainerId: "c", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
				}
				time.Sleep(time.Minute)
				show := func(state kubecontainer.State) {
					n.runtime.show(pod("p", container("c", running), container("d", state)))
				}
				created := n.pleg.core.Calling(pleg.OwnCall{Pod: pleg.PodRef{UID: "p"}})
				show(kubecontainer.ContainerStateCreated)
				hang := make(chan struct{})
				if test.unseen {
					n.runtime.with(func() { n.runtime.hang = hang })
				}
				created(nil, pleg.Item{ID: "d", Phase: pleg.PhaseCreated})
				atOnce()
				started := n.pleg.core.Calling(pleg.OwnCall{ID: "d"})
				test.play(
					n,
					func() { show(exited) },
					func() { started(errors.New("no such file or directory")) },
				)
				atOnce()
				n.runtime.with(func() { n.runtime.hang = nil })
				close(hang)
				time.Sleep(10 * time.Second)
				n.take()
				if s := n.pleg.core.Stats(); s.Missed != 0 || s.Overruled != 0 ||
					s.RelistPeriod != 45*time.Second {
					t.Errorf("%d missed, %d overruled, relist period %v", s.Missed, s.Overruled, s.RelistPeriod)
				}
				if len(n.told.Events) != 0 {
					t.Errorf("told: %s", <-n.told.Events)
				}
			})
		})
	}
}

// The periodic sync of an unchanged pod waits for nothing: a relist has come since the sync
// before, however rare they are.
func TestPeriodicSyncsAreServedByRelists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := connected(t)
		reads := n.pleg.core.Stats().Inspections
		last := time.Now()
		for range 20 {
			time.Sleep(time.Minute)
			if at := n.cache.statuses.AsOf("p"); !at.After(last) { // not GetNewerThan: times in a bubble lack the required monotonic reading
				t.Errorf("a sync a minute after the last one has to wait: the pod is as of %v before that", last.Sub(at))
			}
			last = time.Now()
		}
		if got := n.pleg.core.Stats().Inspections - reads; got != 2 {
			t.Errorf("%d reads of one pod, want one each ten minutes, by the slow round", got)
		}
	})
}

// A pod worker's wait is served by a read of its pod, not by the next relist, and without a
// request.
func TestWaiterIsServedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := connected(t)
		lists, inspections := n.runtime.lists(), n.runtime.inspections("p")
		answer := ask(n.cache, "p", time.Now())
		other := ask(n.cache, "nobody", time.Now())
		atOnce()
		if len(answer) != 1 || len(other) != 1 {
			t.Fatal("still waiting")
		}
		if s := <-other; s.ID != "nobody" || s.ContainerStatuses != nil {
			t.Errorf("a pod that is not there has the status %v", s)
		}
		if got := n.runtime.lists() - lists; got != 0 {
			t.Errorf("%d lists of everything for one pod", got)
		}
		if got := n.runtime.inspections("p") - inspections; got != 0 {
			t.Errorf("%d inspections of a pod that has not changed", got)
		}
	})
}

func TestRequestReinspectEndsInAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := connected(t)
		inspections := n.runtime.inspections("p")
		n.runtime.with(func() { n.runtime.ips["p"] = []string{"10.0.0.1"} })
		n.pleg.RequestReinspect("p")
		n.expect("p PodSync")
		if s, _ := n.cache.Get("p"); len(s.IPs) != 1 {
			t.Errorf("status %v: it was not read again", s)
		}
		if got := n.runtime.inspections("p") - inspections; got != 1 {
			t.Errorf("%d inspections, want 1", got)
		}
		n.runtime.show() // gone, and nobody told
		n.pleg.RequestReinspect("p")
		time.Sleep(2 * time.Second)
		n.expect("p c Died", "p c Removed")
	})
}

// A failing resize asks for a reinspection at each try, which must not become a hot loop.
func TestReinspectionsOfOnePodArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := connected(t)
		syncs := 0
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			n.pleg.RequestReinspect("p")
			synctest.Wait()
			select {
			case <-n.pleg.Watch():
				syncs++
			default:
			}
		}
		if syncs < 9 || syncs > 12 {
			t.Errorf("%d syncs in 10 s of constant asking, want about one a second", syncs)
		}
		time.Sleep(2 * time.Second)
		n.take()
	})
}

func stopped(uid, sandbox, id string) *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{
		ContainerId:        id,
		ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
		CreatedAt:          time.Now().UnixNano(),
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id:       sandbox,
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid},
		},
	}
}

func TestEventIsToldWithoutARelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := connected(t)
		lists := n.runtime.lists()
		n.runtime.show(pod("p", container("c", exited)))
		n.events.feed <- stopped("p", "", "c")
		n.expect("p c Died")
		if s, err := n.cache.Get("p"); err != nil || s.ContainerStatuses[0].State != exited {
			t.Errorf("status %v, error %v", s, err)
		}
		if got := n.runtime.lists() - lists; got != 0 {
			t.Errorf("%d relists", got)
		}
		// The kubelet drops events without a sandbox status. The pod is known from the last read.
		n.runtime.show()
		n.events.feed <- &runtimeapi.ContainerEventResponse{ContainerId: "c", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT}
		n.expect("p c Removed")
	})
}

func TestStreamIsReopenedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := connected(t)
		n.events.cut <- grpcstatus.Error(codes.Unavailable, "gone")
		n.events.with(grpcstatus.Error(codes.Unavailable, "still gone"))
		lists := n.runtime.lists()
		time.Sleep(time.Hour)
		if got := n.runtime.lists() - lists; got < 3500 {
			t.Errorf("%d relists in an hour without a stream, want one a second", got)
		}
		if ok, err := n.pleg.Healthy(); !ok {
			t.Errorf("unhealthy without a stream: %v", err)
		}
		n.events.with(nil)
		time.Sleep(70 * time.Second)
		n.runtime.show(pod("p", container("c", exited)))
		n.events.feed <- stopped("p", "", "c")
		n.expect("p c Died")
		var reasons []string
		for len(n.told.Events) > 0 {
			reasons = append(reasons, <-n.told.Events)
		}
		if len(reasons) != 2 {
			t.Errorf("told %q, want that the stream was lost and that it is back", reasons)
		}
	})
}
