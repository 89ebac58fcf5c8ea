// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// pace bounds the rate of lists of everything, from outside (podpace.go bounds the reads of pods).
// The boundary's mutex owns it. A list may begin
//
//   - at the start, and as soon as the last list has ended: if the embedder requested a list, if
//     the stream was connected or lost since the begin of the last list, if as many pods as SweepAt
//     want a read, or if the last list lost more of the living pods than it kept;
//   - a base period after the last list, if there is news: polling would be no cheaper;
//   - a period after the last list, by the period of Stats, without news.
type pace struct {
	on       bool
	settings *settings
	stats    func() pleg.Stats

	first   bool // a list has begun
	begun   time.Time
	ended   time.Time
	applied time.Time // start of the last successful list
	lists   int       // ended lists
	now     time.Time // when the last news came up after which a list may begin at once
	must    time.Time // the same, if the list has to begin at once; zero if none
	news    time.Time // when any news came up last
	unclear *unclear  // a list without a reason but its period

	shown     map[string]cache.UID // by ID: the pod in which a read has shown the ID last
	wandered  map[string]bool      // IDs shown in more than one pod by reads
	opened    time.Time            // of the stream under way; zero if none
	reopened  time.Time            // of the last stream
	connected time.Time            // zero while the stream is not connected

	// when a claim was last overruled, after which the period must be the base; zero if a list has
	// begun since
	overruled time.Time

	baseAt time.Time // when Stats last showed the base as the period while the stream was connected

	missed  int // as in the last Stats
	dropped int // claims without room; each asks for a list

	pods map[cache.UID]*podPace
}

// unclear is a list with no other reason than its period. Stats shows the period once time has
// passed.
type unclear struct {
	at     time.Time
	gap    time.Duration // since the end of the last list
	period time.Duration // as in Stats before
}

// The delays of a generator, not configured by any history.
const (
	rereadBase   = time.Millisecond
	retryBase    = time.Second
	retryMax     = 32 * time.Second
	streamSettle = time.Second
)

// watch makes the boundary judge rates.
func (b *boundary) watch(s *settings, stats func() pleg.Stats, store Store) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.prompt = prompt{
		promises: make(map[string]promise),
		rewrites: make(map[string]promise),
		lost:     make(map[string]pleg.Phase),
		ailing:   make(map[cache.UID]time.Time),
		ahead:    make(map[cache.UID]time.Time),
		back:     make(map[cache.UID]time.Time),
		waited:   make(map[cache.UID]time.Time),
		troubled: now,
	}
	b.held = store.UIDs
	b.confirmed = func(uid cache.UID) time.Time {
		if _, err := store.Get(uid); err != nil {
			return time.Time{}
		}
		return store.AsOf(uid)
	}
	b.fails = func(uid cache.UID) bool { _, err := store.Get(uid); return err != nil }
	b.shows = func(uid cache.UID) []pleg.Item { items, _ := store.Get(uid); return items }
	b.pace = pace{
		on:       true,
		settings: s,
		stats:    stats,
		news:     now,
		shown:    make(map[string]cache.UID),
		wandered: make(map[string]bool),
		pods:     make(map[cache.UID]*podPace),
	}
}

// lied reports whether reads may show IDs and states that never were.
func (b *boundary) lied() bool { return b.lying != nil && b.lying() }

// relist records a request for a list of everything.
func (b *boundary) relist() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pace.now = time.Now()
	b.pace.must = time.Now()
}

// opening and ending follow the stream. A stream is connected after its first message, or after a
// while.
func (p *pace) opening(now time.Time) {
	p.opened = now
	p.reopened = now
	p.connected = time.Time{}
}

func (p *pace) ending(now time.Time) {
	p.settle(now)
	if !p.connected.IsZero() && p.on {
		p.turn(now)
	}
	p.opened = time.Time{}
	p.connected = time.Time{}
}

// settle records that the stream has lasted long enough to be connected.
func (p *pace) settle(now time.Time) {
	if at := p.opened.Add(streamSettle); p.on && !p.opened.IsZero() && p.connected.IsZero() && !now.Before(at) {
		p.connected = at
		p.turn(at.Add(-1)) // known before a list begun then
	}
}

// turn is a change of the stream's state, at which everything is listed.
func (p *pace) turn(at time.Time) {
	p.now = at
	p.must = at
	p.news = at
}

// heard records a claim.
func (p *pace) heard(now time.Time) {
	if !p.on {
		return
	}
	p.settle(now)
	if p.connected.IsZero() {
		p.connected = now
		p.turn(now)
	}
	p.news = now
}

// restful is how long nothing must have been new for the generator to be at rest: claims may be in
// doubt for a grace, changes wait for their claims for another, and calls settle.
func (s *settings) restful() time.Duration { return 2*s.grace + s.callBurst() + s.base }

// callBurst is how long a burst of the agent's own calls may put off the reads of their changes.
func (s *settings) callBurst() time.Duration { return 5 * s.base }

