// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"

	"github.com/evented-pleg/evented-pleg/cache"
)

// driver is a core and an executor without the loop: a test tells the core things, at times that
// the test makes up, and what the core wants is carried out at once. The reads that it wants are
// kept.
type driver[S any] struct {
	core    *core[S]
	exec    *executor[S]
	cache   *cache.Cache[S]
	begun   []action[S] // reads and streams that the core has wanted, for the test to take
	reports []Report
	journal func(in input[S], now instant, do *todo[S])
}

func newDriver[S any](cfg Config[S], clk clock) *driver[S] {
	cfg = cfg.withDefaults()
	d := &driver[S]{core: newCore(&cfg, clk, 1), cache: cfg.Cache}
	d.exec = newExecutor(&cfg, clk, d.core)
	d.exec.child = func(a *action[S]) { d.begun = append(d.begun, *a) }
	d.exec.record = func(r Report) { d.reports = append(d.reports, r) }
	return d
}

// tell tells the core, and then what came of carrying out what it wants, as the loop does.
func (d *driver[S]) tell(in input[S], now instant) {
	for {
		d.core.apply(&in, now)
		if d.journal != nil {
			d.journal(in, now, &d.core.out.todo)
		}
		d.settle()
		if !d.exec.owesFeedback() {
			return
		}
		in = d.exec.feedback()
	}
}

// settle carries out what the core wants.
func (d *driver[S]) settle() { d.exec.carryOut(&d.core.out.todo, &d.core.out.count) }

func (d *driver[S]) tick(now instant) { d.tell(input[S]{kind: inputTick}, now) }

func (d *driver[S]) start(now instant) {
	d.tell(input[S]{kind: inputStart, held: d.cache.UIDs()}, now)
}

func (d *driver[S]) claims(b *batch[S], now instant) {
	d.tell(input[S]{kind: inputClaims, claims: b}, now)
}

func (d *driver[S]) onListed(r *listedAll, now instant) {
	d.tell(input[S]{kind: inputListed, listed: r}, now)
}

func (d *driver[S]) onInspected(r *inspected[S], now instant) {
	d.tell(input[S]{kind: inputInspected, inspected: r}, now)
}

// invariants returns what does not hold.
func (d *driver[S]) invariants(now instant) error {
	return errors.Join(d.core.checkInvariants(now), d.exec.check(d.core))
}

// watched yields the events that wait in Watch.
func (d *driver[S]) watched(yield func(Event) bool) {
	for len(d.exec.out.ch) > 0 {
		if !yield(<-d.exec.out.ch) {
			return
		}
	}
}
