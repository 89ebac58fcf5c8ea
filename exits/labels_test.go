// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

// TestAPodWithManyLabels: an API server takes a megabyte of labels in a pod, and many containers of
// it may end at once. The ledger has the labels that the selector asks for, and no others: with all
// of them, each write took hundreds of megabytes, and a file of more than 64 MiB is not read again.
func TestAPodWithManyLabels(t *testing.T) {
	for _, selector := range []string{"", "app=shop,tier notin (test),!none"} {
		t.Run(selector, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fakeruntime.Config{Seed: 46})
				chosen := func(c *Config[cri.PodStatus]) { c.Choice.Labels = selector }
				a := w.start(chosen)
				time.Sleep(time.Second)
				labels := map[string]string{"app": "shop", "tier": "front"}
				for i := range 2000 {
					labels[fmt.Sprint("label-", i)] = strings.Repeat("v", 63)
				}
				pod := must(w.runtime.AddPod(fakeruntime.PodSpec{Name: "p", Namespace: "ns", Labels: labels}))(t)
				const containers = 20
				var ids []string
				for i := range containers {
					id := must(w.runtime.AddContainer(pod, fakeruntime.ContainerSpec{Name: fmt.Sprint("c", i)}))(t)
					check(t, w.runtime.Start(id))
					ids = append(ids, id)
				}
				time.Sleep(5 * time.Second)
				for _, id := range ids {
					check(t, w.runtime.Exit(id, 1))
				}
				time.Sleep(400 * time.Millisecond)
				a.stop()
				if size := len(must(os.ReadFile(w.ledger))(t)); size > 1024*containers {
					t.Errorf("the ledger has %d bytes for %d ends", size, containers)
				}
				for _, id := range ids {
					check(t, w.runtime.Remove(id))
				}
				a = w.start(chosen)
				time.Sleep(30 * time.Second)
				if reports := a.stop(); len(reports) != containers || reports[0].outcome != Reported {
					t.Errorf("%d ends are told, want %d: %+v", len(reports), containers, reports)
				}
			})
		})
	}
}

// TestLabelsThatASelectorAsksFor: what it chooses by them is what it chooses by all.
func TestLabelsThatASelectorAsksFor(t *testing.T) {
	labels := map[string]string{"app": "shop", "tier": "front", "other": "x"}
	for selector, want := range map[string]map[string]string{
		"":                          nil,
		"absent":                    nil,
		"app=shop,!none":            {"app": "shop"},
		"tier notin (test),app!=db": {"app": "shop", "tier": "front"},
	} {
		c := must(Choice{Labels: selector}.checked())(t)
		if got := c.asked(labels); !maps.Equal(got, want) {
			t.Errorf("%q asks for %v, want %v", selector, got, want)
		}
	}
}
