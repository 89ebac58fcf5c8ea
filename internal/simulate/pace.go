// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// pace is what the design lets a generator ask of its runtime, seen from outside: every list of everything needs a reason, and so
// does every read of a pod (podpace.go). The ledger's mutex owns it.
//
// A list of everything may begin
//
//   - at the start;
//   - at once when it was asked for, or the stream was connected or lost;
//   - a base period after the end of the last one, if that failed, claims were discarded or one did not say whose it is;
//   - a period after the end of the last one, by the period that Stats shows, which must double after a list at rest;
//   - in place of single reads, if as many pods want one as SweepAt says: at once if somebody waits for so many, and otherwise a base period
//     after the end of the last one.
type pace struct {
	on       bool
	settings *settings
	stats    func() pleg.Stats

	first   bool // a list has begun
	begun   time.Time
	ended   time.Time
	applied time.Time // start of the last list that succeeded, and of the one before
	before  time.Time
	now     []time.Time          // when a list was asked for that may begin at once
	soon    []time.Time          // or a base period after the last one
	must    time.Time            // the last of now that leaves no choice; zero if none
	unclear *unclear             // a list that only its period can justify
	shown   map[string]cache.UID // of which pod a read has shown an ID last
	left    map[string]cache.UID // and which pod it had left by that, until another read shows it there too

	opened    time.Time // of the stream under way; zero if none
	connected time.Time // zero while it is not

	overruled time.Time // when a claim was last overruled, after which the period must be the base; zero if a list has begun since

	period   time.Duration // as Stats showed it last
	raised   time.Time     // since when, at the latest
	missed   int
	doubled  time.Time // a list ended then after which the period must be doubled; zero if none
	calm     time.Time // end of the last list at which doubling could not be put off
	found    time.Time // end of the last read of a pod that may have found something that the first list at rest had not
	vouching time.Time // until then lists may have vouched that are not believed yet

	pods map[cache.UID]*podPace
}

// unclear is a list that has begun without any other reason than its period, which Stats shows once time has passed.
type unclear struct {
	at     time.Time
	gap    time.Duration // since the end of the last one
	period time.Duration // as Stats showed it before
}

// The delays of a generator that no history configures.
const (
	rereadBase   = time.Millisecond
	retryBase    = time.Second
	retryMax     = 32 * time.Second
	streamSettle = time.Second
)

// watch makes every list and every read need a reason.
func (b *ledger) watch(s *settings, stats func() pleg.Stats, store Store) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prompt = prompt{troubled: time.Now()}
	b.shows = func(uid cache.UID) []pleg.Item { items, _ := store.Get(uid); return items }
	b.failed = func(uid cache.UID) bool { _, err := store.Get(uid); return err != nil }
	b.pace = pace{on: true, settings: s, stats: stats, period: s.base, raised: time.Now(), shown: make(map[string]cache.UID), left: make(map[string]cache.UID), pods: make(map[cache.UID]*podPace)}
}

// lied says that reads may say what never was.
func (b *ledger) lied() bool { return b.lying != nil && b.lying() }

// relist notes that a list of everything was asked for.
func (b *ledger) relist() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pace.now, b.pace.must = append(b.pace.now, time.Now()), time.Now()
}

// opening and ended follow the stream, which is connected when it has told something or lasted for a while.
func (p *pace) opening(now time.Time) { p.opened, p.connected = now, time.Time{} }

func (p *pace) ending(now time.Time) {
	p.settle(now)
	if !p.connected.IsZero() && p.on {
		p.turn(now)
	}
	p.opened, p.connected = time.Time{}, time.Time{}
}

// settle notes that a stream has lasted long enough to be connected.
func (p *pace) settle(now time.Time) {
	if at := p.opened.Add(streamSettle); p.on && !p.opened.IsZero() && p.connected.IsZero() && !now.Before(at) {
		p.connected = at
		p.turn(at.Add(-1)) // known before a list that begins then
	}
}

