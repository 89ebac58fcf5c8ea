// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// parse makes events of words such as "a+1": pod a, the start of 1. The signs of the others are -
// for an end, x for a removal and ~ for a PodSync.
func parse(t *testing.T, words string) (events []pleg.Event) {
	types := map[byte]pleg.EventType{
		'+': pleg.ContainerStarted,
		'-': pleg.ContainerDied,
		'x': pleg.ContainerRemoved,
		'~': pleg.PodSync,
	}
	for word := range strings.FieldsSeq(words) {
		kind, ok := types[word[1]]
		if !ok {
			t.Fatalf("no event has the sign %q", word)
		}
		events = append(events, pleg.Event{Pod: cache.UID(word[:1]), Type: kind, ID: word[2:]})
	}
	return events
}

// TestTogether checks which starts are left to later events of their pod, that all other events
// stay, in order, and that no event is kept longer than a start is.
func TestTogether(t *testing.T) {
	for _, test := range []struct {
		name, watch, want string
	}{
		{"a start", "a+1", "a+1"},
		{"the starts of a sandbox and its container", "a+1 a+2", "a+2"},
		{"three starts", "a+1 a+2 a+3", "a+3"},
		{"an end after a start", "a+1 a-1", "a-1"},
		{"a PodSync after a start", "a+1 a~", "a~"},
		{"a removal syncs no pod", "a+1 ax2", "a+1 ax2"},
		{"starts of two pods", "a+1 b+1", "a+1 b+1"},
		{"the starts of two pods in turn", "a+1 b+1 a+2", "a+1 b+1 a+2"},
		{"what follows an event that is no start waits for the next call", "a-1 a+2", "a-1"},
		{"an end", "a-1 a-2", "a-1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events := parse(t, test.watch)
				watch := make(chan pleg.Event, len(events))
				for _, e := range events[1:] {
					watch <- e
				}
				began := time.Now()
				got := Together(t.Context(), watch, events[0])
				if want := parse(t, test.want); !slices.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
				want := time.Duration(0)
				if events[0].Type == pleg.ContainerStarted {
					want = StartsTogether
				}
				if took := time.Since(began); took != want {
					t.Errorf("the events were kept for %v, want %v", took, want)
				}
			})
		})
	}
}

// TestTogetherEnds checks a Watch that is closed, and a context that ends while a start is kept:
// the start is not lost.
func TestTogetherEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := parse(t, "a+1")
		closed := make(chan pleg.Event)
		close(closed)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for name, got := range map[string][]pleg.Event{
			"a closed Watch":          Together(t.Context(), closed, start[0]),
			"a context that is ended": Together(ctx, make(chan pleg.Event), start[0]),
		} {
			if !slices.Equal(got, start) {
				t.Errorf("%s: got %v, want %v", name, fmt.Sprint(got), start)
			}
		}
	})
}
