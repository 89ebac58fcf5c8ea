// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// doubt is told of a fault. Harmless says that it hides no change from the stream.
func (o *oracle) doubt(harmless bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.honest = o.honest && harmless
}

// mood is told that phases may go back from now on.
func (o *oracle) mood() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.moody, o.everMoody, o.onlyLies = true, true, false
}

// doubtful returns how long a claim may be at odds with reads: not at all, if phases only move
// forward.
func (o *oracle) doubtful() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.moody {
		return o.limits.grace + 50*time.Millisecond
	}
	return 0
}

// liars says that reads or claims may say what never was.
func (o *oracle) liars() bool { return o.lied.Load() }

// lie is told that reads may say what never was, from now on.
func (o *oracle) lie() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.onlyLies = !o.moody || o.onlyLies; !o.lying {
		o.lying, o.moody, o.everMoody, o.honest = true, true, true, false
	}
	o.lieInForce = true
	o.lied.Store(true)
}

// lieEnds is told that reads say nothing any more that never was.
func (o *oracle) lieEnds() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lieInForce = false
}

// believe ends the allowances that were made for lies, if none is in force and nothing is left of
// them: the cache agrees with the runtime, and a reader of Watch knows of everything. What readers
// have seen until then counts for nothing.
func (o *oracle) believe(uids []cache.UID) {
	if !o.lying || o.lieInForce {
		return
	}
	for _, uid := range o.store.UIDs() {
		if !slices.Contains(uids, uid) {
			return // an invented pod
		}
	}
	o.ledger.mu.Lock()
	for _, begun := range o.ledger.begun {
		if !begun.After(o.ledger.disturbed) {
			o.ledger.mu.Unlock()
			return // it may have been told a lie
		}
	}
	o.ledger.mu.Unlock()
	o.lying, o.moody = false, o.moody && !o.onlyLies
	o.lied.Store(false)
	o.back = o.counted + taken(o.system.Stats())
	o.truth.Trust()
	o.believed++
	for _, p := range o.pods {
		clear(p.items)
		clear(p.mask)
		clear(p.owe)
		clear(p.old)
	}
}
