// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"slices"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// TestOwnerConflicts: an ID that moves between pods, as it does when lists lack metadata for a
// while, is found by lists that tell only differences as it would be by lists that tell everything.
// The case decides what the reads say; then a list says nothing new, twice.
func TestOwnerConflicts(t *testing.T) {
	s, c := Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}, Item{ID: "c", Kind: Container, Phase: PhaseRunning}
	for name, tc := range map[string]struct {
		reads func(w *moving)
		want  map[cache.UID][]Item
	}{
		"a list shows it where it belongs while another pod holds it": {
			func(w *moving) {
				w.list(Pod{UID: "p", Items: []Item{s}}, Pod{UID: "q", Items: []Item{c}})
				w.readBegins("q")
				w.listOf(0, Pod{UID: "p", Items: []Item{s, c}}, Pod{UID: "q"}) // began at the same instant
				w.read("p", s, c)
			},
			map[cache.UID][]Item{"p": {s, c}},
		},
		"a read of one pod takes it from the pod that lists show it in": {
			func(w *moving) {
				w.list(Pod{UID: "p", Items: []Item{s, c}})
				w.read("q", c)
			},
			map[cache.UID][]Item{"p": {s, c}}, // the later list, which says so by its silence
		},
		"it does not move": {
			func(w *moving) { w.list(Pod{UID: "p", Items: []Item{s, c}}) },
			map[cache.UID][]Item{"p": {s, c}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMoving()
			tc.reads(w)
			for range 2 {
				w.list()
			}
			for _, uid := range []cache.UID{"p", "q"} {
				var live []Item
				if p := w.core.pods[uid]; p != nil {
					for _, x := range p.items {
						if x.phase != PhaseRemoved {
							live = append(live, Item{ID: x.id, Kind: x.kind, Phase: x.phase})
						}
					}
				}
				if !slices.Equal(live, tc.want[uid]) {
					t.Errorf("pod %s is known as %v, want %v", uid, live, tc.want[uid])
				}
			}
			w.list(Pod{UID: "p"}, Pod{UID: "q"})
			for range 5 {
				w.now += instant(time.Hour)
				w.tick(w.now)
				w.list()
			}
			for uid, p := range w.core.pods {
				if len(p.conflicts) > 0 {
					t.Errorf("pod %s is gone, and remembers %v", uid, p.conflicts)
				}
			}
		})
	}
}

// TestReassignedIDs: of an ID that moves between pods every event is told once, and each pod that
// it leaves or comes to hears of it, as a PodSync where no event is left to tell, and not before
// the cache shows the move.
func TestReassignedIDs(t *testing.T) {
	s, c := Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}, Item{ID: "c", Kind: Container, Phase: PhaseRunning}
	dead := Item{ID: "s", Kind: Sandbox, Phase: PhaseExited}
	w := newMoving()
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"they start", func() {
			w.list(Pod{UID: "p", Items: []Item{s, c}})
			w.read("p", s, c)
		}, []string{"p ContainerStarted s", "p ContainerStarted c"}},
		{"a list shows s in another pod", func() {
			w.list(Pod{UID: "p", Items: []Item{c}}, Pod{UID: "q", Items: []Item{s}})
		}, nil},
		{"that one is read", func() { w.read("q", s) }, []string{"q PodSync "}},
		{"the first one is read, and c has gone too", func() { w.read("p") }, []string{"p ContainerDied c", "p ContainerRemoved c", "p PodSync "}},
		{"it has been told", func() { w.read("p") }, nil},
		{"s ends", func() { w.read("q", dead) }, []string{"q ContainerDied s"}},
		{"s is where it was", func() { w.list(Pod{UID: "p", Items: []Item{dead}}, Pod{UID: "q"}) }, nil},
		{"the second one is read", func() { w.read("q") }, []string{"q PodSync "}},
		{"and the first", func() { w.read("p", dead) }, []string{"p PodSync "}},
		{"s goes", func() { w.read("p") }, []string{"p ContainerRemoved s"}},
	} {
		step.do()
		if told := w.told(); !slices.Equal(told, step.want) {
			t.Errorf("%s: Watch is told %q, want %q", step.name, told, step.want)
		}
	}
}

