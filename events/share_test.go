// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// in emits an event about a pod of a namespace.
func (r *rig) in(namespace, name string) {
	r.rec.Eventf(podIn(namespace, name), nil, corev1.EventTypeWarning, "BackOff", "Restart", "back-off")
}

// storedIn returns the number of events stored in the namespaces with a prefix.
func (r *rig) storedIn(prefix string) (n int) {
	for _, e := range r.server.Events() {
		if strings.HasPrefix(e.Namespace, prefix) {
			n++
		}
	}
	return n
}

// TestShareOfTheQueue: where a tenant's events fill the queue, those of other namespaces get in, up
// to an equal share, whichever comes first; a tenant alone may fill all of it.
func TestShareOfTheQueue(t *testing.T) {
	const room = 100
	flood := func(r *rig) {
		for i := range 10 * room {
			r.in("flood", fmt.Sprint("f", i))
		}
	}
	others := func(r *rig) {
		for i := range 3 {
			for ns := range 10 {
				r.in(fmt.Sprint("other-", ns), fmt.Sprint("o", i))
			}
		}
	}
	for _, tc := range []struct {
		name          string
		emit          []func(*rig)
		flood, others int
	}{
		{"alone", []func(*rig){flood}, room, 0},
		{"first", []func(*rig){flood, others}, room - 30, 30},
		{"last", []func(*rig){others, flood}, room - 30, 30},
		{"both", []func(*rig){flood, others, flood, others}, room - 30, 30},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(o *Options) { o.MaxQueue = room }, func(t *testing.T, r *rig) {
				r.server.SetFault(during(time.Minute, errAway))
				r.in("warm", "up") // nobody answers
				pass(time.Second)
				for _, emit := range tc.emit {
					emit(r)
				}
				emitted := r.Stats().Emitted
				pass(2 * time.Minute)
				if f, o := r.storedIn("flood"), r.storedIn("other-"); f < tc.flood-1 || f > tc.flood || o != tc.others {
					t.Errorf("stored %d of the flood and %d others, want %d and %d", f, o, tc.flood, tc.others)
				}
				count, _ := stored(r.server)
				dropped := r.Stats().Dropped
				if emitted != count+dropped[DropQueueFull] {
					t.Errorf("emitted %d, stored %d, dropped %v", emitted, count, dropped)
				}
				r.wantBooks(dropped[DropQueueFull], 0)
			})
		})
	}
}

// TestEqualShares: where all namespaces have the same share, what is there stays.
func TestEqualShares(t *testing.T) {
	bubble(t, func(o *Options) { o.MaxQueue = 6 }, func(t *testing.T, r *rig) {
		r.server.SetFault(during(time.Minute, errAway))
		for round := range 2 {
			for i := range 2 {
				for _, ns := range []string{"a", "b", "c"} {
					r.in(ns, fmt.Sprint(ns, round, i))
				}
			}
		}
		pass(2 * time.Minute)
		r.wantStored(6)
		for _, e := range r.server.Events() {
			if strings.HasPrefix(e.Regarding.Name[1:], "1") {
				t.Errorf("%s is stored in place of an earlier one", e.Regarding.Name)
			}
		}
		r.wantBooks(6, 0)
	})
}

// TestShareOfTheTable: where the last writes of a tenant's series fail, the table is open for the
// series of other namespaces, and these lose nothing.
func TestShareOfTheTable(t *testing.T) {
	bubble(t, func(o *Options) { o.MaxSeries, o.MaxQueue = 20, 1000 }, func(t *testing.T, r *rig) {
		r.server.SetTTL(1000 * time.Hour)
		fails := where(func(c eventstest.Call) bool {
			return c.Namespace == "bad" && c.Verb == eventstest.Patch
		}, always(errReset))
		r.server.SetFault(fails)
		var good int64
		for i := range 200 {
			for range 2 {
				r.in("bad", fmt.Sprint("b", i))
				r.in(fmt.Sprint("good-", i%7), fmt.Sprint("g", i))
				good++
				pass(2 * time.Second)
			}
		}
		dropped := r.Stats().Dropped
		if dropped[DropTableFull] == 0 {
			t.Error("the table was never full: the test proves nothing")
		}
		pass(20 * time.Minute)
		var count int64
		for _, e := range r.server.Events() {
			if strings.HasPrefix(e.Namespace, "good-") {
				count += look(&e).count
			}
		}
		if count != good {
			t.Errorf("of %d occurrences in other namespaces, %d are stored; dropped %v", good, count, dropped)
		}
		r.server.SetFault(nil)
		pass(2 * time.Hour)
		s := r.Stats()
		r.wantBooks(sum(s.Dropped), 0)
	})
}

