// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package evented

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

// The assertions of the kubelet's own tests of its generic PLEG, repeated for this PLEG. Its fakes
// give two pods a container of the same ID; a runtime never does, so the IDs differ here.

func TestListTellsWhatIsThereAndWhatChanges(t *testing.T) {
	for _, kind := range []string{"containers", "sandboxes"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				of := func(uid string, items ...*kubecontainer.Container) *kubecontainer.Pod {
					p := pod(uid, items...)
					if kind == "sandboxes" {
						p.Containers, p.Sandboxes = nil, items
					}
					return p
				}
				n := newNode(t, noEvents())
				n.runtime.show(
					of("1234", container("c1", exited), container("c2", running)),
					of("4567", container("d1", exited)))
				n.started().expect("1234 c1 Died", "1234 c2 Started", "4567 d1 Died")
				n.afterRelist()
				n.expect()
				n.runtime.show(
					of("1234", container("c2", exited), container("c3", running)),
					of("4567", container("d4", running)))
				n.afterRelist()
				n.expect(
					"1234 c1 Removed",
					"1234 c2 Died",
					"1234 c3 Started",
					"4567 d1 Removed",
					"4567 d4 Started",
				)
			})
		})
	}
}

// The kubelet's own discards its event of a container of unknown state; here that is a PodSync.
func TestListTellsNoStateOfCreatedAndUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, noEvents())
		n.runtime.show(pod("p", container("c1", created), container("c2", unknown)))
		n.started().expect("p PodSync")
		n.runtime.show(pod("p", container("c1", running), container("c2", running)))
		n.afterRelist()
		n.expect("p c2 Started") // the second start stands for both
	})
}

func TestListTellsDeathsItDidNotSee(t *testing.T) {
	for _, relists := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, noEvents())
			n.runtime.show(
				pod("p", container("c1", running), container("c2", running), container("c3", exited)),
			)
			n.started()
			for range relists {
				n.afterRelist()
			}
			n.take()
			n.runtime.show(pod("p", container("c1", running)))
			n.afterRelist()
			n.expect("p c2 Died", "p c2 Removed", "p c3 Removed")
			n.runtime.show()
			n.afterRelist()
			n.afterRelist() // a list that shows less than half is made again before it is believed
			n.expect("p c1 Died", "p c1 Removed")
		})
	}
}

// TestFailedInspectionIsTriedAgain: a list tells of a pod whose status cannot be read, and a
// PodSync follows the read that succeeds.
func TestFailedInspectionIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, noEvents())
		broken := errors.New("no status")
		n.runtime.with(func() { n.runtime.inspectErrs["p1"] = broken })
		n.runtime.show(pod("p0", container("c0", running)), pod("p1", container("c1", running)))
		n.started().expect("p0 c0 Started", "p1 c1 Started")
		if s, err := n.cache.Get("p0"); err != nil || len(s.ContainerStatuses) != 1 {
			t.Errorf("p0: status %v, error %v", s, err)
		}
		// The kubelet's asserts that the status beside the error is stored: a known defect, which
		// hands nil to readers.
		if s, err := n.cache.Get("p1"); !errors.Is(err, broken) || s == nil || s.ID != "p1" {
			t.Errorf("p1: status %v, error %v; want one that is not nil and %v", s, err, broken)
		}
		n.runtime.with(func() { delete(n.runtime.inspectErrs, "p1") })
		time.Sleep(3 * time.Second)
		n.expect("p1 PodSync")
		if s, err := n.cache.Get("p1"); err != nil || len(s.ContainerStatuses) != 1 {
			t.Errorf("p1: status %v, error %v", s, err)
		}
		n.runtime.with(func() { n.runtime.inspectErrs["p1"] = broken })
		n.pleg.RequestReinspect("p1")
		atOnce()
		if s, err := n.cache.Get("p1"); !errors.Is(err, broken) || len(s.ContainerStatuses) != 1 {
			t.Errorf("p1: status %v, error %v; want the last good one beside %v", s, err, broken)
		}
	})
}

func TestPodThatIsGoneLeavesTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, noEvents())
		n.runtime.show(pod("p", container("c", exited)))
		n.started()
		n.runtime.show()
		n.afterRelist()
		n.expect("p c Died", "p c Removed")
		if s, err := n.cache.Get("p"); err != nil || s.ID != "p" || s.Name != "" || s.ContainerStatuses != nil {
			t.Errorf("status %v, error %v; want an empty one of p", s, err)
		}
	})
}