// callWait is how long the agent's own calls may put off the reads of other changes, and how long
// what the agent itself has ended waits for further calls, and for its event.
func (s *settings) callWait() time.Duration { return max(s.base/4, s.callSettle) }

// listBegins checks the reason for a list.
func (b *boundary) listBegins(now time.Time) {
	p := &b.pace
	if !p.on {
		return
	}
	p.settle(now)
	if p.stats().RelistPeriod == p.settings.base {
		p.baseAt = now
	}
	p.overruled = time.Time{}
	gap := now.Sub(p.ended)
	wants := 0
	restless := 0
	for _, uid := range b.truth.known() {
		b.podPace(uid)
	}
	// A list shows a sandbox without metadata as a pod of its own, and the reads of this pod fail.
	for uid, x := range p.pods {
		b.foldCauses(uid, x, now)
		// A read that was under way, and began no later than the news, has answered nobody at its end. Nor
		// has a list that began in the moment before the generator heard of the news.
		unanswered := x.ended.After(p.begun) && !x.caused.Before(x.begun)
		if x.caused.Add(heardAfter).After(p.begun) || unanswered {
			wants++
		}
		moves := !x.moved.IsZero() && now.Sub(x.caused) < p.settings.restful()
		if x.open || moves || b.truth.restless(uid) || b.rereadDue(x, now) || b.settlesNow(x, now) {
			restless++
		}
	}
	sweep := p.settings.sweepAt
	switch {
	case !p.first, !p.now.Before(p.begun), wants >= sweep, b.halved:
	case gap < p.settings.base:
		b.fail("greedy", "a list of everything without a reason, %v after the last one", gap)
	case now.Sub(p.news) < p.settings.restful(),
		!p.news.Before(p.begun),
		restless >= sweep,
		gap >= p.settings.max,
		b.listFailed:
	default:
		p.unclear = &unclear{at: now, gap: gap, period: p.stats().RelistPeriod}
	}
	p.first = true
	p.begun = now
	p.must = time.Time{}
}

// listEnds records the end of a list.
func (b *boundary) listEnds(begun, now time.Time, l *pleg.Listing, err error) {
	p := &b.pace
	if !p.on {
		return
	}
	b.sampled(p.stats(), now)
	p.ended = now
	p.lists++
	b.podsListed(begun, now, l, err)
	if err == nil && (b.listFailed || now.Sub(begun) >= mayHang) {
		b.peekPace.answers = now
	}
	b.listFailed = err != nil
	if err != nil {
		return
	}
	p.settle(now)
	p.applied = begun
}

// sample compares Stats with the expected values. It runs when the generator's loop waits for an
// input.
func (b *boundary) sample(s pleg.Stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &b.pace
	now := time.Now()
	if !p.on || b.closed {
		return
	}
	b.sampled(s, now)
	b.lookDistrust(now)
	b.lookDebts(now)
	if !p.must.IsZero() && b.listing == 0 && p.first && p.must.After(p.begun) && now.After(p.must) &&
		now.After(p.ended) {
		b.fail("late", "a list of everything is to begin at once, and has not since %v", now.Sub(p.must))
	}
}

// lookDistrust checks that an overruled claim takes the period back to the base: a list begins at
// most a base period after the last list.
func (b *boundary) lookDistrust(now time.Time) {
	p := &b.pace
	if p.overruled.IsZero() || b.listing > 0 {
		return
	}
	if since := latest(p.overruled, p.ended.Add(p.settings.base)); now.After(since) {
		b.fail(
			"trust",
			"a claim was overruled %v ago, the last list ended %v ago, and none has begun",
			now.Sub(p.overruled),
			now.Sub(p.ended),
		)
	}
}

// overruling notes, from within the generator's loop, that a read has overruled a claim.
func (o *oracle) overruling() {
	if b := o.boundary; b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.pace.overruled = time.Now()
		b.pace.news = time.Now()
	}
}

func (b *boundary) sampled(s pleg.Stats, now time.Time) {
	p := &b.pace
	p.settle(now)
	if s.RelistPeriod == p.settings.base {
		p.baseAt = now
	}
	if u := p.unclear; u != nil && now.After(u.at) {
		p.unclear = nil
		if period := min(u.period, s.RelistPeriod); u.gap < period {
			b.fail(
				"greedy",
				"a list of everything without a reason, %v after the last one and with a period of %v",
				u.gap,
				period,
			)
		}
	}
	if s.State != pleg.StreamConnected && s.RelistPeriod != p.settings.base {
		b.fail("trust", "the stream is %v and the relist period %v", s.State, s.RelistPeriod)
	}
	if s.Missed != p.missed || s.State != pleg.StreamConnected {
		p.missed = s.Missed
		p.news = now
	}
	if s.DiscardedClaims != p.dropped {
		p.dropped = s.DiscardedClaims
		p.news = now
	}
}
