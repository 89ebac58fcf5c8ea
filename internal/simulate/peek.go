// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// Peeks: reads of statuses by their IDs while lists do not answer. They stand beside the ordinary
// reads of a pod, which may hang, and have bounds of their own: a single peek of a pod at once, and
// in all no more than the delays of a peek allow.

// peekPace is the record of the peeks. The boundary's mutex owns the record.
type peekPace struct {
	under   map[cache.UID]int         // under way, beside an ordinary read
	maybe   map[cache.UID]calls       // ordinary reads under way that may be peeks
	made    map[cache.UID][]time.Time // begins, since the last news of the pod
	ended   map[cache.UID]time.Time   // the last end: an ordinary read begins a moment later at the earliest
	hurt    time.Time                 // when a peek last failed or was slow
	slowest time.Duration             // of the successful lists and reads
	answers time.Time                 // when a list last succeeded after others had failed, or had hung
}

// calls are reads, by the Done channels of their contexts.
type calls map[<-chan struct{}]bool

// listsHang is the age from which on a list counts as hung. Up to four times the age of the longest
// recent list, a generator may take the list for a slow one. The age counts from a moment before
// the call comes here: commands within a turn take nanoseconds.
const listsHang = 2*time.Second - withinTurn

// mayHang is the age from which on a list, or a list of a pod, may count as hung: a generator that
// stands still for a moment before the call, and does not notice, counts from its decision.
const mayHang = listsHang - unnoticed

// listless reports whether lists do not answer, or did not a moment ago: of everything, or of the
// pod, beside which an error stands. The error comes and goes within the instant in which a read
// and a list end.
func (b *boundary) listless(uid cache.UID, now time.Time) bool {
	for other := range b.inflight {
		if now.Sub(b.podPace(other).started) >= mayHang {
			return true // the list of a pod hangs like a list of everything
		}
	}
	hangs := b.listing > 0 && now.Sub(b.listBegun) >= mayHang
	x := b.podPace(uid)
	ended := latest(b.peekPace.answers, x.closed, x.failedAt)
	if !b.peekPace.ended[uid].Before(x.started) {
		ended = latest(ended, x.ended) // a peek due beside the ordinary read is held until that read's end
	}
	justNow := now.Sub(b.hearsOf(ended)) < heardAfter
	return b.listFailed || hangs || b.fails(uid) || justNow
}

// heardAfter is how long after the end of a call a generator acts on the result at the latest.
const heardAfter = 10 * time.Millisecond

// peeks reports whether a read of statuses is certainly a peek, and no part of the ordinary read
// under way.
func (b *boundary) peeks(ctx context.Context, uid cache.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.pace.on || b.inflight[uid] == 0 || !b.listless(uid, time.Now()) {
		return false
	}
	doubtful := len(b.peekPace.maybe[uid]) > 0 // the read under way may itself be the peek
	return !doubtful && b.podPace(uid).call != ctx.Done()
}

// peek passes a peek through.
func (b *crossing[S]) peek(pod pleg.Pod, read func() (pleg.Inspection[S], error)) (pleg.Inspection[S], error) {
	uid := pod.UID
	b.truth.refresh()
	b.mu.Lock()
	begun := b.enter()
	b.outcome.read("peek", uid)
	b.peekPace.under[uid]++
	if b.peekPace.under[uid] > 1 {
		b.fail("greedy", "two peeks of pod %s at once", uid)
	}
	b.peekBegins(uid, begun)
	b.mu.Unlock()
	i, err := read()
	b.compareStatuses(&pod, &i, begun, err)
	b.truth.refresh()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.peekPace.under[uid]--
	b.peekPace.ended[uid] = now
	b.podOutlived(uid, begun)
	if err != nil && begun.After(b.podFail[uid]) {
		b.podFail[uid] = begun // the readable items stand beside the error
	}
	b.peekHurts(begun, now, len(pod.Items), err)
	b.emptied(uid, begun, len(i.Pod.Items), err)
	x := b.podPace(uid)
	if err == nil && (vanishes(b.shows(uid), i.Pod.Items) || vanishes(x.reply, i.Pod.Items)) {
		b.overtaken(x, now) // a running ID that vanishes causes one more look
	}
	if b.inflight[uid] > 0 {
		b.overtaken(x, now) // nobody can tell which of the peek and the read under way looked last
	}
	return i, err
}

// peekHurts notes a failed or slow peek.
func (b *boundary) peekHurts(begun, now time.Time, n int, err error) {
	if err != nil || now.Sub(begun) > b.pace.settings.quick(n) {
		b.peekPace.hurt = now
	}
}

// emptied notes that a read by IDs, which may be a peek, has shown none of them. Where the agent
// tells of its calls, nobody else makes anything.
func (b *boundary) emptied(uid cache.UID, begun time.Time, n int, err error) {
	if b.pace.on && b.pace.settings.tells && err == nil && n == 0 {
		b.removes(uid, begun)
	}
}

// removes notes that an own call, or a read by IDs, shows that an ID of the pod is gone. Of a pod
// that is gone already it shows nothing more: the pod may be as of any time since the first.
func (b *boundary) removes(uid cache.UID, at time.Time) {
	if b.removed[uid].IsZero() || len(b.shows(uid)) > 0 {
		b.removed[uid] = at
	}
}