func TestDeadPodKeepsItsIPs(t *testing.T) {
	for _, ips := range [][]string{{"192.168.1.5"}, {"192.168.1.5/24", "2000::"}} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, noEvents())
			n.runtime.with(func() { n.runtime.ips["p"] = ips })
			n.runtime.show(pod("p", container("c", running)))
			n.started().expect("p c Started")
			n.runtime.with(func() { delete(n.runtime.ips, "p") })
			n.runtime.show(pod("p", container("c", exited)))
			n.afterRelist()
			n.expect("p c Died")
			if s, _ := n.cache.Get("p"); strings.Join(s.IPs, ",") != strings.Join(ips, ",") {
				t.Errorf("IPs %v, want %v", s.IPs, ips)
			}
			p := pod("p", container("c", exited))
			p.Sandboxes = []*kubecontainer.Container{container("s", running)}
			n.runtime.show(p)
			n.afterRelist()
			if s, _ := n.cache.Get("p"); len(s.IPs) != 0 {
				t.Errorf("IPs %v, want none: a ready sandbox has lost them", s.IPs)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, noEvents())
		healthy := func(want bool, when string) {
			t.Helper()
			if ok, err := n.pleg.Healthy(); ok != want || ok != (err == nil) {
				t.Errorf("%s: Healthy says %v, %v; want %v", when, ok, err, want)
			}
		}
		healthy(false, "before Start")
		hang := make(chan struct{})
		n.runtime.with(func() { n.runtime.hang = hang })
		n.started()
		healthy(false, "before the first list")
		time.Sleep(10 * time.Minute)
		healthy(false, "ten minutes without a list")
		close(hang)
		time.Sleep(2 * time.Second)
		healthy(true, "after a list")
		n.runtime.with(func() { n.runtime.hang = make(chan struct{}) })
		time.Sleep(time.Minute)
		healthy(true, "a minute without a list")
		time.Sleep(3 * time.Minute)
		healthy(false, "more than RelistThreshold without a list")
	})
}

// registered registers the kubelet's metrics after the PLEG is made, like a kubelet with the gate
// on.
func registered(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(
		t,
		utilfeature.DefaultFeatureGate,
		features.EventDrivenPLEG,
		true,
	)
	synctest.Test(t, func(t *testing.T) { newNode(t, noEvents()) })
	metrics.Register()
}

func TestKubeletsGaugesFollow(t *testing.T) {
	registered(t)
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, noEvents())
		one := pod("1", container("c1", running), container("c2", unknown), container("c3", created))
		one.Sandboxes = []*kubecontainer.Container{container("s1", running), container("s2", running)}
		two := pod("2", container("d1", exited))
		two.Sandboxes = []*kubecontainer.Container{container("t1", running), container("t2", exited)}
		n.runtime.show(one, two)
		n.started() // and nobody asks Healthy
		time.Sleep(2 * gaugesDelay)
		synctest.Wait()
		check := func(each, pods int) { // each: the containers in each of the states
			t.Helper()
			want := fmt.Sprintf(`
# HELP kubelet_running_containers [ALPHA] Number of containers currently running
# TYPE kubelet_running_containers gauge
kubelet_running_containers{container_state="created"} %[1]d
kubelet_running_containers{container_state="exited"} %[1]d
kubelet_running_containers{container_state="running"} %[1]d
kubelet_running_containers{container_state="unknown"} %[1]d
# HELP kubelet_running_pods [ALPHA] Number of pods that have a running pod sandbox
# TYPE kubelet_running_pods gauge
kubelet_running_pods %[2]d
`, each, pods)
			if err := testutil.GatherAndCompare(metrics.GetGather(), strings.NewReader(want), "kubelet_running_containers", "kubelet_running_pods"); err != nil {
				t.Error(err)
			}
		}
		check(1, 2)
		n.runtime.show()
		n.afterRelist()
		n.afterRelist() // a list that shows less than half is made again before it is believed
		time.Sleep(2 * gaugesDelay)
		synctest.Wait()
		check(0, 0)
	})
}
