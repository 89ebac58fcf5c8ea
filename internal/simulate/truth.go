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
	id     string
	pod    cache.UID
	kind   pleg.Kind
	steps  []step                           // in the order of time
	told   uint8                            // bit set of the claimed phases
	first  [pleg.PhaseRemoved + 1]time.Time // when a claim first reported each phase
	ended  time.Time                        // when a claim last reported an end or a removal
	back   time.Time                        // the last recovery that the present generator has shown
	heard  time.Time                        // when a claim last reported a known state
	shown  bool                             // by the cache, at some time
	missed time.Time                        // last look without the living ID; zero: none
	echoes bool                             // an event of its end, and of older content, comes after its recovery
	away   time.Time                        // first look without the ID after its last appearance in the cache; zero: none
	acked  time.Time                        // when a call of the agent's own reported the end; zero: no read is to refute one
	hid    int                              // unannounced returns of the ID, after looks without it
	texts  []writing                        // of the content, in the order of time; empty: not recorded
}

// Truth is the authoritative history of a runtime: every change of every ID, and its claims. Safe
// for concurrent use.
type Truth struct {
	mu     sync.Mutex
	lives  map[string]*life
	pods   map[cache.UID][]*life
	uids   []cache.UID             // sorted; additions make a new slice
	moves  map[cache.UID]time.Time // the last change of each pod
	change time.Time               // the last change of anything
	lied   map[string]bool         // IDs of which a read has lied
	bad    map[string]bool         // IDs with an unreadable status; false: at the last read of the pod, true: now
	early  map[string]pleg.Phase   // claims of an end or a removal from before the creation
	mended map[string]time.Time    // when the status of an ID could be read again
	ghosts map[string]bool         // gone IDs in lists, now or before
	fresh  map[cache.UID]bool      // pods read by the present generator
	hangs  map[cache.UID]time.Time // until when a call about the pod alone may hang
	slow   time.Duration           // the slowest answers about single items, so far
	pull   func()                  // fetches changes from a runtime with its own history; nil if changes are pushed
}

// NewTruth returns an empty history.
func NewTruth() *Truth {
	return &Truth{
		lives:  make(map[string]*life),
		pods:   make(map[cache.UID][]*life),
		moves:  make(map[cache.UID]time.Time),
		lied:   make(map[string]bool),
		bad:    make(map[string]bool),
		early:  make(map[string]pleg.Phase),
		mended: make(map[string]time.Time),
		ghosts: make(map[string]bool),
		fresh:  make(map[cache.UID]bool),
		hangs:  make(map[cache.UID]time.Time),
	}
}

// Record adds a change.
func (t *Truth) Record(at time.Time, pod cache.UID, id string, kind pleg.Kind, phase pleg.Phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moves[pod] = at
	t.change = latest(t.change, at)
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

// Mention makes the oracle look at a pod without any ID so far.
func (t *Truth) Mention(pod cache.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addPod(pod)
}

// Hide notes that the last looks, so many in a row, did not show a living ID. A single look does
// not prove the end of a running ID shown by reads of the present generator, unless a claim or a
// call of the agent's own has told of its end. Two looks do.
func (t *Truth) Hide(id string, looks int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lives[id]
	t.moves[l.pod] = time.Now()
	l.missed = time.Now()
	if l.away.IsZero() {
		l.away = l.missed
	}
	ended := !l.acked.IsZero() || t.early[id] != 0 || l.toldOfEnd(pleg.PhaseExited) || l.toldOfEnd(pleg.PhaseRemoved)
	for _, s := range l.steps {
		ended = ended || s.phase == pleg.PhaseExited && l.back.Before(s.at) // recovered, not yet shown
	}
	if looks > 1 || l.now() != pleg.PhaseRunning || ended || !l.shown || !t.fresh[l.pod] {
		t.lied[id] = true
		l.hid++
	}
}

// Haunt notes that lists go on showing an ID for ever after its removal.
func (t *Truth) Haunt(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lied[id] = true
	t.ghosts[id] = true
}

// Haunts notes a list with a ghost. While the ghost's status cannot be read, the list stands: the
// ID comes and goes once more, without an event.
func (t *Truth) Haunts(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lives[id].hid++
}

// ghost reports whether lists show a gone ID, or did.
func (t *Truth) ghost(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ghosts[id]
}

// Restart notes the start of a generator, without knowledge of any ID.
func (t *Truth) Restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.fresh)
	for _, l := range t.lives {
		l.back = time.Time{}
		l.acked = time.Time{}
	}
}

// Fresh notes a read of a pod by the present generator.
func (t *Truth) Fresh(pod cache.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fresh[pod] = true
}

// isFresh reports whether the present generator has read a pod.
func (t *Truth) isFresh(pod cache.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fresh[pod]
}

// Shows notes the appearance of an ID in the cache.
func (t *Truth) Shows(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lives[id]; l != nil {
		l.shown = true
		l.away = time.Time{}
	}
}

