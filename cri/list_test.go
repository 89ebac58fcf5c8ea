// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"cmp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// sorted returns a listing in a comparable order.
func sorted(l pleg.Listing) pleg.Listing {
	for _, p := range l.Pods {
		slices.SortFunc(p.Items, func(a, b pleg.Item) int { return cmp.Compare(a.ID, b.ID) })
	}
	slices.SortFunc(l.Pods, func(a, b pleg.Pod) int { return cmp.Compare(a.UID, b.UID) })
	slices.Sort(l.Gone)
	return l
}

func mustList(t *testing.T, c *Client, since pleg.Revision) pleg.Listing {
	t.Helper()
	l, err := c.List(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	return sorted(l)
}

func TestListIsFullThenDelta(t *testing.T) {
	for name, streaming := range map[string]bool{"plain": false, "streaming": true} {
		t.Run(name, func(t *testing.T) {
			s := &stub{
				streaming: streaming, batch: 2,
				sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", ready), sandbox("s2", "u2", ready), sandbox("s3", "u3", ready)},
				containers: []*runtimeapi.Container{
					container("c1", "s1", "u1", running), container("c2", "s2", "u2", created), container("c3", "s3", "u3", exited),
				},
			}
			c := serve(t, s, Config{})
			pod := func(n string, items ...pleg.Item) pleg.Pod {
				return pleg.Pod{UID: cache.UID("u" + n), Name: "pod-u" + n, Namespace: "ns", Items: items}
			}
			item := func(id string, p pleg.Phase) pleg.Item {
				if id[0] == 's' {
					return pleg.Item{ID: id, Kind: pleg.Sandbox, Phase: p}
				}
				return pleg.Item{ID: id, Kind: pleg.Container, Phase: p, Name: "name-" + id}
			}
			first := mustList(t, c, 0)
			want := pleg.Listing{Revision: first.Revision, Total: 3, Pods: []pleg.Pod{
				pod("1", item("c1", pleg.PhaseRunning), item("s1", pleg.PhaseRunning)),
				pod("2", item("c2", pleg.PhaseCreated), item("s2", pleg.PhaseRunning)),
				pod("3", item("c3", pleg.PhaseExited), item("s3", pleg.PhaseRunning)),
			}}
			if d := gocmp.Diff(want, first); d != "" {
				t.Fatal(d)
			}
			same := mustList(t, c, first.Revision)
			if d := gocmp.Diff(pleg.Listing{Revision: same.Revision, Delta: true, Total: 3}, same); d != "" {
				t.Fatal(d)
			}
			s.set(func() {
				s.containers[0] = container("c1", "s1", "u1", exited)
				s.sandboxes = append(s.sandboxes[:1], s.sandboxes[2:]...) // s2 is gone with c2
				s.containers = append(s.containers[:1], s.containers[2:]...)
				s.sandboxes = append(s.sandboxes, sandbox("s4", "u4", notReady))
				slices.Reverse(s.containers)
				slices.Reverse(s.sandboxes)
			})
			next := mustList(t, c, same.Revision)
			want = pleg.Listing{Revision: next.Revision, Delta: true, Total: 3, Gone: []cache.UID{"u2"}, Pods: []pleg.Pod{
				pod("1", item("c1", pleg.PhaseExited), item("s1", pleg.PhaseRunning)),
				pod("4", item("s4", pleg.PhaseExited)),
			}}
			if d := gocmp.Diff(want, next); d != "" {
				t.Fatal(d)
			}
			// An older revision gets everything.
			again := mustList(t, c, same.Revision)
			if again.Delta || len(again.Pods) != 3 || again.Total != 3 {
				t.Fatalf("listing since an old revision: %+v", again)
			}
		})
	}
}
