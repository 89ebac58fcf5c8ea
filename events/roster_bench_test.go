// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// rosterOfMany is a recorder with n stored series of one source, and a single one of another.
type rosterOfMany struct {
	*Broadcaster
	now time.Time
}

func newRosterOfMany(t testing.TB, n int) *rosterOfMany {
	t.Helper()
	m := &rosterOfMany{
		Broadcaster: must(New(Options{Sink: mute{}, MaxSeries: 2 * n, Instance: "node-1"}))(t),
		now:         time.Now(),
	}
	many := m.NewSeriesRecorder(scheme.Scheme, controller)
	single := m.NewSeriesRecorder(scheme.Scheme, "evented-pleg.dev/single")
	emit := func(r *Recorder, name string) {
		for range 2 {
			r.Eventf(podRef(name), nil, corev1.EventTypeWarning, "BackOff", "Restart", "back-off")
			m.flush(t)
		}
	}
	emit(single, "single")
	for i := range n {
		emit(many, fmt.Sprint("p", i))
	}
	for i := range m.core.rosters {
		m.write(t, i)
	}
	return m
}

// flush makes the calls owed.
func (m *rosterOfMany) flush(t testing.TB) {
	t.Helper()
	var limit callLimit
	defer limit.release()
	for {
		j, wait := m.core.next(m.now)
		if wait != 0 {
			return
		}
		m.perform(t.Context(), &limit, j, m.now)
	}
}

// write makes a write of a source's roster, without the packing of its lines.
func (m *rosterOfMany) write(t testing.TB, source int) {
	t.Helper()
	r := m.core.rosters[source]
	r.due(m.now)
	j, _, wait := m.core.nextRoster(m.now)
	if wait != 0 || j.roster != r {
		t.Fatalf("no write of the roster: %v", wait)
	}
	j.write.tag = "tag"
	j.write.size = 100
	j.event.Annotations = map[string]string{AnnotationRoster: "tag "}
	m.core.rosterAnswered(j, reply{stored: j.event, now: m.now})
	r.rest = time.Time{}
}

// change lets a series of a source be new in its roster.
func (m *rosterOfMany) change(s *series) {
	s.listed = false
	m.core.rosters[s.key.source].add(s, m.now)
}

// of returns a series of a source.
func (m *rosterOfMany) of(source uint32) *series {
	return m.core.rosters[source].own.first.owner
}

// BenchmarkRoster measures what a write of a roster takes under the lock: that of a change beside
// many series of the same source, and of the whole of a source with one series beside many of
// another source.
func BenchmarkRoster(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		for name, source := range map[string]uint32{"change": 0, "whole of another": 1} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				m := newRosterOfMany(b, n)
				s := m.of(source)
				r := m.core.rosters[source]
				b.ReportAllocs()
				for b.Loop() {
					if source == 1 {
						r.becomeDoubtful()
					} else {
						r.changes = 0
						r.changed = 0
					}
					m.change(s)
					m.write(b, int(source))
				}
			})
		}
	}
}
