// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"maps"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// promise is what a generator owes for a claim that is true: that the cache shows the phase and
// Watch tells it.
type promise struct {
	pod   cache.UID
	phase pleg.Phase
	at    time.Time // when it was handed over
	seen  bool      // that the cache shows it
}

// prompt is what is promised. The ledger's mutex owns it.
type prompt struct {
	promises  map[string]promise                 // by ID
	lost      map[string]pleg.Phase              // the furthest phase told of an ID while, or before, the runtime lost track of it
	instant   map[cache.UID]*dominant            // what must be shown in the same instant
	began     time.Time                          // of a generator after another one, which does not know of claims that the one before was told
	troubled  time.Time                          // when a read last failed, was slow, or found every worker busy
	ahead     map[cache.UID]time.Time            // when a claim of a pod last said what was not so yet
	believed  map[cache.UID]time.Time            // when a payload was last believed at once
	strangers map[cache.UID]map[string]time.Time // IDs of which a claim told that the cache did not show, and when
}

// promptness is how promises were kept.
type promptness struct {
	slowest  time.Duration // from a claim until its event was handed to Watch, while reads were well
	kept     int           // promises
	instants int           // payloads that had to be believed in the same instant
}

// dominant is the payload of the only claim of a pod in one instant, which shows a pod that was at
// rest as it is.
type dominant struct {
	at    time.Time
	id    string
	phase pleg.Phase
	items []pleg.Item // nil if there was another claim in that instant
}

// soon is how long after a claim a pod of n IDs must be shown: a read that was under way, the read
// that the claim causes, and that read again if a list has overtaken it; up to two lists that take
// the place of reads, or go ahead of them after a change of the stream; and one step of rereading.
// It holds while no read fails or is slow, a worker is free, and nothing else of the pod changes.
func (s *settings) soon(n int) time.Duration {
	return rereadBase + 3*s.quick(n) + 2*s.quick(0)
}

// quick is how long a read of n IDs takes at the most, and a list of everything: two lists, and a
// look at every ID, and what lies between.
func (s *settings) quick(n int) time.Duration {
	return time.Duration(6+n) * (s.latency + 2*time.Microsecond)
}

// trouble notes that reads are not well.
func (b *ledger) trouble(begun, now time.Time, n int, err error) {
	if b.pace.on && (err != nil || now.Sub(begun) > b.pace.settings.quick(n)) {
		b.prompt.troubled = now
	}
}

// promised notes a claim.
func (b *ledger) promised(pod cache.UID, it pleg.Item, payload []pleg.Item, now time.Time) {
	s, p := b.pace.settings, &b.prompt
	if !b.pace.on || b.lied() || s.mailbox < defaultSettings().mailbox || s.unconfirmed < defaultSettings().unconfirmed {
		return
	}
	p.make()
	shown := b.shows(pod)
	d := p.instant[pod]
	if d != nil && d.at.Equal(now) {
		d.items = nil
	} else {
		d = &dominant{at: now, id: it.ID, phase: it.Phase}
		if b.atEase(pod, shown) && dominates(payload, shown, it) {
			d.items = slices.Clone(payload)
		}
		p.instant[pod] = d
	}
	owner, phase := b.truth.phaseOf(it.ID)
	if d := p.instant[owner]; pod == "" && d != nil && d.at.Equal(now) {
		d.items = nil // another claim of that pod in the same instant, which did not say so
	}
	for _, x := range append(slices.Clone(payload), it) {
		if slices.ContainsFunc(shown, func(y pleg.Item) bool { return x.ID == y.ID }) {
			continue
		}
		if p.strangers[pod] == nil {
			p.strangers[pod] = make(map[string]time.Time)
		}
		p.strangers[pod][x.ID] = now
	}
	if phase == pleg.PhaseUnknown && (owner == pod || owner != "" && pod == "") {
		p.lost[it.ID] = max(p.lost[it.ID], it.Phase)
	}
	if owner != pod || phase < it.Phase || phase == pleg.PhaseUnknown {
		p.ahead[owner], p.ahead[pod] = now, now
		return
	}
	b.promise(pod, it, now)
}