// TestFloodBesideLoops: a tenant's flood of new series pushes out no series of others that go on,
// be they few or more than are looked at; a tenant alone may fill the table.
func TestFloodBesideLoops(t *testing.T) {
	for _, loops := range []int{1, 100} {
		bubble(t, func(o *Options) { o.MaxSeries = 5 * loops }, func(t *testing.T, r *rig) {
			r.server.SetTTL(100 * time.Hour)
			for minute := range 10 {
				for i := range loops {
					r.in(fmt.Sprint("quiet-", i), fmt.Sprint("loop-", i))
				}
				for i := range 60 {
					for j := range (loops + 9) / 10 {
						r.in("noisy", fmt.Sprint("n", minute, "-", i, "-", j))
					}
					pass(time.Second)
				}
			}
			if n := r.Stats().Transitions["evicted"]; n == 0 {
				t.Error("nothing was evicted: the test proves nothing")
			}
			pass(10 * time.Minute)
			for i := range loops {
				r.wantAbout(fmt.Sprint("loop-", i), "Finished ×10")
			}
			for i := range 6 * loops {
				r.in("alone", fmt.Sprint("a", i))
			}
			pass(time.Second)
			if n := r.core.table.aged.n; n != 5*loops {
				t.Errorf("a namespace alone has %d series in the table, of %d", n, 5*loops)
			}
		})
	}
}

// many is a number of elements of which a step may look at a few.
const many = 20000

// comparisons counts those that a heap makes from now on.
func comparisons[T any](h *indexed[T]) (n *int) {
	n = new(int)
	less := h.less
	h.less = func(a, b T) bool {
		*n++
		return less(a, b)
	}
	return n
}

// wantFew checks the comparisons of a step: some for each level of the heap.
func wantFew(t *testing.T, n int) {
	t.Helper()
	if levels := bits.Len(many); n > 4*levels {
		t.Errorf("a step makes %d comparisons among %d", n, many)
	}
}

// unlooked runs a step that may not look at what the test has taken away: a look panics.
func unlooked(t *testing.T, step func()) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("the step looks at what it does not need: %v", p)
		}
	}()
	step()
}

// TestFullOfNamespaces: where a part of the table is full, the place for a new series is found
// without a look at each namespace.
func TestFullOfNamespaces(t *testing.T) {
	h := newShares()
	for i := range many {
		(&series{content: content{namespace: fmt.Sprint("ns-", i/2)}}).hold(h)
	}
	for namespace := range h.by {
		h.by[namespace] = nil
	}
	n := comparisons(&h.bySize)
	unlooked(t, func() {
		s := &series{content: content{namespace: "new"}}
		if h.givesWay("new") == nil {
			t.Error("no place for a new namespace")
		}
		s.hold(h)
		s.hold(nil)
	})
	wantFew(t, *n)
}

// TestTimersOfManySeries: loops without tokens wait for half an hour; a loop that is written after
// ten seconds is put before them without a look at each.
func TestTimersOfManySeries(t *testing.T) {
	all := newTable()
	later := time.Now().Add(time.Hour)
	timed := func(due time.Time) *series {
		s := newSeries(&seriesKey{}, 0, source{}, &content{})
		s.st.due = due
		return s
	}
	for i := range many {
		all.hurry(timed(later.Add(time.Duration(i) * time.Second)))
	}
	n := comparisons(&all.hurried)
	soon := timed(later.Add(-time.Minute))
	all.hurry(soon)
	if all.hurried.items[0] != soon {
		t.Error("the earliest is not the first")
	}
	all.unhurry(soon)
	wantFew(t, *n)
}

// TestFirstWritesAfterAnOutage: series that were emitted long ago are put among loops that go on
// without a look at each of these, but by the first of them.
func TestFirstWritesAfterAnOutage(t *testing.T) {
	loops := newTable()
	now := time.Now()
	put := func(at time.Time) *series {
		s := newSeries(&seriesKey{}, 0, source{}, &content{})
		s.st.last = at
		loops.touch(s)
		return s
	}
	oldest := put(now)
	for i := range many {
		put(now.Add(time.Duration(i + 1)))
	}
	emitted := now.Add(-time.Hour)
	put(emitted)
	for x := oldest.age.next; x != loops.aged.last; x = x.next {
		x.owner = nil
	}
	unlooked(t, func() {
		for range 100 {
			emitted = emitted.Add(time.Second)
			put(emitted)
		}
	})
	if got := oldest.age.prev.owner.st.last; !got.Equal(emitted) {
		t.Errorf("before the loops is what was emitted at %v, want %v", got, emitted)
	}
}

// TestOrderOfAge: the longest quiet series comes first, whatever the order in which they come.
func TestOrderOfAge(t *testing.T) {
	all := newTable()
	for range 2000 {
		s := newSeries(&seriesKey{}, 0, source{}, &content{})
		s.st.last = time.Unix(rand.Int64N(1000), 0)
		all.touch(s)
		if rand.IntN(3) == 0 {
			all.unage(all.aged.first.owner)
		}
	}
	last := time.Time{}
	for x := all.aged.first; x != nil; x = x.next {
		if x.owner.st.last.Before(last) {
			t.Fatal("out of order")
		}
		last = x.owner.st.last
	}
}
