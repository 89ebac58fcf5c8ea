// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"strconv"
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
	torn, delta, generic, tells                               bool
	base, max, grace, callSettle, listTimeout, inspectTimeout time.Duration
	workers, sweepAt, capacity, mailbox, unconfirmed, owedMax int
}

func defaultSettings() settings {
	return settings{
		profile: "containerd-2", seed: 1, latency: time.Millisecond,
		base: time.Second, max: 300 * time.Second, grace: 2 * time.Second, callSettle: 20 * time.Millisecond, listTimeout: 2 * time.Minute, inspectTimeout: 30 * time.Second,
		workers: 8, sweepAt: 16, capacity: 1000, mailbox: 65536, unconfirmed: 4096,
	}
}

var errSetting = errors.New("unknown setting: use profile, tier, seed, latency, torn, delta, generic, tells-calls, relist-base, relist-max, grace, call-settle, list-timeout, " +
	"inspect-timeout, workers, sweep-at, capacity, mailbox, unconfirmed or owed-max")

// set takes a config line: a name and a value.
func (s *settings) set(name, value string) error {
	var err error
	switch name {
	case "profile":
		s.profile = value
	case "tier":
		s.fake = value == "fake"
	case "seed":
		s.seed, err = strconv.ParseUint(value, 10, 64)
	case "torn":
		s.torn, err = strconv.ParseBool(value)
	case "delta":
		s.delta, err = strconv.ParseBool(value)
	case "tells-calls":
		s.tells, err = strconv.ParseBool(value)
	case "generic":
		s.generic, err = strconv.ParseBool(value)
	case "workers", "sweep-at", "capacity", "mailbox", "unconfirmed", "owed-max":
		n := map[string]*int{
			"workers": &s.workers, "sweep-at": &s.sweepAt, "capacity": &s.capacity, "mailbox": &s.mailbox, "unconfirmed": &s.unconfirmed,
			"owed-max": &s.owedMax,
		}[name]
		*n, err = strconv.Atoi(value)
	case "latency", "relist-base", "relist-max", "grace", "call-settle", "list-timeout", "inspect-timeout":
		d := map[string]*time.Duration{
			"latency": &s.latency, "relist-base": &s.base, "relist-max": &s.max, "grace": &s.grace, "call-settle": &s.callSettle,
			"list-timeout": &s.listTimeout, "inspect-timeout": &s.inspectTimeout,
		}[name]
		*d, err = time.ParseDuration(value)
	default:
		err = errSetting
	}
	if err != nil {
		return fmt.Errorf("config %s %s: %w", name, value, err)
	}
	return nil
}

// limits returns the oracle's bounds under these settings.
func (s *settings) limits() limits {
	return limits{
		base: s.base, max: s.max, grace: s.grace, listTimeout: s.listTimeout, threshold: 3 * time.Minute,
		wait: 20*s.latency + 50*time.Millisecond,
	}
}

// configOf returns the configuration of a generator under these settings.
func configOf[S any](s *settings, c *cache.Cache[S], b *boundary[S], hook pleg.Metrics, wall func() time.Time) pleg.Config[S] {
	cfg := pleg.Config[S]{
		Source: b, Stream: b, Cache: c, Metrics: hook, WallClock: wall,
		RelistBase: s.base, RelistMax: s.max, RelistTimeout: s.listTimeout, Grace: s.grace, CallSettle: s.callSettle,
		InspectWorkers: s.workers, InspectTimeout: s.inspectTimeout,
		SweepAt: s.sweepAt, Capacity: s.capacity, MailboxMax: s.mailbox, UnconfirmedMax: s.unconfirmed, OwedMax: s.owedMax,
		RereadBase: rereadBase, RetryBase: retryBase, RetryMax: retryMax, Settle: streamSettle,
		Jitter: -1, Seed: 1, TellsCalls: s.tells,
	}
	if s.generic {
		cfg.Stream = nil
	}
	return cfg
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