// peekBegins checks the reason for a peek.
func (b *boundary) peekBegins(uid cache.UID, now time.Time) {
	p := &b.peekPace
	x := b.podPace(uid)
	b.foldCauses(uid, x, now)
	made := slices.DeleteFunc(p.made[uid], func(at time.Time) bool { return at.Before(x.since) })
	made = append(made, now)
	p.made[uid] = made
	// Some of the possible peeks take the IDs from a list, one for each list. Others take the IDs from
	// the agent's calls, with delays that double, and that begin anew when lists have answered and
	// hang once more: they hang for two seconds before anybody is peeked at, however rare they are.
	pace := min(b.pace.settings.base, time.Second)
	if n := 40 + int(2*now.Sub(made[0])/pace) + b.pace.lists - x.lists; len(made) > n {
		b.fail(
			"greedy",
			"pod %s is peeked at %d times in %v, and nothing of it is new",
			uid,
			len(made),
			now.Sub(made[0]),
		)
	}
}

// lookPeeks checks the promises while lists do not answer and single statuses do. It replaces the
// checks of lookPrompt, which excuse every promise that needs a list.
func (o *oracle) lookPeeks(b *boundary, reading bool, now time.Time) {
	if !b.hangs(now) {
		return
	}
	// The generator awaits the list anew after a standstill.
	since := latest(b.listBegun, b.resumed).Add(b.patience())
	o.lookDeaf(b, now)
	for id, x := range b.prompt.promises {
		if !o.peekable(b, x.pod, now) {
			continue
		}
		if b.fails(x.pod) && (!reading || o.pod(x.pod).told[id] >= x.phase) {
			continue // told before lists ceased to answer, and no status could be read: see lookDeaf
		}
		from := latest(since, b.settled(x), x.at, b.truth.moved(x.pod), b.peekPace.hurt.Add(peekRetry), b.prompt.ahead[x.pod].Add(3*b.pace.settings.grace))
		if d := now.Sub(from); d > peekSoon && phaseIn(b.shows(x.pod), id) < x.phase && len(b.shows(x.pod)) > 0 {
			delete(b.prompt.promises, id)
			o.fail(
				"blind",
				"pod %s: a claim told that %s is %v, lists hang since %v, and %v later the cache shows it %v",
				x.pod,
				id,
				x.phase,
				now.Sub(b.listBegun),
				d,
				phaseIn(b.shows(x.pod), id),
			)
		}
	}
}

// peekable reports whether peeks at a pod show what its single statuses say.
func (o *oracle) peekable(b *boundary, uid cache.UID, now time.Time) bool {
	if !b.truth.isFresh(uid) {
		return false // the generator knows no IDs of an earlier generator's entry
	}
	if b.peekHangs(uid, now) {
		return false // single statuses do not answer either; peekHurts follows with the end of the peek
	}
	_, moody := o.moods[uid]
	x := b.podPace(uid)
	asked := x.open && !x.failed
	return !moody && !b.truth.spoilt(uid) && !asked
}

// lookDeaf checks that known containers are looked at once in a while as long as lists hang and
// single statuses do not, whatever the stream tells: what hangs lists may hang the events too.
func (o *oracle) lookDeaf(b *boundary, now time.Time) {
	since := latest(b.listBegun, b.resumed).Add(b.patience())
	for _, uid := range b.truth.UIDs() {
		if !o.peekable(b, uid, now) {
			continue
		}
		from := latest(since, b.truth.moved(uid), b.peekPace.hurt.Add(peekRetry), b.prompt.ahead[uid].Add(3*b.pace.settings.grace))
		if now.Sub(from) <= peekRounds {
			continue
		}
		for _, it := range b.shows(uid) {
			if _, phase := b.truth.phaseOf(it.ID); it.Phase < phase {
				o.fail(
					"deaf",
					"pod %s: lists hang since %v, and %v later the cache shows %s %v, which is %v",
					uid,
					now.Sub(b.listBegun),
					now.Sub(from),
					it.ID,
					it.Phase,
					phase,
				)
			}
		}
	}
}

// peekHangs reports whether a peek of a pod, or a read that may be a peek, has been under way for
// longer than a quick peek.
func (b *boundary) peekHangs(uid cache.UID, now time.Time) bool {
	made := b.peekPace.made[uid]
	if len(made) == 0 || b.peekPace.under[uid]+len(b.peekPace.maybe[uid]) == 0 {
		return false
	}
	return now.Sub(made[len(made)-1]) > b.pace.settings.quick(b.truth.size(uid))
}

// peekRetry is how long a pod is not peeked at after a failed or early peek.
const peekRetry = 10 * time.Second

// peekSoon is how long after a claim a known pod is shown while lists do not answer.
const peekSoon = 3 * time.Second

// peekRound is the time from one look at every known pod to the next while lists do not answer.
const peekRound = 10 * time.Second

// peekRounds is how long a change may go unseen while lists do not answer and nothing is told: a
// generator waits before the first round, and looks twice for an ID that vanishes.
const peekRounds = 2*peekRound + peekSoon

// hangs reports whether the list under way does not answer: its age is far beyond any successful
// list or read.
func (b *boundary) hangs(now time.Time) bool {
	return b.listing > 0 && now.Sub(b.listBegun) > b.patience()
}

// patience is the age from which on a generator may not take a list for a slow one. A read that
// begins in a pause which the generator does not notice has lasted longer for it.
func (b *boundary) patience() time.Duration { return max(listsHang, 4*(b.peekPace.slowest+b.lapse)) }
