// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sumWorld is a node listed in another order each time.
type sumWorld struct {
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
}

func newSumWorld() *sumWorld {
	w := new(sumWorld)
	for i := range 20 {
		s, cs := nodePod(i, 2, running)
		w.sandboxes, w.containers = append(w.sandboxes, s), append(w.containers, cs...)
	}
	return w
}

func (w *sumWorld) encode(t *testing.T, r *rand.Rand) (list [2][]byte) {
	t.Helper()
	r.Shuffle(len(w.sandboxes), func(i, j int) { w.sandboxes[i], w.sandboxes[j] = w.sandboxes[j], w.sandboxes[i] })
	r.Shuffle(len(w.containers), func(i, j int) { w.containers[i], w.containers[j] = w.containers[j], w.containers[i] })
	for i, m := range []proto.Message{
		&runtimeapi.ListPodSandboxResponse{Items: w.sandboxes}, &runtimeapi.ListContainersResponse{Containers: w.containers},
	} {
		var err error
		if list[i], err = proto.Marshal(m); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// TestSumKnowsUnchangedLists lists an unchanged node until its sum is known, and changes the node
// in every way. The next list must miss by the sum and equal the generated decoder's result, and
// the sum must be tried again after a quiet list.
func TestSumKnowsUnchangedLists(t *testing.T) {
	changes := map[string]struct {
		change                func(*sumWorld)
		sandboxes, containers bool // whether the sum still knows the list
	}{
		"nothing": {func(*sumWorld) {}, true, true},
		"an annotation": {func(w *sumWorld) {
			w.containers[3].Annotations["x"], w.sandboxes[3].Annotations["x"] = "y", "y"
		}, true, true},
		"a container exits":    {func(w *sumWorld) { w.containers[3].State = exited }, true, false},
		"a sandbox ends":       {func(w *sumWorld) { w.sandboxes[3].State = notReady }, false, true},
		"a container is gone":  {func(w *sumWorld) { w.containers = w.containers[1:] }, true, false},
		"a sandbox is gone":    {func(w *sumWorld) { w.sandboxes = w.sandboxes[1:] }, false, true},
		"all containers gone":  {func(w *sumWorld) { w.containers = nil }, true, false},
		"twice one, other not": {func(w *sumWorld) { w.containers[0] = w.containers[1] }, true, false},
		"one twice":            {func(w *sumWorld) { w.containers = append(w.containers, w.containers[1]) }, true, false},
		"sandboxes, likewise":  {func(w *sumWorld) { w.sandboxes[0] = w.sandboxes[1] }, false, true},
		"two swap pods": {func(w *sumWorld) {
			a, b := w.containers[0].Labels, w.containers[20].Labels
			a[labelPodUID], b[labelPodUID] = b[labelPodUID], a[labelPodUID]
		}, true, false},
		"a pod is renamed": {func(w *sumWorld) { w.sandboxes[0].Metadata.Name = "other" }, false, true},
		"a sandbox of a container's ID": {func(w *sumWorld) {
			s, _ := nodePod(99, 0, running)
			s.Id = w.containers[0].Id
			w.sandboxes = append(w.sandboxes, s)
		}, false, false},
	}
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			w := newSumWorld()
			x, byID := newIndex(), new(unlabelled)
			have := view{}
			list := func(sandboxes, containers bool) {
				t.Helper()
				l := w.encode(t, r)
				listing, ok := x.list(cut(l[0], 777), cut(l[1], 777), x.revision, byID)
				if !ok {
					t.Fatal("the list was refused")
				}
				have = have.apply(t, listing)
				want, _, _ := decodeList(l[0], l[1])
				if len(want) != len(have) {
					t.Errorf("%d pods, want %d", len(have), len(want))
				}
				for uid, items := range want {
					if len(items) != len(have[uid]) {
						t.Errorf("pod %s has %d items, want %d", uid, len(have[uid]), len(items))
					}
					for key, item := range items {
						if have[uid][key] != item {
							t.Errorf("pod %s shows %+v, want %+v", uid, have[uid][key], item)
						}
					}
				}
				if a, b := x.sandboxTable.allShownBy == x.round, x.containerTable.allShownBy == x.round; a != sandboxes || b != containers {
					t.Errorf("known by their sums: sandboxes %v, containers %v; want %v and %v", a, b, sandboxes, containers)
				}
				x.check(t)
			}
			list(false, false)
			list(false, false)
			list(true, true)
			c.change(w)
			list(c.sandboxes, c.containers)
			for range 3 { // item by item, until nothing has changed in a whole list
				l := w.encode(t, r)
				if listing, ok := x.list(cut(l[0], 777), cut(l[1], 777), x.revision, byID); !ok || len(listing.Pods)+len(listing.Gone) > 0 {
					t.Errorf("an unchanged list shows changes, or is refused (%v): %+v", ok, listing)
				}
				x.check(t)
			}
		})
	}
}