// TookBackEnd notes that the cache shows an ID running that it has shown to have ended: claims of
// the end say nothing any more, but for those of the last graces, which a read is still to refute.
// A list refutes nothing: while the status cannot be read, the claims stand.
func (t *Truth) TookBackEnd(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, unread := t.bad[id]
	if l := t.lives[id]; l != nil && !unread {
		for _, s := range l.steps {
			if s.phase == pleg.PhaseRunning {
				l.back = s.at // the cache may show what has changed again since
			}
		}
	}
}

// toldOfEnd reports whether a claim has told of an end or a removal of an ID, and the ID has not
// recovered since.
func (l *life) toldOfEnd(phase pleg.Phase) bool {
	return l.told&(1<<phase) != 0 && (l.back.IsZero() || l.ended.After(l.back.Add(-staleEnd)))
}

// staleEnd is the age of a claim that a read has refuted: two of the longest graces of the
// histories.
const staleEnd = 10 * time.Second

// Spoil notes that the status of an ID has become unreadable, or readable again.
func (t *Truth) Spoil(id string, yes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bad[id] = yes
	if !yes {
		t.mended[id] = time.Now()
	}
}

// Unreadable notes a failed read of the status of an ID, whether or not the status can be read now.
func (t *Truth) Unreadable(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, noted := t.bad[id]; !noted {
		t.bad[id] = false
	}
}

// whole notes a read of a pod without an error, at the given time. A read begun before an item was
// readable again may still bring a status without the item.
func (t *Truth) whole(pod cache.UID, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.pods[pod] {
		spoilt, noted := t.bad[l.id]
		if noted && !spoilt && at.After(t.mended[l.id]) {
			delete(t.bad, l.id)
			delete(t.mended, l.id)
		}
	}
}

// spoilt reports whether the status of an ID of a pod cannot be read, or could not when the pod was
// last read.
func (t *Truth) spoilt(pod cache.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.bad) > 0 &&
		slices.ContainsFunc(t.pods[pod], func(l *life) bool { _, noted := t.bad[l.id]; return noted })
}

// excused reports whether the checks leave an ID out: a read has lied about the ID, or cannot read
// its status. The caller holds the mutex.
func (t *Truth) excused(id string) bool {
	_, bad := t.bad[id]
	return bad || t.lied[id]
}

// Told notes a claim of an ID in a phase. Own: the claim is about the ID itself. Otherwise the ID
// only appears in the payload.
func (t *Truth) Told(id string, phase pleg.Phase, own bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lives[id]
	if l == nil && phase >= pleg.PhaseExited {
		t.early[id] = max(t.early[id], phase)
	}
	if l != nil && phase <= pleg.PhaseRemoved {
		if phase != pleg.PhaseUnknown {
			l.heard = time.Now()
		}
		if !l.missed.IsZero() && phase >= pleg.PhaseExited {
			t.lied[id] = true // the claim confirms the look without the ID
		}
		l.told |= 1 << phase
		if phase >= pleg.PhaseExited {
			l.ended = time.Now()
		}
		if own && l.first[phase].IsZero() {
			l.first[phase] = time.Now()
		}
	}
}

// heardAfter notes that the generator's loop, which has stood still since a moment, goes on: it
// hears now what was told of ends since then, and waits a grace from now on before a read refutes
// that. An ID may have recovered, and its pod been read, in the meantime.
func (t *Truth) heardAfter(since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lives {
		if !l.ended.IsZero() && !l.ended.Before(since) {
			l.ended = time.Now()
		}
	}
}

// BornOut notes the end of an ID by a call of the agent's own: a single look without the ID is then
// enough, although the look came before. So is a single look after the call, also if the ID has
// recovered during the call, until a read of its status refutes the call: see Refutes.
func (t *Truth) BornOut(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lives[id]
	if l == nil {
		return
	}
	l.acked = time.Now()
	if !l.missed.IsZero() {
		t.lied[id] = true
	}
}

// borneOut reports whether a call of the agent's own has reported the end of an ID, and no read of
// the status since has settled that.
func (t *Truth) borneOut(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lives[id]
	return l != nil && !l.acked.IsZero()
}

// Refutes notes that the status of an ID was read, by a read begun at the given time. What a call
// has told of an end before is settled: the end is shown, or refuted.
func (t *Truth) Refutes(id string, began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lives[id]; l != nil && began.After(l.acked) {
		l.acked = time.Time{}
	}
}

// remembered is how long a generator remembers an ID that has gone without an event.
const remembered = time.Minute

// wordless counts the IDs that have come to a phase of which no event of their own has been heard.
// What looks have missed has gone without one, as far as anybody can tell.
func (t *Truth) wordless(phase pleg.Phase) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lives {
		came := slices.ContainsFunc(l.steps, func(s step) bool { return s.phase >= phase })
		if came && l.first[phase].IsZero() {
			n++
		}
		if phase == pleg.PhaseRemoved {
			n += l.hid
		}
	}
	return n
}

