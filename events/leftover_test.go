// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// TestLeftovers: a series may continue the latest of its objects, in whatever order a roster names
// them, and no other one once that is gone.
func TestLeftovers(t *testing.T) {
	id := seriesID{1, 2, 3, 4}
	other := seriesID{5}
	born := time.Unix(1_700_000_000, 0)
	object := func(id seriesID, after time.Duration) leftover {
		return leftover{path: "ns/" + eventName("web", &id, born.Add(after))}
	}
	objects := []leftover{object(id, 0), object(id, time.Second), object(id, 2*time.Second)}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		var l leftovers
		for _, i := range order {
			l.add(objects[i])
		}
		l.add(object(other, 0))
		latest, ok := l.latest(id.hint())
		if !ok || latest.path != objects[2].path {
			t.Errorf("added in the order %v: the series continues %q, %v", order, latest.path, ok)
		}
		if taken := l.takeOf(id.hint()); taken.path != objects[2].path {
			t.Errorf("added in the order %v: %q is taken", order, taken.path)
		}
		if older, ok := l.latest(id.hint()); ok {
			t.Errorf("added in the order %v: then the series continues %q", order, older.path)
		}
		var rest []string
		for one := range l.all() {
			rest = append(rest, one.path)
		}
		slices.Sort(rest)
		want := []string{objects[0].path, objects[1].path, object(other, 0).path}
		slices.Sort(want)
		if !slices.Equal(rest, want) || l.n != 3 {
			t.Errorf("%d are left, %v, want %v", l.n, rest, want)
		}
	}
}

// TestLeftoverOfAnotherForm: an object is left alone whose name this package has not made.
func TestLeftoverOfAnotherForm(t *testing.T) {
	for _, path := range []string{"ns/web", "ns/", "ns/web.short", "ns/web.0123456789abcdef0123456z"} {
		var l leftovers
		l.add(leftover{path: path})
		if l.n != 0 || len(l.by) != 0 {
			t.Errorf("%q is taken for an object of a series", path)
		}
	}
}

// TestLineOfARoster: what a process has written of a series is what the next one reads.
func TestLineOfARoster(t *testing.T) {
	born := time.UnixMicro(1_700_000_000_123_456)
	path := "ns/" + eventName("web", &seriesID{1, 2, 3, 4}, born)
	for _, version := range []string{"", "4711"} {
		for _, loose := range []bool{false, true} {
			written := leftover{path: path, found: found{
				count:   3,
				begun:   born,
				last:    born.Truncate(time.Millisecond).Add(time.Minute),
				loose:   loose,
				version: version,
			}}
			read, ok := parseLine(written.line())
			if !ok || read != written {
				t.Errorf("%q is read as %+v, want %+v", written.line(), read, written)
			}
		}
	}
}

// TestLinesOfStrangers: a line that no process of this package writes names no object that cannot
// be called, and says nothing that is not.
func TestLinesOfStrangers(t *testing.T) {
	const path = "ns/web.17978e5b3f4c4f0001020304"
	for _, tc := range []struct {
		line  string
		named bool
	}{
		{path, true},
		{path + " 3 lon3", true},
		{path + " 0 lon3 7", true},
		{path + " -3 lon3 7", true},
		{path + " x lon3 7", true},
		{path + " 99999999999999999999 lon3 7", true},
		{path + " 3 !! 7", true},
		{"", false},
		{" ", false},
		{"web.17978e5b3f4c4f0001020304", false},
		{"/web.17978e5b3f4c4f0001020304", false},
		{"ns/", false},
		{"ns/..", false},
		{"ns/WEB.17978e5b3f4c4f0001020304", false},
		{"ns/other/web.17978e5b3f4c4f0001020304", false},
	} {
		l, named := parseLine(tc.line)
		if named != tc.named {
			t.Errorf("%q names an object: %v", tc.line, named)
		}
		if named && l != (leftover{path: path}) {
			t.Errorf("%q says %+v of the object, want nothing: it is to be read", tc.line, l)
		}
	}
}

// TestTimeInAName: only a name of this package's form has a time.
func TestTimeInAName(t *testing.T) {
	born := time.Unix(1_700_000_000, 123_456_789)
	for name, want := range map[string]time.Time{
		eventName("web", &seriesID{}, born): born,
		"web":                               {},
		"web.17978e5b3f4c4f00":              {}, // client-go's
		"17978e5b3f4c4f000102030":           {},
		"17978e5b3f4c4f0001020":             {},
		"17978e5b3f4c4f00010203":            {},
	} {
		if got := bornOf(name); !got.Equal(want) {
			t.Errorf("%q was born at %v, want %v", name, got, want)
		}
	}
}

