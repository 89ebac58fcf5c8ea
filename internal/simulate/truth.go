// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"sync"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// step is an entry of the history of an ID.
type step struct {
	at    time.Time
	phase pleg.Phase
}

// life is the authoritative history of an ID.
type life struct {
	id    string
	pod   cache.UID
	kind  pleg.Kind
	steps []step                           // in the order of time
	told  uint8                            // bit set of the claimed phases
	first [pleg.PhaseRemoved + 1]time.Time // when a claim first told each
}

// Truth is the authoritative history of a runtime: every change of every ID, and its claims. Safe
// for concurrent use.
type Truth struct {
	mu    sync.Mutex
	lives map[string]*life
	pods  map[cache.UID][]*life
	uids  []cache.UID             // sorted; additions make a new slice
	moves map[cache.UID]time.Time // the last change of each pod
	lied  map[string]bool         // IDs of which a read has lied
	pull  func()                  // fetches changes from a runtime with its own history; nil if changes are pushed
}

// NewTruth returns an empty history.
func NewTruth() *Truth {
	return &Truth{lives: make(map[string]*life), pods: make(map[cache.UID][]*life), moves: make(map[cache.UID]time.Time), lied: make(map[string]bool)}
}

// Record adds a change.
func (t *Truth) Record(at time.Time, pod cache.UID, id string, kind pleg.Kind, phase pleg.Phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moves[pod] = at
	l := t.lives[id]
	if l == nil {
		l = &life{id: id, pod: pod, kind: kind}
		t.lives[id] = l
		t.addPod(pod)
		t.pods[pod] = append(t.pods[pod], l)
	}
	l.steps = append(l.steps, step{at, phase})
}

func (t *Truth) addPod(pod cache.UID) {
	if _, ok := t.pods[pod]; !ok {
		t.pods[pod] = nil
		at, _ := slices.BinarySearch(t.uids, pod)
		t.uids = slices.Concat(t.uids[:at], []cache.UID{pod}, t.uids[at:])
	}
}

// Mention makes the oracle look at a pod that may never exist.
func (t *Truth) Mention(pod cache.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addPod(pod)
}

// Told notes a claim of an ID in a phase. Own: the claim is about the ID itself, which otherwise
// only appears in the payload.
func (t *Truth) Told(id string, phase pleg.Phase, own bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lives[id]; l != nil && phase <= pleg.PhaseRemoved {
		if l.told |= 1 << phase; own && l.first[phase].IsZero() {
			l.first[phase] = time.Now()
		}
	}
}

// untold counts the starts and exits without a claim within the grace, among those while a stream
// was open, as of the last refresh. An earlier claim of the removal counts as a claim, unless
// claims may have been discarded.
func (t *Truth) untold(grace time.Duration, listened func(time.Time) bool, discards bool) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lives {
		for _, s := range l.steps {
			if (s.phase == pleg.PhaseRunning || s.phase == pleg.PhaseExited) && listened(s.at) && !l.toldBy(s.phase, s.at, s.at.Add(grace), discards) {
				n++
			}
		}
	}
	return n
}

// toldBy reports whether a claim reached a phase, or a later phase, by a time, and if late is set,
// no sooner than another time.
func (l *life) toldBy(phase pleg.Phase, from, by time.Time, late bool) bool {
	return slices.ContainsFunc(l.first[phase:], func(at time.Time) bool { return !at.IsZero() && !at.After(by) && !(late && at.Before(from)) })
}

// UIDs returns every pod ever mentioned, sorted. The slice is not changed, and not to be changed.
func (t *Truth) UIDs() []cache.UID {
	t.refresh()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uids
}

// known is UIDs as of the last refresh.
func (t *Truth) known() []cache.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uids
}

// mentions reports whether a pod is, was, or was asked for, as of the last refresh.
func (t *Truth) mentions(pod cache.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.pods[pod]
	return ok
}

// moved returns the time of the last change of a pod, as of the last refresh.
func (t *Truth) moved(pod cache.UID) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moves[pod]
}

// restless reports whether a pod may have to be looked at again and again, as of the last refresh:
// the pod has a sandbox that is not ready, or a claim of such a sandbox, or the runtime does not
// know the state of one of its containers. That excuse stays, because a status that does not know
// what the last list knew is read again, with growing delay, until a list agrees with it.
func (t *Truth) restless(pod cache.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.pods[pod], func(l *life) bool {
		ends := l.now() == pleg.PhaseExited || l.told&(1<<pleg.PhaseExited) != 0
		return l.now() == pleg.PhaseUnknown || l.kind == pleg.Sandbox && l.now() != pleg.PhaseRemoved && ends
	})
}

// phaseOf returns the pod of an ID, and its phase, as of the last refresh; Unknown without any.
func (t *Truth) phaseOf(id string) (pod cache.UID, phase pleg.Phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lives[id]; l != nil {
		return l.pod, l.now()
	}
	return "", pleg.PhaseUnknown
}

// lost reports whether the runtime had lost the state of an ID, as of the last refresh: from then
// on reads show UNKNOWN, or nothing.
func (t *Truth) lost(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lives[id]
	if l == nil {
		return true
	}
	n := len(l.steps) - 1
	if l.steps[n].phase == pleg.PhaseRemoved {
		for n > 0 && l.steps[n].at.Equal(l.steps[len(l.steps)-1].at) {
			n-- // stopped for its removal
		}
	}
	return l.steps[n].phase == pleg.PhaseUnknown
}

// size returns the number of IDs of a pod, as of the last refresh.
func (t *Truth) size(pod cache.UID) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.pods[pod] {
		if l.now() != pleg.PhaseRemoved {
			n++
		}
	}
	return n
}

func (t *Truth) refresh() {
	if t.pull != nil {
		t.pull()
	}
}

// absent is the bit of "not in the runtime yet", beside the bits of the phases.
const absent = 7

// phases returns, as a set of bits, every phase of the ID from just before since until now.
func (l *life) phases(since time.Time) uint8 {
	set := uint8(1 << absent)
	before, present := uint8(0), false // the furthest phase by then: losing track takes nothing back
	for _, s := range l.steps {
		if s.at.Before(since) {
			set = 1 << s.phase
			before, present = uint8(s.phase), true
			if s.phase == pleg.PhaseUnknown {
				before = l.furthest(since)
			}
			continue
		}
		set |= 1 << s.phase
	}
	// A claim may run ahead of the truth, never behind it.
	for p := range uint8(pleg.PhaseRemoved) + 1 {
		if l.told&(1<<p) != 0 && (!present || p > before) {
			set |= 1 << p
		}
	}
	return set
}

// furthest returns the furthest phase of the ID before a time.
func (l *life) furthest(since time.Time) (most uint8) {
	for _, s := range l.steps {
		if s.at.Before(since) {
			most = max(most, uint8(s.phase))
		}
	}
	return most
}

// now returns the present phase.
func (l *life) now() pleg.Phase { return l.steps[len(l.steps)-1].phase }

// has says whether the set of bits holds the phase.
func has(set uint8, p pleg.Phase) bool { return set&(1<<p) != 0 }