// gone reports whether a look has not shown an ID, and either a claim has told of its removal or
// the generator has forgotten the ID since.
func (t *Truth) gone(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lives[id]
	if l == nil || l.missed.IsZero() {
		return false
	}
	told := l.told&(1<<pleg.PhaseRemoved) != 0 || t.early[id] == pleg.PhaseRemoved
	return told || time.Since(l.away) > remembered
}

// told reports whether a claim has told of a phase of an ID.
func (t *Truth) told(id string, phase pleg.Phase) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lives[id]
	if phase >= pleg.PhaseExited {
		return t.early[id] != 0 || l != nil && l.toldOfEnd(phase)
	}
	return l != nil && l.told&(1<<phase) != 0
}

// untold counts the starts and exits without a claim within the grace, among those while a stream
// was open, as of the last refresh. An earlier claim of the removal counts as a claim, unless
// claims may have been discarded.
func (t *Truth) untold(grace time.Duration, listened func(time.Time) bool, discards bool) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lives {
		n += l.hid
		recovered := false // what was told before says nothing of what comes
		for i, s := range l.steps {
			recovered = recovered || i > 0 && s.phase < l.steps[i-1].phase
			if (s.phase == pleg.PhaseRunning || s.phase == pleg.PhaseExited) && listened(s.at) &&
				!l.toldBy(s.phase, s.at, s.at.Add(grace), discards || recovered) {
				n++
			}
		}
	}
	return n
}

// toldBy reports whether a claim reached a phase, or a later phase, by a time, and if late is set,
// no sooner than another time.
func (l *life) toldBy(phase pleg.Phase, from, by time.Time, late bool) bool {
	return slices.ContainsFunc(
		l.first[phase:],
		func(at time.Time) bool { return !at.IsZero() && !at.After(by) && !(late && at.Before(from)) },
	)
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

// severalSandboxes reports whether a pod has, or had, several sandboxes, as of the last refresh:
// while lists hang, nobody learns that one is removed. The cost: the rest of a pod of which a
// sandbox is gone is judged later by as much as a call may hang.
func (t *Truth) severalSandboxes(pod cache.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, l := range t.pods[pod] {
		if l.kind == pleg.Sandbox {
			n++
		}
	}
	return n > 1
}

// Hangs notes that a call about a pod alone may hang until a time.
func (t *Truth) Hangs(pod cache.UID, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hangs[pod] = latest(t.hangs[pod], until)
}

// hangsUntil returns until when a call about a pod alone may hang; zero if none has.
func (t *Truth) hangsUntil(pod cache.UID) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hangs[pod]
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

// changed returns the time of the last change of anything, as of the last refresh.
func (t *Truth) changed() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.change
}

// restless reports whether a pod may need repeated looks, as of the last refresh: the pod has a
// sandbox that is not ready, or a claim of such a sandbox; or the runtime does not know the state
// of one of its containers; or lists show a gone container, at the cost of a read each time. The
// excuse of an unknown state stays: if a status lacks a state known to the last list, the pod is
// read again, with growing delay, until a list agrees with the status.
func (t *Truth) restless(pod cache.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.pods[pod], func(l *life) bool {
		ends := l.now() == pleg.PhaseExited || l.told&(1<<pleg.PhaseExited) != 0
		return l.now() == pleg.PhaseUnknown || t.ghosts[l.id] ||
			l.kind == pleg.Sandbox && l.now() != pleg.PhaseRemoved && ends
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

// revived reports whether an ID has recovered from a phase or a later phase, as of the last
// refresh, and returns its pod.
func (t *Truth) revived(id string, phase pleg.Phase) (pod cache.UID, yes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lives[id]
	if l == nil || l.kind != pleg.Sandbox || l.now() >= phase {
		return "", false
	}
	return l.pod, slices.ContainsFunc(l.steps, func(s step) bool { return s.phase >= phase })
}

// endsAgain reports whether an ID that has recovered has ended once more, for the claim of an end,
// as of the last refresh.
func (t *Truth) endsAgain(id string, claimed pleg.Phase) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lives[id]
	if l == nil || l.kind != pleg.Sandbox || claimed != pleg.PhaseExited {
		return false
	}
	ends := 0
	for i, s := range l.steps {
		if s.phase == pleg.PhaseExited && (i == 0 || l.steps[i-1].phase < pleg.PhaseExited) {
			ends++
		}
	}
	return ends > 1
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

// ever reports whether a pod has ever had an ID, as of the last refresh.
func (t *Truth) ever(pod cache.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pods[pod]) > 0
}

// lastMissed returns when a look last missed an ID of a pod, as of the last refresh.
func (t *Truth) lastMissed(pod cache.UID) (at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.pods[pod] {
		at = latest(at, l.missed)
	}
	return at
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
	// the furthest phase by then: losing track takes nothing back
	before := uint8(0)
	present := false
	for _, s := range l.steps {
		if s.at.Before(since) {
			set = 1 << s.phase
			before = uint8(s.phase)
			present = true
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
