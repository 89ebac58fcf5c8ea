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

// A kubelet's PLEG discards events that find its channel full: a known defect. Here each pod with
// a lost event is owed a PodSync, and a full channel is no reason to be unhealthy. A kubelet
// removes dead containers when ContainerDied names them. So ends swallowed by an overflow are
// sent beside the PodSync in their place, and no end is sent twice.
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
		if ok, err := n.pleg.Healthy(); !ok {
			t.Errorf("unhealthy with nobody reading Watch: %v", err)
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

// withSandbox returns the pod p.
func withSandbox(sandbox *kubecontainer.Container, containers ...*kubecontainer.Container) *kubecontainer.Pod {
	p := pod("p", containers...)
	p.Sandboxes = []*kubecontainer.Container{sandbox}
	return p
}

// TestSandboxEndIsRepeated covers the removal of a deleted pod's containers: a kubelet hears of
// the sandbox's end too early, and again once its worker has left SyncTerminatingPod.
func TestSandboxEndIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		leaves time.Duration // the worker leaves so long after the sandbox's end
		within time.Duration // the event must be repeated so soon afterwards; 0: not at all
	}{
		"the worker left before":   {0, 0},
		"a pod unknown to workers": {30 * time.Millisecond, 50 * time.Millisecond},
		"a worker on a full node":  {7 * time.Second, slowQuestion},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, noEvents())
				n.runtime.show(withSandbox(container("s", running), container("c", running)))
				n.started().expect("p c Started")
				n.removable.Store(c.leaves == 0)
				n.runtime.show(withSandbox(container("s", exited), container("c", exited)))
				n.afterRelist()
				n.expect("p c Died", "p s Died")
				time.Sleep(c.leaves)
				n.expect()
				n.removable.Store(true)
				time.Sleep(c.within)
				if c.within > 0 {
					n.expect("p s Died")
				}
				time.Sleep(repeatAfter - 2*slowQuestion)
				n.expect()
				time.Sleep(2 * slowQuestion) // the kubelet dropped the removal
				n.expect("p s Died")
				n.runtime.show(withSandbox(container("s", exited))) // all removed
				n.afterRelist()
				n.expect("p c Removed")
				time.Sleep(askFor)
				n.expect()
			})
		})
	}
}

// A container may end after the sandbox, and the worker leave after both.
func TestSandboxEndIsRepeatedForALaterContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, noEvents())
		n.runtime.show(withSandbox(container("s", running), container("c", running)))
		n.started().expect("p c Started")
		n.runtime.show(withSandbox(container("s", exited), container("c", running)))
		n.afterRelist()
		n.expect("p s Died")
		n.runtime.show(withSandbox(container("s", exited), container("c", exited)))
		n.afterRelist()
		n.expect("p c Died")
		n.removable.Store(true)
		time.Sleep(slowQuestion)
		n.expect("p s Died")
	})
}

// A pod that only starts anew, or that has ended and is not deleted, keeps its containers, and is
// not asked about for ever.
func TestSandboxEndIsNotRepeated(t *testing.T) {
	for name, later := range map[string]*kubecontainer.Pod{
		"a new sandbox": withSandbox(container("s2", running), container("c", exited)),
		"a job's pod":   withSandbox(container("s", exited), container("c", exited)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, noEvents())
				n.runtime.show(withSandbox(container("s", running), container("c", running)))
				n.started().expect("p c Started")
				n.runtime.show(withSandbox(container("s", exited), container("c", exited)))
				n.afterRelist()
				n.expect("p c Died", "p s Died")
				n.runtime.show(later)
				time.Sleep(10 * slowQuestion)
				n.take()
				time.Sleep(askFor)
				asked := n.asked.Load()
				if asked < 2 {
					t.Errorf("asked %d times", asked)
				}
				n.removable.Store(true)
				time.Sleep(askFor)
				if n.expect(); n.asked.Load() != asked {
					t.Errorf("asked %d times, and %d a minute later", asked, n.asked.Load())
				}
			})
		})
	}
}

func TestFinishedContainersAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, noEvents())
		n.runtime.show(pod("p", container("c", exited)))
		n.started()
		var log bytes.Buffer
		p := &pump{
			g: n.pleg, reportedEnds: make(map[types.UID]map[string]bool),
			log: textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(2))),
		}
		p.events(
			pleg.Event{
				Pod:           "p",
				Namespace:     "ns",
				PodName:       "web",
				ContainerName: "app",
				Type:          pleg.ContainerDied,
				ID:            "c",
				Kind:          pleg.Container,
			},
		)
		for _, want := range []string{"container finished", `pod="ns/web"`, `podID="p"`, `containerName="app"`, `containerID="c"`, "exitCode=0"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %s: %s", want, log.String())
			}
		}
	})
}

// served returns a metric of the kubelet's registry: a gauge's value, a histogram's last bound.
func served(t *testing.T, name string) (value, last float64) {
	t.Helper()
	families, err := metrics.GetGather().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		m := f.GetMetric()[0]
		for _, b := range m.GetHistogram().GetBucket() {
			last = b.GetUpperBound()
		}
		return m.GetGauge().GetValue(), last
	}
	t.Fatalf("%s is not served", name)
	return 0, 0
}

// The kubelet's own histogram ends at 10 s, and a trusted stream relists every 300 s.
func TestIntervalsReachTheLongestPeriod(t *testing.T) {
	registered(t)
	if _, last := served(t, "kubelet_pleg_relist_interval_seconds"); last < 300 {
		t.Errorf("the last bucket ends at %v", last)
	}
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
		if got, _ := served(t, "kubelet_pleg_last_seen_seconds"); got != float64(listed.Unix()) {
			t.Errorf("last seen at %.0f, want %d, when the last list succeeded", got, listed.Unix())
		}
		close(n.runtime.hang)
	})
}
