// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package cachemodel compares the cache with a slow and obvious model: by fuzzed bytes, which begin
// with long random sequences, and by the observations of concurrent callers. The tests are outside
// of the cache's module, because the checker of concurrent histories would otherwise be required by
// the cache's users.
package cachemodel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// word is the status of these tests.
type word struct{ n int }

var errRead = errors.New("the read failed")

// model is the naive cache: everything in the open, times as numbers. A value, so that a checker
// can keep many.
type model struct {
	pods   [2]modelPod
	global int
	floor  int
}

type modelPod struct {
	present bool
	n       int
	failed  bool
	at      int
	gone    int
}

func (m *model) asOf(p int) int {
	if m.pods[p].present {
		return max(m.global, m.pods[p].at)
	}
	return max(m.global, m.pods[p].gone)
}

func (m *model) refuses(p, at int) bool {
	return m.asOf(p) > at || !m.pods[p].present && m.floor > at
}

func (m *model) set(p, n int, failed bool, at int) bool {
	if m.refuses(p, at) {
		return false
	}
	e := &m.pods[p]
	if !e.present {
		*e = modelPod{present: true}
	}
	if !failed {
		e.n = n
	}
	e.failed, e.at = failed, at
	return true
}

func (m *model) delete(p, at int) bool {
	if m.refuses(p, at) {
		return false
	}
	m.pods[p] = modelPod{}
	if at > m.global {
		m.pods[p].gone = at
	}
	return true
}

func (m *model) observe(p, at int) {
	if e := &m.pods[p]; e.present && at > e.at {
		e.at = at
	}
}

func (m *model) advance(at int) {
	if at > m.global {
		m.global = at
		m.forget()
	}
}

func (m *model) prune(at int) {
	if at > m.floor {
		m.floor = at
		m.forget()
	}
}

// forget drops the tombstones made useless by the global time or the floor.
func (m *model) forget() {
	for p := range m.pods {
		if e := &m.pods[p]; e.gone <= m.global || e.gone < m.floor {
			e.gone = 0
		}
	}
}

// started is a time with a monotonic reading, long past also by the clock of a bubble, which begins
// in the year 2000.
var started = time.Now().Add(-50 * 365 * 24 * time.Hour)

// moment turns the model's times into real ones.
func moment(n int) time.Time { return started.Add(time.Duration(n) * time.Millisecond) }

func podName(p int) cache.UID { return cache.UID(fmt.Sprintf("pod-%d", p)) }

// pair is a cache and its model, which must do the same.
type pair struct {
	cache *cache.Cache[word]
	model model
}

func newPair() *pair { return &pair{cache: cache.New(func(cache.UID) *word { return &word{} })} }

// apply applies an operation to both and returns their difference, empty if equal.
func (x *pair) apply(op, p, n, at int) string {
	var got, want bool
	switch op {
	case 0, 1:
		want = x.model.set(p, n, op == 1, at)
		if op == 0 {
			got = x.cache.Set(podName(p), &word{n}, nil, moment(at))
		} else {
			got = x.cache.Set(podName(p), nil, errRead, moment(at))
		}
	case 2:
		got, want = x.cache.Delete(podName(p), moment(at)), x.model.delete(p, at)
	case 3:
		x.cache.Observe(podName(p), moment(at))
		x.model.observe(p, at)
	case 4:
		x.cache.Advance(moment(at))
		x.model.advance(at)
	case 5:
		x.cache.Prune(moment(at))
		x.model.prune(at)
	}
	if got != want {
		return fmt.Sprintf("the cache says %t, the model %t", got, want)
	}
	return x.differs()
}

func (x *pair) differs() string {
	held, gone := 0, 0
	for p, e := range x.model.pods {
		s, err := x.cache.Get(podName(p))
		if s == nil {
			return "a reader is handed nil"
		}
		if e.present {
			held++
		}
		if e.gone > 0 {
			gone++
		}
		if s.n != e.n || (err != nil) != e.failed {
			return fmt.Sprintf("pod %d: the cache shows %d, %v, the model %d, %t", p, s.n, err, e.n, e.failed)
		}
		at := x.cache.AsOf(podName(p))
		if want := x.model.asOf(p); want == 0 && !at.IsZero() || want > 0 && !at.Equal(moment(want)) {
			return fmt.Sprintf("pod %d: as of %v, the model %d", p, at.Sub(started), want)
		}
	}
	if x.cache.Len() != held || x.cache.Tombstones() != gone {
		return fmt.Sprintf(
			"%d pods and %d tombstones, the model %d and %d",
			x.cache.Len(),
			x.cache.Tombstones(),
			held,
			gone,
		)
	}
	return ""
}

// FuzzCacheAgainstModel applies the fuzzed operations, three bytes each, to the cache and to the
// model. The seeds are random sequences with mostly growing times.
func FuzzCacheAgainstModel(f *testing.F) {
	for n := range uint64(*seeds) {
		rng := rand.New(rand.NewPCG(*firstSeed+n, 3))
		var ops []byte
		for now := 1; now < 240; now += rng.IntN(3) {
			if op := byte(rng.IntN(6)); op < 5 || rng.IntN(4) == 0 {
				ops = append(ops, op, byte(rng.IntN(2)), byte(max(0, now-1-rng.IntN(6))))
			}
		}
		f.Add(ops)
	}
	f.Fuzz(func(t *testing.T, ops []byte) {
		x := newPair()
		for i := 0; i+2 < len(ops) && i < 900; i += 3 {
			op, p, at := int(ops[i])%6, int(ops[i+1])%2, 1+int(ops[i+2])
			if what := x.apply(op, p, i+1, at); what != "" {
				t.Errorf("operation %d, kind %d of pod %d at %d: %s", i/3, op, p, at, what)
				var n uint64
				if _, err := fmt.Sscanf(t.Name(), "FuzzCacheAgainstModel/seed#%d", &n); err == nil {
					t.Log(onceMore("FuzzCacheAgainstModel", *firstSeed+n))
				}
				return
			}
		}
	})
}