// turn is a change of the stream's state at which everything is listed and trust starts again.
func (p *pace) turn(at time.Time) {
	p.now, p.must = append(p.now, at), at
	p.period, p.raised, p.doubled = p.settings.base, at, time.Time{}
	for _, x := range p.pods {
		x.looks = 0
	}
}

// heard notes a claim.
func (p *pace) heard(c cache.UID, id string, stranger bool, now time.Time) {
	if !p.on {
		return
	}
	p.settle(now)
	if p.connected.IsZero() {
		p.connected = now
		p.turn(now)
	}
	if c == "" {
		p.soon = append(p.soon, now)
	}
	if p.settings.unconfirmed < defaultSettings().unconfirmed && (p.shown[id] == "" || stranger) {
		p.soon = append(p.soon, now) // it may be one too many to be looked for by itself
	}
	if p.settings.mailbox < defaultSettings().mailbox {
		p.soon = append(p.soon, now) // it may be discarded
	}
}

// later returns the times that are not before t: what was asked for in the very instant in which a list began may have been asked for after.
func later(times []time.Time, t time.Time) []time.Time {
	kept := times[:0]
	for _, x := range times {
		if !x.Before(t) {
			kept = append(kept, x)
		}
	}
	return kept
}

// asked says that a list was asked for since the last one began, or as it began, so that it had to wait for its end.
func (p *pace) asked(gap time.Duration) bool {
	for _, at := range p.now {
		if gap == 0 || at.After(p.begun) {
			return true
		}
	}
	return false
}

// listBegins checks that a list has a reason.
func (b *ledger) listBegins(now time.Time) {
	p := &b.pace
	if !p.on {
		return
	}
	p.settle(now)
	for _, uid := range b.truth.known() {
		b.foldCauses(uid, b.podPace(uid), now)
	}
	p.overruled = time.Time{}
	gap := now.Sub(p.ended)
	switch {
	case !p.first:
	case p.asked(gap):
	case len(p.soon) > 0 && gap >= p.settings.base:
	case b.sweeping(now, gap):
	case gap >= p.settings.max:
	default:
		p.unclear = &unclear{at: now, gap: gap, period: p.stats().RelistPeriod}
	}
	p.first, p.begun = true, now
	p.now, p.soon, p.must = later(p.now, now), later(p.soon, now), time.Time{}
	for uid, x := range p.pods {
		if x.caused.Before(now) {
			x.wants = false
		}
		if b.inflight[uid] == 0 {
			x.last.begins()
		}
	}
}

// listEnds notes the end of a list, and after which the period must have doubled.
func (b *ledger) listEnds(begun, now time.Time, l *pleg.Listing, err error) {
	p := &b.pace
	if !p.on {
		return
	}
	b.sampled(p.stats(), now)
	p.ended = now
	b.podsListed(begun, now, l, err)
	if err != nil {
		p.soon = append(p.soon, now)
		return
	}
	p.settle(now)
	p.before, p.applied = p.applied, begun
	trusted := !p.connected.IsZero() && p.before.After(p.connected)
	for _, read := range b.begun {
		if !read.After(b.listFirst) {
			p.found = now // as yet
		}
	}
	quiet := !b.listFirst.IsZero() && now.Sub(latest(b.listFirst, p.found)) > p.settings.grace && !b.lied()
	if !trusted || !quiet || !now.After(p.vouching) {
		p.vouching = now.Add(p.settings.grace)
		return
	}
	p.calm = now
	if now.Sub(p.raised) >= p.period {
		p.doubled = now
	}
}

// sample compares what Stats shows with what it must. It is called when the generator's loop waits for something to happen.
func (b *ledger) sample(s pleg.Stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, now := &b.pace, time.Now()
	if !p.on || b.closed {
		return
	}
	b.sampled(s, now)
	b.lookOverdue(now)
	b.lookDistrust(now)
	if !p.must.IsZero() && b.listing == 0 && p.first && p.must.After(p.begun) && now.After(p.must) && now.After(p.ended) {
		b.fail("late", "a list of everything is to begin at once, and has not since %v", now.Sub(p.must))
	}
}

