// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Excuses switch checks off. Each use is counted (excuse), and the searches print the counts. The
// excuses, and their ends:
//
//   - mood: phases of a pod may go back, because a sandbox has recovered or a claim was invented.
//     The mood ends when the pod is fresh as of a grace after the last reason: from then on reads
//     decide, and claims only move forward. For a claim that the loop could not take, because it
//     was paused, the grace begins when the pause ends (resumes): the cost is an old phase of a
//     recovered sandbox in Get for a grace. It ends with a time of arrival in the mailbox.
//   - stood: instants are some nanoseconds off, because the loop has stood within a turn, or
//     minutes, because the loop was paused there. The excuse ends after the rest of a generator
//     (settings.restful), when the delays of the turn have ended. A list begun by then prolongs it
//     until such a rest after the end of the list (stoodOfLate).
//     Warnings about slow and hung lists are excused for pauses that a generator cannot notice
//     (boundary.pauses), until the next list begins.
//   - owing: emissions and events do not match, because Watch was full. The excuse ends when no
//     event is owed and the reader has read everything.
//   - lies: reads may lie. They end at a rest at which the cache agrees with the runtime (believe,
//     forgive).
//
// Lists with ghosts, which are gone (Truth.Haunt), have three excuses of their own, for the ghosts
// and their pods alone and not counted. The cache may show the ghost until two graces after its
// event (promise). Its pod may be read with each list (Truth.restless). As many changes may count
// as missed as lists have shown the ghost (Truth.Haunts). The first excuse ends with the promise,
// the others with the history, since a list may have been read late.
const (
	excuseMood  = "mood"
	excuseStood = "stood"
	excuseOwing = "owing"
	excuseLies  = "lies"
)

// excuse counts an omitted check, or a dropped finding.
func (o *oracle) excuse(why string) {
	o.failMu.Lock()
	defer o.failMu.Unlock()
	o.excuses[why]++
}

// mood allows the phases of pods to go back until a grace after a time.
func (o *oracle) mood(at time.Time, uids ...cache.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, uid := range uids {
		if uid != "" && at.After(o.moods[uid]) {
			o.moods[uid] = at
			o.madeUp++
		}
	}
}

// inMood reports whether the phases of a pod may go back, and counts the excuse. The caller holds
// the mutex.
func (o *oracle) inMood(uid cache.UID) bool {
	if o.lying {
		o.excuse(excuseLies)
		return true
	}
	_, moody := o.moods[uid]
	if moody {
		o.excuse(excuseMood)
	}
	return moody
}

// calmDown ends the mood of a pod fresh as of a time. The caller holds the mutex.
func (o *oracle) calmDown(uid cache.UID, p *seen, asOf time.Time) {
	at, moody := o.moods[uid]
	if moody && asOf.After(at.Add(o.settings.doubt())) {
		delete(o.moods, uid)
		clear(p.owe) // a change taken back before its delivery needs no delivery
	}
}

// doubt is how long a claim may contradict reads.
func (s *settings) doubt() time.Duration { return s.grace + 50*time.Millisecond }

// doubtful returns how long a claim may contradict reads: not at all, if phases only move forward.
func (o *oracle) doubtful() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lying || len(o.moods) > 0 {
		return o.settings.doubt()
	}
	return 0
}

// liars reports whether reads or claims may lie.
func (o *oracle) liars() bool { return o.lied.Load() }

// lie allows reads to lie from now on.
func (o *oracle) lie() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lying = true
	o.lieInForce = true
	o.madeUp = never
	o.lied.Store(true)
}

// never is a number of made up changes: so many switch the bound of missed events off.
const never = 1 << 30

// lieEnds ends the lies of reads.
func (o *oracle) lieEnds() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lieInForce = false
}

// stands notes that the loop stands within a turn.
func (o *oracle) stands() {
	o.failMu.Lock()
	defer o.failMu.Unlock()
	o.stood = time.Now()
}

// pauses notes that the loop stands for a time from now on.
func (o *oracle) pauses(d time.Duration) {
	o.failMu.Lock()
	defer o.failMu.Unlock()
	o.stood = time.Now().Add(d)
}

// resumes notes that the loop goes on after a pause: the claims that came meanwhile, or just
// before, are taken for new, and are in doubt for a grace from now on.
func (o *oracle) resumes(paused time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	from := now.Add(-paused - o.settings.doubt())
	for uid, at := range o.moods {
		if at.After(from) {
			o.moods[uid] = now
		}
	}
}

// delivered ends the excuse of owed events. The caller holds the mutex.
func (o *oracle) delivered(s pleg.Stats, reading bool) {
	if o.owing && reading && s.OwedPods == 0 && len(o.system.Watch()) == 0 {
		o.owing = false
		o.emitted = nil
	}
}

// forgive ends the allowances for IDs missed by single looks, once the cache agrees with the
// runtime.
func (o *oracle) forgive() {
	if o.lying || !o.truth.Trust() {
		return
	}
	for _, p := range o.pods {
		clear(p.mask) // the events of a returned ID come again
		clear(p.owe)  // and its removal need not be, if the generator was started since
	}
}

// believe ends the allowances for lies, if none is in force and none has left a trace: the cache
// agrees with the runtime, and a reader of Watch knows everything. Earlier observations of readers
// count for nothing.
func (o *oracle) believe(uids []cache.UID) {
	if !o.lying || o.lieInForce {
		return
	}
	for _, uid := range o.store.UIDs() {
		if !slices.Contains(uids, uid) {
			return // an invented pod
		}
	}
	o.boundary.mu.Lock()
	for _, begun := range o.boundary.begun {
		if !begun.After(o.boundary.disturbed) {
			o.boundary.mu.Unlock()
			return // a lie may have been delivered
		}
	}
	o.boundary.mu.Unlock()
	o.lying = false
	o.lied.Store(false)
	o.back = o.counted + taken(o.system.Stats())
	o.truth.Trust()
	for _, p := range o.pods {
		clear(p.items)
		clear(p.mask)
		clear(p.owe)
		clear(p.old)
	}
}

// reads notes whether the reader of Watch reads.
func (o *oracle) reads(yes bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reading = yes
}
