// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/pleg"
)

const (
	// maxPoints and maxSamples bound the stored part of a long watch: beyond them every second entry
	// is dropped, also of later entries.
	maxPoints, maxSamples = 100_000, 4_000
	// sampleEvery is how often a short watch samples.
	sampleEvery = 500 * time.Millisecond
)

// thinned is a list that keeps every nth added value, so that it never exceeds most.
type thinned[T any] struct {
	list        []T
	most, every int
	n           int
}

// add keeps a value, unless its turn is to be left out.
func (t *thinned[T]) add(v T) {
	t.every = max(t.every, 1)
	t.n++
	if (t.n-1)%t.every != 0 {
		return
	}
	if len(t.list) >= t.most {
		half := t.list[:0]
		for i := 0; i < len(t.list); i += 2 {
			half = append(half, t.list[i])
		}
		clear(t.list[len(half):])
		t.list = half
		t.every *= 2
	}
	t.list = append(t.list, v)
}

// track is a watch over time. Its owner is the owner of what it is a part of.
type track struct {
	begun        time.Time
	good, flawed thinned[bench.Point]
	samples      thinned[bench.Sample]
	sampled      time.Time
	state        pleg.StreamState
}

func newTrack(begun time.Time) *track {
	return &track{
		begun: begun, good: thinned[bench.Point]{most: maxPoints}, flawed: thinned[bench.Point]{most: maxPoints}, samples: thinned[bench.Sample]{most: maxSamples},
	}
}

// event enters a message of the stream that has a stamp.
func (t *track) event(e stream.Event) {
	if e.AgeSeconds == nil {
		return
	}
	points := &t.good
	if len(e.Flaws) > 0 {
		points = &t.flawed
	}
	points.add(bench.Point{e.Received.Sub(t.begun).Seconds(), *e.AgeSeconds})
}

// sample enters the present knowledge, when due or after a change of the stream's state.
func (t *track) sample(now time.Time, st pleg.Stats, readErrors int) {
	if !t.sampled.IsZero() && st.State == t.state && now.Sub(t.sampled) < sampleEvery {
		return
	}
	t.sampled, t.state = now, st.State
	t.samples.add(bench.Sample{
		At: now.Sub(t.begun).Seconds(), State: st.State.String(), Lists: st.Relists, Reads: st.Inspections, Received: st.Claims,
		Missed: st.Missed + st.Unheard, Failed: st.RelistErrors + readErrors, PeriodSeconds: st.RelistPeriod.Seconds(),
	})
}

// timeline returns what was kept.
func (t *track) timeline() []bench.Series {
	list := []bench.Series{{Name: "events", Points: t.good.list, Samples: t.samples.list}}
	if len(t.flawed.list) > 0 {
		list = append(list, bench.Series{Name: "events with flaws", Points: t.flawed.list})
	}
	return list
}