// lookDistrust checks that a claim which reads have overruled takes the period back to the base: a list begins a base period after the last one at the latest.
func (b *ledger) lookDistrust(now time.Time) {
	p := &b.pace
	if p.overruled.IsZero() || b.listing > 0 {
		return
	}
	if since := latest(p.overruled, p.ended.Add(p.settings.base)); now.After(since) {
		b.fail("trust", "a claim was overruled %v ago, the last list ended %v ago, and none has begun", now.Sub(p.overruled), now.Sub(p.ended))
	}
}

// overruling is told, from within the generator's loop, that a read has overruled a claim.
func (o *oracle) overruling() {
	if b := o.ledger; b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.pace.overruled = time.Now()
	}
}

func (b *ledger) sampled(s pleg.Stats, now time.Time) {
	p := &b.pace
	p.settle(now)
	if u := p.unclear; u != nil && now.After(u.at) {
		p.unclear = nil
		if period := min(u.period, s.RelistPeriod); u.gap < period {
			b.fail("greedy", "a list of everything without a reason, %v after the last one and with a period of %v", u.gap, period)
		}
	}
	if s.State != pleg.StreamConnected && s.RelistPeriod != p.settings.base {
		b.fail("trust", "the stream is %v and the relist period %v", s.State, s.RelistPeriod)
	}
	if s.Missed != p.missed || s.State != pleg.StreamConnected {
		p.missed, p.raised, p.doubled = s.Missed, now, time.Time{}
	}
	if d := p.doubled; !d.IsZero() && now.After(d) {
		p.doubled = time.Time{}
		if want := min(2*p.period, p.settings.max); s.RelistPeriod != want && !b.disturbed.After(d) {
			b.fail("greedy", "the relist period is %v after a list at rest that ended at a period of %v, want %v", s.RelistPeriod, p.period, want)
		}
	}
	if s.RelistPeriod != p.period {
		grew := s.RelistPeriod > p.period
		p.doubled = time.Time{}
		if p.period, p.raised = s.RelistPeriod, now; grew && p.calm.Equal(p.ended) {
			p.raised = p.ended // nothing was left to wait for
		}
	}
}

// ladders count the delays that have grown since the last reason: of rereads from rereadBase, of looks after what is going from a tenth of the base
// period, and of such looks once more, because an uncertainty in between starts them anew; doubled each time up to the longest relist period.
type ladders struct{ rereads, looks, again int }

// climb uses up the step that a gap allows, and reports whether there is one.
func (l *ladders) climb(gap time.Duration, s *settings) bool {
	switch {
	case l.rereads == 0 || gap >= grown(rereadBase, l.rereads-1, s.max):
		l.rereads++
	case gap >= grown(s.base/10, l.looks, s.max):
		l.looks++
	case gap >= grown(s.base/10, l.again, s.max):
		l.again++
	default:
		return false
	}
	return true
}

// grown doubles a delay n times.
func grown(d time.Duration, n int, most time.Duration) time.Duration {
	for ; n > 0 && d < most; n-- {
		d *= 2
	}
	return min(d, most)
}

// sweeping says that a list may take the place of single reads: enough pods want one, for something new or because their delay has passed.
func (b *ledger) sweeping(now time.Time, gap time.Duration) bool {
	p := &b.pace
	fresh := 0
	var open []*podPace
	for uid, x := range p.pods {
		switch {
		case gap < p.settings.base && now.Sub(x.asked) > 2*p.settings.grace+time.Second && !x.open:
		case x.wants:
			fresh++
		case x.open || b.truth.restless(uid) || now.Sub(x.caused) <= 2*p.settings.grace+time.Second:
			open = append(open, x)
		}
	}
	if fresh+len(open) < p.settings.sweepAt {
		return false
	}
	need := p.settings.sweepAt - fresh
	able := slices.DeleteFunc(open, func(x *podPace) bool {
		l := x.ladders
		return !l.climb(now.Sub(latest(x.ended, p.ended)), p.settings)
	})
	if need > 0 && len(able) == need { // else there is no saying whose delay it was
		for _, x := range able {
			x.climb(now.Sub(latest(x.ended, p.ended)), p.settings)
		}
	}
	return len(able) >= need
}
