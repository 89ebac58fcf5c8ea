// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"flag"
	"reflect"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// settings are the config lines of a history.
type settings struct {
	profile                                                   string
	fake                                                      bool // the second tier: the fake runtime over gRPC
	seed                                                      uint64
	latency                                                   time.Duration
	torn, sends, delta, generic, tells                        bool
	base, max, grace, callSettle, listTimeout, inspectTimeout time.Duration
	workers, sweepAt, capacity, mailbox, unconfirmed, owedMax int

	work       time.Duration // of a processor, for the statuses of a pod
	processors int           // of the runtime, shared by the calls under way; 0: calls take no work
	content    bool          // contents are compared in the second tier, too
	strict     bool          // creations and removals without a word cost trust, too
	age        time.Duration // when the server tells a connection to go away; 0: never
	ageGrace   time.Duration // pause before the server closes the connection
	lacks      bool          // statuses lack their unreadable items
	bundles    bool          // statuses bring all IDs of their pod, also without a request
	reread     time.Duration // each pod's statuses are read once in this time
	together   bool          // of a script: the claims of one instant may come together, as in random histories
}

// Room by default, which no history fills.
const usualMailbox, usualUnconfirmed = 65536, 4096

// roomy reports whether no claim is discarded for want of room.
func (s *settings) roomy() bool {
	return s.mailbox >= usualMailbox && s.unconfirmed >= usualUnconfirmed
}

// flags sets every setting to its default, and returns the settings by the names of config lines.
func (s *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("config", flag.ContinueOnError)
	f.StringVar(&s.profile, "profile", "containerd-2", "")
	f.BoolFunc("tier", "", func(value string) error { s.fake = value == "fake"; return nil })
	f.Uint64Var(&s.seed, "seed", 1, "")
	f.BoolVar(&s.torn, "torn", false, "")
	f.BoolVar(&s.sends, "sends", false, "")
	f.BoolVar(&s.delta, "delta", false, "")
	f.BoolVar(&s.generic, "generic", false, "")
	f.BoolVar(&s.tells, "tells-calls", false, "")
	f.DurationVar(&s.latency, "latency", time.Millisecond, "")
	f.DurationVar(&s.base, "relist-base", time.Second, "")
	f.DurationVar(&s.max, "relist-max", 300*time.Second, "")
	f.DurationVar(&s.grace, "grace", 2*time.Second, "")
	f.DurationVar(&s.callSettle, "call-settle", 20*time.Millisecond, "")
	f.DurationVar(&s.listTimeout, "list-timeout", 2*time.Minute, "")
	f.DurationVar(&s.inspectTimeout, "inspect-timeout", 30*time.Second, "")
	f.IntVar(&s.workers, "workers", 8, "")
	f.IntVar(&s.sweepAt, "sweep-at", 16, "")
	f.IntVar(&s.capacity, "capacity", 1000, "")
	f.IntVar(&s.mailbox, "mailbox", usualMailbox, "")
	f.IntVar(&s.unconfirmed, "unconfirmed", usualUnconfirmed, "")
	f.IntVar(&s.owedMax, "owed-max", 0, "")
	f.DurationVar(&s.work, "work", 0, "")
	f.BoolVar(&s.content, "content", false, "")
	f.BoolVar(&s.strict, "strict", false, "")
	f.DurationVar(&s.age, "age", 0, "")
	f.DurationVar(&s.ageGrace, "age-grace", 0, "")
	f.BoolVar(&s.lacks, "lacks", false, "")
	f.BoolVar(&s.bundles, "bundles", false, "")
	f.BoolVar(&s.together, "together", false, "")
	f.IntVar(&s.processors, "processors", 0, "")
	f.DurationVar(&s.reread, "reread", 10*time.Minute, "")
	return f
}

// served is how long a waiter waits at the most when all is at rest.
func (s *settings) served() time.Duration { return 20*s.latency + 50*time.Millisecond + 3*s.crowded() }

// load is how long the runtime works on the statuses of so many pods, with a fifth to spare.
func (s *settings) load(pods int) time.Duration {
	if s.processors == 0 {
		return 0
	}
	return s.work * time.Duration(pods) * 6 / time.Duration(5*s.processors)
}

// configOf returns the configuration of a generator under these settings.
func configOf[S any](s *settings, c *cache.Cache[S], b *crossing[S], hook pleg.Metrics, wall func() time.Time) pleg.Config[S] {
	cfg := pleg.Config[S]{
		Source:         b,
		Stream:         b,
		Cache:          c,
		Metrics:        hook,
		Recorder:       b.boundary,
		WallClock:      wall,
		RelistBase:     s.base,
		RelistMax:      s.max,
		RelistTimeout:  s.listTimeout,
		Grace:          s.grace,
		CallSettle:     s.callSettle,
		InspectWorkers: s.workers,
		InspectTimeout: s.inspectTimeout,
		SweepAt:        s.sweepAt,
		Capacity:       s.capacity,
		MailboxMax:     s.mailbox,
		UnconfirmedMax: s.unconfirmed,
		OwedMax:        s.owedMax,
		RereadBase:     rereadBase,
		RetryBase:      retryBase,
		RetryMax:       retryMax,
		Settle:         streamSettle,
		Jitter:         -1,
		Seed:           1,
		TellsCalls:     s.tells,
	}
	if s.generic {
		cfg.Stream = nil
	}
	if reread := reflect.ValueOf(&cfg).Elem().FieldByName("Reread"); reread.IsValid() {
		reread.SetInt(int64(s.reread))
	}
	return cfg
}