// TestReadRoster: the changes of a roster apply in their order, up to the last that a process may
// write, and the last write says whether the process has ended in order.
func TestReadRoster(t *testing.T) {
	path := func(i int) string { return fmt.Sprintf("ns/web.17978e5b3f4c4f00%08x", i) }
	text := func(mode string, lines ...string) string { return "tag " + mode + " " + packLines(lines) }
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		names       []string
		exact       bool
		changes     int
	}{
		{name: "nothing"},
		{
			name:        "a whole",
			annotations: map[string]string{AnnotationRoster: text("live", path(1), path(2))},
			names:       []string{path(1), path(2)},
		},
		{
			name:        "of a process that ended in order",
			annotations: map[string]string{AnnotationRoster: text("end", path(1))},
			names:       []string{path(1)},
			exact:       true,
		},
		{
			name: "the first change, and the last",
			annotations: map[string]string{
				AnnotationRoster:      text("live", path(1), path(2)),
				changeKey(1):          text("live", "-"+path(1), path(3)),
				changeKey(maxChanges): text("live", "-"+path(2), path(1)),
			},
			names:   []string{path(1), path(3)},
			changes: maxChanges,
		},
		{
			name: "a change of another process after the ordered end",
			annotations: map[string]string{
				AnnotationRoster: text("end", path(1)),
				changeKey(1):     text("live", path(2)),
			},
			names:   []string{path(1), path(2)},
			changes: 1,
		},
		{
			name:        "what is no roster",
			annotations: map[string]string{AnnotationRoster: "end", changeKey(1): "a b c"},
			changes:     1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := &eventsv1.Event{}
			e.Annotations = tc.annotations
			changes := 0
			all, exact := readRoster(e, &changes)
			names := slices.Sorted(maps.Keys(all))
			if !slices.Equal(names, tc.names) || exact != tc.exact || changes != tc.changes {
				t.Errorf("it names %v, exact: %v, with %d changes; want %v, %v, %d",
					names, exact, changes, tc.names, tc.exact, tc.changes)
			}
		})
	}
}

// TestTwoObjectsOverARestart: a process that could not read the roster at first has begun another
// object of a series, beside the one that a killed process had left, and is killed, too. The next
// process continues the later one. The older one is ended, also where the series ends and begins
// once more before, and where that process is killed first.
func TestTwoObjectsOverARestart(t *testing.T) {
	elsewhere := func(c eventstest.Call) bool { return c.Namespace != "ns" }
	fault := where(elsewhere, always(status(503, metav1.StatusReasonServiceUnavailable, 0)))
	const left = `start a×2 1s kill fault start a×2 2m mended b×2 1m [a: Ongoing ×2, Ongoing ×2]
		kill start `
	for name, then := range map[string]string{
		"it goes on":         "a×1 1s [a: Ongoing ×2, Ongoing ≥3] 15m [a: Unknown ≥2, Finished ≥3]",
		"it ends and begins": "a×1 6m1s a×1 15m [a: Unknown ≥2, Finished ≥3, single]",
		"the next is killed": "c×2 15s kill start 15m [a: Unknown ≥2, Unknown ≥2]",
		"the next ends":      "c×2 15s end 1m start 15m [a: Unknown ≥2, Unknown ≥2]",
	} {
		t.Run(name, func(t *testing.T) {
			for range 4 { // a map has no order
				play(t, left+then, fault, continuing)
			}
		})
	}
}

// TestAnObjectThatIsMadeAgain: a series continues over a restart, and its object is gone. It is
// made again, with its beginning and its count.
func TestAnObjectThatIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newRig(t, eventstest.NewServer(), continuing)
		first.pod("a", 3)
		pass(time.Minute)
		first.end(time.Second)
		server := eventstest.NewServer() // somebody has deleted all but the roster
		var begun time.Time
		for _, e := range first.server.Events() {
			if e.Regarding.Name == "a" {
				begun = e.EventTime.Time
				continue
			}
			must(server.Sink().Create(t.Context(), &e))(t)
		}
		r := newRig(t, server, continuing)
		r.pod("a", 1)
		pass(time.Minute)
		all := r.wantAbout("a", "Ongoing ×4")
		if got := all[0].EventTime.Time; !got.Equal(begun) {
			t.Errorf("it began at %v, want %v", got, begun)
		}
		r.wantBooks(0, 0)
	})
}
