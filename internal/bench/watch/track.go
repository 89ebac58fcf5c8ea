// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Sample is what was known at one moment of a watch.
type Sample struct {
	// At counts from the begin of the watch, in seconds.
	At    float64 `json:"at_seconds"`
	State string  `json:"state"`
	// Lists, Reads, Received, Missed and Failed count since the begin; Failed are lists that failed and reads.
	Lists         int     `json:"lists"`
	Reads         int     `json:"reads"`
	Received      int     `json:"received"`
	Missed        int     `json:"missed"`
	Failed        int     `json:"failed"`
	PeriodSeconds float64 `json:"relist_period_seconds"`
}

const (
	// maxPoints and maxSamples bound what is kept of a long watch: of more, every second one is dropped,
	// and so of those to come.
	maxPoints, maxSamples = 100_000, 4_000
	// sampleEvery is how often a short watch samples.
	sampleEvery = 500 * time.Millisecond
)

// thinned is a list that keeps every nth of what is added, so that it never has more than most.
type thinned[T any] struct {
	list        []T
	most, every int
	n           int
}

// add keeps a value, unless it is one of those to be left out.
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

// track is a watch over time. Its owner is whoever owns what it is a part of.
type track struct {
	begun   time.Time
	events  thinned[stream.Event]
	samples thinned[Sample]
	sampled time.Time
	state   pleg.StreamState
}

func newTrack(begun time.Time) *track {
	return &track{begun: begun, events: thinned[stream.Event]{most: maxPoints}, samples: thinned[Sample]{most: maxSamples}}
}

// event enters a message of the stream. What it shows is not kept.
func (t *track) event(e stream.Event) {
	e.Payload = nil
	t.events.add(e)
}

// sample enters what is known now, if it is time or the stream's state has changed.
func (t *track) sample(now time.Time, st pleg.Stats, readErrors int) {
	if !t.sampled.IsZero() && st.State == t.state && now.Sub(t.sampled) < sampleEvery {
		return
	}
	t.sampled, t.state = now, st.State
	t.samples.add(Sample{
		At: now.Sub(t.begun).Seconds(), State: st.State.String(), Lists: st.Relists, Reads: st.Inspections, Received: st.Claims,
		Missed: st.Missed, Failed: st.RelistErrors + readErrors, PeriodSeconds: st.RelistPeriod.Seconds(),
	})
}