// accusations are the reasons of warnings about a runtime's answers.
var accusations = []pleg.Reason{
	pleg.ReasonInspectFailed,
	pleg.ReasonRelistFailed,
	pleg.ReasonRelistHangs,
	pleg.ReasonRelistSlow,
}

// Record counts the generator's warnings about the runtime's answers, and judges the first about
// slow and about hung lists. Later ones may have been held back.
func (b *boundary) Record(r pleg.Report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !r.Warning || !slices.Contains(accusations, r.Reason) {
		return
	}
	b.warnings++
	if r.Reason == pleg.ReasonInspectFailed && r.Pod != nil {
		b.podPace(r.Pod.UID).reported = true
	}
	first := !b.accused[r.Reason]
	b.accused[r.Reason] = true
	if !first || b.unnoticed >= listSlow/2 {
		return
	}
	// A generator counts from before the call.
	quick := b.listTook+b.unnoticed <= listSlow-time.Microsecond
	late := b.listing == 0 && time.Since(b.listEnd) > unnoticed && quick // else it did hang
	switch {
	case r.Reason == pleg.ReasonRelistSlow && quick:
		b.fail("accused", "a list that took %v is called slow: %s", b.listTook, r.Note)
	case r.Reason == pleg.ReasonRelistHangs && late:
		b.fail("accused", "a list that ended %v ago is said to hang: %s", time.Since(b.listEnd), r.Note)
	case r.Reason == pleg.ReasonRelistHangs && b.listing > 0 && time.Since(b.listBegun) < listSlow-unnoticed:
		b.fail("accused", "a list under way for %v is said to hang: %s", time.Since(b.listBegun), r.Note)
	}
}

const (
	// listSlow is the default of pleg.Config.RelistSlow.
	listSlow = 5 * time.Second
	// unnoticed is the longest pause of the loop that a generator does not notice. A list may begin
	// so much later than the turn that has begun it.
	unnoticed = 200 * time.Millisecond
	// withinTurn is longer than the commands within a turn, which take nanoseconds.
	withinTurn = time.Microsecond
)

// pauses notes that the generator's loop stands for a time. A pause goes unnoticed that ends hardly
// later than the loop was to run again: with a list under way, when the list would hang at the
// latest. A pause that begins in the turn in which the last one has ended goes on with it, as the
// loop may have heard of nothing in between: a list that ended in the first pause may still be
// waited for. The two are one no longer when the loop has run for withinTurn.
func (b *boundary) pauses(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	on := now.Sub(b.resumed) <= withinTurn
	if !on {
		b.paused = now
	}
	if !on || b.noticed {
		b.turnStood = now
	}
	b.noticed = d > unnoticed
	b.stood += d
	if d <= listSlow+unnoticed {
		b.unnoticed += d
		b.lapse = max(b.lapse, d)
	}
}

// standstills returns how long all pauses of the loop have lasted.
func (b *boundary) standstills() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stood
}

// hearsOf returns when the loop hears of what happened at a time: then; or, if it stood, or began
// to stand within the turn, when it goes on.
func (b *boundary) hearsOf(at time.Time) time.Time {
	if at.Before(b.stoodFrom()) {
		return at
	}
	return latest(at, b.resumed)
}

// stoodFrom is when the turn began in which the loop last stood.
func (b *boundary) stoodFrom() time.Time { return b.paused.Add(-withinTurn) }

// resumes notes that the loop goes on after a pause: it hears of the bursts of calls in which it
// has stopped, or that have begun since.
func (b *boundary) resumes() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resumed = time.Now()
	b.truth.heardAfter(b.stoodFrom())
	for _, o := range b.own {
		if b.stoodFrom().Before(latest(o.until, o.heard)) {
			o.heard = b.resumed.Add(b.pace.settings.callBurst())
		}
	}
}

// hook lets the oracle look from within the generator's loop, through the generator's Metrics.
type hook struct {
	o *oracle
	w *within
}

func (h hook) Add(name string, _ int) {
	switch name {
	case pleg.MetricEvents:
		h.o.emitting()
	case pleg.MetricOwed:
		h.o.oweing()
	case pleg.MetricOverruledClaims:
		h.o.overruling()
		h.o.look(false)
	default:
		h.o.look(false)
	}
}

func (h hook) Observe(string, time.Duration) {}

// BetweenSteps runs the commands due within a turn.
func (h hook) BetweenSteps() { h.w.step() }

// InvariantBroken records a broken invariant of the generator's core.
func (h hook) InvariantBroken(err error) { h.o.fail("invariant", "within the core: %v", err) }
