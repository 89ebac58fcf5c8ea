// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkGroups returns an error unless each item is in the groups of its pod and its sandbox, and
// nothing else is.
func checkGroups[E any](t *table[E]) error {
	filed := 0
	for _, group := range []struct {
		ids groups
		key func(E) string
	}{
		{t.byPod, func(e E) string { return t.labels(e)[PodUIDLabel] }},
		{t.bySandbox, t.sandbox},
	} {
		for key, ids := range group.ids {
			for id := range ids {
				x := t.items[id]
				if x == nil || group.key(x.element) != key {
					return fmt.Errorf("%s is in the group %q wrongly", id, key)
				}
				filed++
			}
			if len(ids) == 0 {
				return fmt.Errorf("the group %q is empty", key)
			}
		}
	}
	for id, x := range t.items {
		if t.labels(x.element)[PodUIDLabel] != "" {
			filed--
		}
		if t.sandbox(x.element) != id && t.sandbox(x.element) != "" {
			filed--
		}
	}
	if filed != 0 {
		return fmt.Errorf("%d entries of groups too many", filed)
	}
	return nil
}

// podsNode is a node of one sandbox and one container a pod, listed and served from memory.
func podsNode(pods int) (*Ledger, []*runtimeapi.Container) {
	l := New(time.Hour)
	l.Trust(true)
	var sandboxes []*runtimeapi.PodSandbox
	var containers []*runtimeapi.Container
	for i := range pods {
		labels := map[string]string{
			PodUIDLabel:              fmt.Sprint("uid-", i),
			"io.kubernetes.pod.name": fmt.Sprint("pod-", i),
		}
		sandboxes = append(sandboxes, &runtimeapi.PodSandbox{Id: fmt.Sprint("s-", i), Labels: labels})
		containers = append(containers, &runtimeapi.Container{
			Id:           fmt.Sprint("c-", i),
			PodSandboxId: fmt.Sprint("s-", i),
			State:        runtimeapi.ContainerState_CONTAINER_RUNNING,
			Labels:       labels,
		})
	}
	now := time.Unix(1000, 0)
	l.Sandboxes(l.Begin(now), nil, sandboxes, now)
	l.Containers(l.Begin(now), nil, containers, now)
	return l, containers
}

// TestAPodsListIsInOrder: the list of a pod is served in the same order whatever has come and gone.
func TestAPodsListIsInOrder(t *testing.T) {
	l, _ := podsNode(0)
	now := time.Unix(1000, 0)
	labels := map[string]string{PodUIDLabel: "uid"}
	var all []*runtimeapi.Container
	for _, id := range []string{"d", "b", "e", "a", "c"} {
		all = append(all, &runtimeapi.Container{
			Id:     id,
			State:  runtimeapi.ContainerState_CONTAINER_RUNNING,
			Labels: labels,
		})
	}
	l.Containers(l.Begin(now), nil, all, now)
	l.Containers(l.Begin(now), nil, all[1:], now)
	got, v := l.ServeContainers(&runtimeapi.ContainerFilter{LabelSelector: labels}, now)
	var ids []string
	for _, c := range got {
		ids = append(ids, c.GetId())
	}
	if !slices.IsSorted(ids) || len(ids) != 4 {
		t.Errorf("served %q, %+v, want four in order", ids, v)
	}
}

// BenchmarkPodsList takes and serves the list of one pod on nodes of two sizes, and reports how
// much more the larger costs: a list of one pod costs what the pod has.
func BenchmarkPodsList(b *testing.B) {
	filter := &runtimeapi.ContainerFilter{LabelSelector: map[string]string{PodUIDLabel: "uid-5"}}
	now := time.Unix(1000, 0)
	for name, do := range map[string]func(*Ledger, []*runtimeapi.Container){
		"taken": func(l *Ledger, all []*runtimeapi.Container) {
			l.Containers(l.Begin(now), filter, all[5:6], now)
		},
		"served": func(l *Ledger, _ []*runtimeapi.Container) {
			if got, v := l.ServeContainers(filter, now); len(got) != 1 {
				b.Fatal(len(got), v)
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			var took [2]time.Duration
			nodes := [2]int{100, 10000}
			rounds := 0
			ledgers := make([]*Ledger, len(nodes))
			lists := make([][]*runtimeapi.Container, len(nodes))
			for i, pods := range nodes {
				ledgers[i], lists[i] = podsNode(pods)
			}
			for b.Loop() {
				rounds++
				for i := range nodes {
					begun := time.Now()
					do(ledgers[i], lists[i])
					took[i] += time.Since(begun)
				}
			}
			b.ReportMetric(float64(took[1])/float64(max(took[0], 1)), "x-of-100-pods")
			b.ReportMetric(float64(took[1].Nanoseconds())/float64(rounds), "ns/10000-pods")
		})
	}
}
