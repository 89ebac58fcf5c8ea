// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2/textlogger"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// A kubelet removes dead containers when ContainerDied names them. So ends swallowed by an overflow
// are sent beside the PodSync in their place, and no end is sent twice.
func TestOverflowSwallowsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, noEvents())
		const pods = 1200 // more than Watch holds
		show := func(state kubecontainer.State) {
			var all []*kubecontainer.Pod
			for i := range pods {
				all = append(all, pod(fmt.Sprint(i), container(fmt.Sprint("c", i), state)))
			}
			n.runtime.show(all...)
		}
		show(running)
		n.started()
		n.take()
		show(exited)
		for range 3 { // nobody reads Watch
			n.afterRelist()
		}
		if s := n.pleg.core.Stats(); s.Owed == 0 {
			t.Fatal("Watch did not overflow")
		}
		died := make(map[string]int)
		syncs := 0
		for _, told := range n.take() {
			if fields := strings.Fields(told); fields[len(fields)-1] == "Died" {
				died[fields[1]]++
			} else {
				syncs++
			}
		}
		if len(died) != pods || syncs == 0 {
			t.Errorf("the ends of %d containers of %d were told, beside %d syncs", len(died), pods, syncs)
		}
		for id, times := range died {
			if times != 1 {
				t.Errorf("the end of %s was told %d times", id, times)
			}
		}
		n.pleg.RequestReinspect("7")
		time.Sleep(time.Second)
		n.expect("7 PodSync")
		n.runtime.show()
		n.afterRelist()
		if got := n.take(); slices.ContainsFunc(got, func(e string) bool { return strings.HasSuffix(e, "Died") }) {
			t.Errorf("of containers that are gone the end was told again: %q", got[:3])
		}
	})
}

// TestSandboxEndIsRepeated covers the removal of a deleted pod's containers: a kubelet that hears
// of the sandbox's end too early hears of it again, as soon as its worker has left
// SyncTerminatingPod, while there are ended containers to remove.
func TestSandboxEndIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, noEvents())
		with := func(sandbox *kubecontainer.Container, containers ...*kubecontainer.Container) *kubecontainer.Pod {
			p := pod("p", containers...)
			p.Sandboxes = []*kubecontainer.Container{sandbox}
			return p
		}
		// The wait of the worker as it leaves a step. The status is new enough: a bubble's times have no
		// monotonic reading.
		worker := func() {
			if _, err := n.cache.GetNewerThan("p", time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		n.runtime.show(with(container("s", running), container("c", running)))
		n.started().expect("p c Started", "p s Started")
		worker() // into SyncTerminatingPod
		n.expect()
		n.runtime.show(with(container("s", exited), container("c", exited)))
		n.afterRelist()
		n.expect("p c Died", "p s Died")
		time.Sleep(repeatAfter[0])
		n.expect("p s Died")           // for a pod that the kubelet does not know
		time.Sleep(repeatAfter[1] / 2) // a slow StopPodSandbox
		n.expect()
		worker()
		n.expect("p s Died")
		for range 5 { // a pod that cannot start, whose worker is woken by each event
			worker()
		}
		n.expect("p s Died")
		time.Sleep(repeatAfter[1] / 2)
		n.expect("p s Died")
		time.Sleep(time.Minute)
		n.expect()

		n.runtime.show(with(container("s2", running), container("c2", running)))
		n.afterRelist()
		n.take()
		n.runtime.show(with(container("s2", exited), container("c2", exited)))
		n.afterRelist()
		n.take()
		worker()
		n.expect("p s2 Died")
		n.runtime.show(with(container("s2", exited))) // all removed in time
		n.afterRelist()
		n.expect("p c2 Removed")
		worker()
		time.Sleep(time.Minute)
		n.expect()
	})
}

func TestFinishedContainersAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, noEvents())
		n.runtime.show(pod("p", container("c", exited)))
		n.started()
		var log bytes.Buffer
		p := &pump{
			g: n.pleg, reportedEnds: make(map[types.UID]map[string]int),
			log: textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(2))),
		}
		p.events(pleg.Event{Pod: "p", Namespace: "ns", PodName: "web", ContainerName: "app", Type: pleg.ContainerDied, ID: "c", Kind: pleg.Container})
		for _, want := range []string{"container finished", `pod="ns/web"`, `podID="p"`, `containerName="app"`, `containerID="c"`, "exitCode=0"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %s: %s", want, log.String())
			}
		}
	})
}

// The kubelet's own histogram ends at 10 s, and a trusted stream relists every 300 s.
func TestIntervalsReachTheLongestPeriod(t *testing.T) {
	registered(t)
	families, err := metrics.GetGather().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "kubelet_pleg_relist_interval_seconds" {
			continue
		}
		buckets := f.GetMetric()[0].GetHistogram().GetBucket()
		if last := buckets[len(buckets)-1].GetUpperBound(); last < 300 {
			t.Errorf("the last bucket ends at %v", last)
		}
		return
	}
	t.Error("the histogram is not served")
}

func TestLastSeenIsTheLastList(t *testing.T) {
	registered(t)
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, noEvents())
		n.started()
		listed := n.pleg.core.Stats().LastRelist
		n.runtime.with(func() { n.runtime.hang = make(chan struct{}) })
		time.Sleep(time.Minute)
		if ok, err := n.pleg.Healthy(); !ok {
			t.Fatal(err)
		}
		families, err := metrics.GetGather().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "kubelet_pleg_last_seen_seconds" {
				if got := f.GetMetric()[0].GetGauge().GetValue(); got != float64(listed.Unix()) {
					t.Errorf("last seen at %.0f, want %d, when the last list succeeded", got, listed.Unix())
				}
			}
		}
		close(n.runtime.hang)
	})
}