// TestForeignID: a status shows an ID that another pod's read, begun in the same instant, has shown
// there. It stays that one's, and so nothing is left that the pod would be read or remembered for;
// but the cache shows it, so that it must be read again, and Watch must hear when the cache no
// longer does.
func TestForeignID(t *testing.T) {
	s := Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}
	w := newMoving()
	w.list(Pod{UID: "q", Items: []Item{s}})
	w.read("q", s)
	shown := Pod{UID: "p", Items: []Item{s}}
	w.onInspected(&inspected[status]{
		uid: "p", began: w.core.pods["q"].read, listing: &shown, status: &status{UID: "p", Items: shown.Items}, shows: shown,
	}, w.now+1)
	if shown, _ := w.cache.Get("p"); len(shown.Items) != 1 {
		t.Fatalf("the cache shows %v: this test is about something else", shown)
	}
	w.now += instant(100 * time.Millisecond) // no list is due yet
	w.begun = nil
	w.tick(w.now)
	if !slices.ContainsFunc(w.begun, func(a action[status]) bool { return a.kind == actInspect && a.uid == "p" && !a.read.builds }) {
		t.Errorf("p is not read again, or what its status shows may be taken over; to do: %v", w.begun)
	}
	w.told()
	w.read("p")
	if shown, _ := w.cache.Get("p"); len(shown.Items) != 0 {
		t.Errorf("after a read that shows nothing, the cache shows %v", shown)
	}
	if told, want := w.told(), []string{"p PodSync "}; !slices.Equal(told, want) {
		t.Errorf("Watch is told %q, want %q", told, want)
	}
	if w.core.pods["p"] != nil {
		t.Error("p has gone and is remembered")
	}
}

// TestStatusOfNothing: a source has a status of a pod and names no ID in it. It goes with the pod
// all the same.
func TestStatusOfNothing(t *testing.T) {
	w := newMoving()
	w.list(Pod{UID: "q", Items: []Item{{ID: "s", Kind: Sandbox, Phase: PhaseRunning}}})
	w.read("p", Item{Kind: Sandbox, Phase: PhaseRunning})
	if uids := w.cache.UIDs(); !slices.Contains(uids, "p") {
		t.Fatalf("the cache has %q: this test is about something else", uids)
	}
	w.list(Pod{UID: "p"})
	if uids := w.cache.UIDs(); slices.Contains(uids, "p") {
		t.Errorf("p has gone, and the cache has %q", uids)
	}
}

// moving is a core whose reads a test makes up.
type moving struct {
	*driver[status]
	now      instant
	revision Revision
}

func newMoving() *moving {
	toy := newToy()
	cfg := Config[status]{Source: toy, Stream: toy, Cache: cache.New(func(uid cache.UID) *status { return &status{UID: uid} }), Jitter: -1}
	w := &moving{driver: newDriver(cfg, clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}), now: 1}
	w.start(w.now)
	return w
}

// told returns what Watch has been told since the last time.
func (w *moving) told() []string {
	var told []string
	for e := range w.watched {
		told = append(told, string(e.Pod)+" "+string(e.Type)+" "+e.ID)
	}
	return told
}

// list applies a list that tells of these pods, those without items being gone.
func (w *moving) list(pods ...Pod) { w.listOf(instant(time.Millisecond), pods...) }

func (w *moving) listOf(later instant, pods ...Pod) {
	w.now += later
	began := w.now
	l := Listing{Revision: w.revision + 1, Delta: w.revision != 0}
	w.revision++
	for _, p := range pods {
		if len(p.Items) == 0 {
			l.Gone = append(l.Gone, p.UID)
		} else {
			l.Pods = append(l.Pods, p)
		}
	}
	w.now += instant(time.Millisecond)
	w.onListed(&listedAll{began: began, listing: l}, w.now)
}

// readBegins notes that a read of the pod, which found it unchanged, began at this instant.
func (w *moving) readBegins(uid cache.UID) {
	w.now += instant(time.Millisecond)
	p := w.core.ensure(uid)
	w.core.merge(p, listingOf(p), w.now, w.now, byPod)
	w.settle()
}

// read applies a read of one pod.
func (w *moving) read(uid cache.UID, items ...Item) {
	w.now += instant(time.Millisecond)
	shown := Pod{UID: uid, Items: items}
	w.onInspected(&inspected[status]{
		uid: uid, began: w.now, listing: &shown, status: &status{UID: uid, Items: items}, shows: shown,
	}, w.now+1)
}

// TestAReadOfOnePodSaysNothingOfAnothersState: a read that shows another pod's ID, and began before
// that pod was last read, does not put in question what the other pod's status does not know:
// nobody would read that pod for it.
func TestAReadOfOnePodSaysNothingOfAnothersState(t *testing.T) {
	s, c := Item{ID: "s", Kind: Sandbox, Phase: PhaseRunning}, Item{ID: "c", Kind: Container, Phase: PhaseRunning}
	w := newMoving()
	for _, items := range [][]Item{{s, c}, {s, phased(c, PhaseUnknown)}} {
		w.list(Pod{UID: "p", Items: items})
		w.read("p", items...)
	}
	p, x := w.core.pods["p"], w.core.index["c"]
	if !x.statusUnknown || p.unsure() {
		t.Fatalf("the status does not know the state of c, and the pod is to be read: %+v", x)
	}
	w.core.merge(w.core.ensure("q"), []Item{c}, p.read-1, w.now, byPod)
	if x.pod != p || p.unsure() {
		t.Errorf("a read of another pod has the pod of c read, which is not open: %+v", x)
	}
}