// make makes the maps.
func (p *prompt) make() {
	if p.promises == nil {
		p.promises, p.instant, p.ahead = make(map[string]promise), make(map[cache.UID]*dominant), make(map[cache.UID]time.Time)
		p.lost = make(map[string]pleg.Phase)
		p.strangers, p.believed = make(map[cache.UID]map[string]time.Time), make(map[cache.UID]time.Time)
	}
}

// promise notes what is owed for a claim, or for a call of the agent's own, that is true. A phase
// earlier than one that was told before the reads that do not know the state is old news: those
// reads stand until one knows more, as when a call that made a container returns after the
// container was started, and lost.
func (b *ledger) promise(pod cache.UID, it pleg.Item, now time.Time) {
	if b.lied() {
		return
	}
	b.prompt.make()
	if it.Phase < b.prompt.lost[it.ID] {
		return
	}
	if owner, phase := b.truth.phaseOf(it.ID); owner == pod && phase >= it.Phase && b.prompt.promises[it.ID].phase < it.Phase {
		shown := b.shows(pod)
		known := slices.ContainsFunc(shown, func(x pleg.Item) bool { return x.ID == it.ID })
		b.prompt.promises[it.ID] = promise{pod: pod, phase: it.Phase, at: now, seen: phaseIn(shown, it.ID) >= it.Phase && (known || phase == pleg.PhaseRemoved)}
	}
}

// atEase says that nothing is open about a pod: a read that began after all that is new has ended
// well, and claims that reads do not bear out are forgotten.
func (b *ledger) atEase(pod cache.UID, shown []pleg.Item) bool {
	x, grace := b.podPace(pod), b.pace.settings.grace
	for id, at := range b.prompt.strangers[pod] {
		if slices.ContainsFunc(shown, func(it pleg.Item) bool { return it.ID == id }) {
			delete(b.prompt.strangers[pod], id)
		} else if !x.begun.After(at.Add(grace)) {
			return false
		}
	}
	// A payload believed is as good as a read until a read has ended. A read begun in the instant of
	// the claim may show that another ID is gone: the pod is read again.
	known := x.begun.After(x.caused) || !b.prompt.believed[pod].Before(x.caused) && !x.ended.After(b.prompt.believed[pod])
	return known && b.inflight[pod] == 0 && !x.open && x.begun.After(latest(b.prompt.ahead[pod], b.prompt.began).Add(grace))
}

// lookPrompt checks what was promised. It is called when the generator's loop waits for something
// to happen.
func (o *oracle) lookPrompt(reading bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ledger == nil || o.moody || o.lying {
		return
	}
	b, now := o.ledger, time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &b.prompt
	if !b.pace.on || b.closed {
		return
	}
	// Reads show what the runtime does not know, and so must the cache; also if it ends later on.
	maps.DeleteFunc(p.promises, func(id string, x promise) bool {
		lost := b.truth.lost(id)
		if lost {
			p.lost[id] = max(p.lost[id], x.phase)
		}
		return lost
	})
	if b.busy(now) {
		return
	}
	for uid, d := range p.instant {
		delete(p.instant, uid)
		if d.items != nil && d.at.Equal(now) {
			o.lookInstant(uid, d, reading)
		}
	}
	for id, x := range p.promises {
		since := b.owedSince(x)
		shown := phaseIn(b.shows(x.pod), id)
		if shown >= x.phase && !x.seen {
			x.seen = true
			p.promises[id] = x
		}
		if b.podPace(x.pod).open || now.Sub(since) <= b.pace.settings.soon(b.truth.size(x.pod)) {
			continue
		}
		delete(p.promises, id)
		o.promptest.kept++
		told := o.pod(x.pod).told[id]
		switch {
		case shown < x.phase:
			o.fail("late", "pod %s: a claim told that %s is %v, and %v later the cache shows it %v", x.pod, id, x.phase, now.Sub(since), shown)
		case reading && untold(told, x.phase, shown):
			o.fail("late", "pod %s: a claim told that %s is %v, and %v later Watch has told %v", x.pod, id, x.phase, now.Sub(since), told)
		}
	}
}

// lookTold checks that an event was handed to Watch soon after the claim of what it tells.
func (o *oracle) lookTold(id string, phase pleg.Phase, at time.Time) {
	if o.ledger == nil || o.moody || o.lying {
		return
	}
	b := o.ledger
	b.mu.Lock()
	defer b.mu.Unlock()
	x, ok := b.prompt.promises[id]
	if !ok || x.seen || phase < x.phase || at.Before(x.at) || b.truth.lost(id) {
		return
	}
	x.seen = true
	b.prompt.promises[id] = x
	if !x.at.Equal(b.owedSince(x)) || b.podPace(x.pod).open || b.busy(at) {
		return
	}
	d, soon := at.Sub(x.at), b.pace.settings.soon(b.truth.size(x.pod))
	if o.promptest.slowest = max(o.promptest.slowest, d); d > soon {
		o.fail("late", "pod %s: a claim told that %s is %v, and Watch tells it %v later, want %v", x.pod, id, x.phase, d, soon)
	}
}

// owedSince returns since when nothing excuses that a promise is not kept.
func (b *ledger) owedSince(x promise) time.Time {
	p := &b.prompt
	return latest(b.settled(x.pod), x.at, b.truth.moved(x.pod), p.troubled, p.ahead[x.pod].Add(3*b.pace.settings.grace), b.podPace(x.pod).closed)
}

// lookInstant checks that a payload that dominates is believed in the same instant.
func (o *oracle) lookInstant(uid cache.UID, d *dominant, reading bool) {
	o.promptest.instants++
	items, _ := o.store.Get(uid)
	for _, it := range d.items {
		if !slices.Contains(items, it) {
			o.fail("late", "pod %s: the payload of the claim that %s is %v dominates, and the cache shows %v, not %v", uid, d.id, d.phase, items, it)
		}
	}
	told := o.pod(uid).told[d.id]
	if len(items) != len(d.items) {
		o.fail("late", "pod %s: the payload of the claim that %s is %v dominates, and the cache shows %v", uid, d.id, d.phase, items)
	} else {
		o.ledger.prompt.believed[uid] = d.at
	}
	if reading && untold(told, d.phase, phaseIn(items, d.id)) {
		o.fail("late", "pod %s: the payload of the claim that %s is %v dominates, and Watch has told %v", uid, d.id, d.phase, told)
	}
}

// dominates reports whether a claim's payload shows each ID of a status and no other, none in an
// earlier phase.
func dominates(payload, shown []pleg.Item, it pleg.Item) bool {
	n := 0
	for _, old := range shown {
		i := slices.IndexFunc(payload, func(x pleg.Item) bool { return x.ID == old.ID })
		if n++; i < 0 || payload[i].Phase < old.Phase || old.Phase == pleg.PhaseUnknown || old.ID == it.ID && payload[i].Phase != it.Phase {
			return false
		}
	}
	return n > 0 && n == len(payload) && it.Phase != pleg.PhaseUnknown && it.Phase != pleg.PhaseRemoved
}

// untold says that Watch still has to tell a phase: of an ID that has gone it need not, if it never
// told of it.
func untold(told, phase, shown pleg.Phase) bool {
	return phase >= pleg.PhaseRunning && told < phase && (told != 0 || shown != pleg.PhaseRemoved)
}

// phaseIn returns the phase in which a status shows an ID, Removed if it does not.
func phaseIn(items []pleg.Item, id string) pleg.Phase {
	for _, it := range items {
		if it.ID == id {
			return it.Phase
		}
	}
	return pleg.PhaseRemoved
}

// busy says that a read under way takes long.
func (b *ledger) busy(now time.Time) bool {
	for uid, begun := range b.begun {
		if now.Sub(begun) > b.pace.settings.quick(b.truth.size(uid)) {
			return true
		}
	}
	return b.listing > 0 && now.Sub(b.listBegun) > b.pace.settings.quick(0)
}

// latest returns the latest of times.
func latest(times ...time.Time) time.Time {
	last := times[0]
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
