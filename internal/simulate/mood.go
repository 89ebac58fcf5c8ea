// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// mood allows phases to go back from now on.
func (o *oracle) mood() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.moody, o.everMoody, o.onlyLies = true, true, false
}

// doubtful returns how long a claim may contradict reads: not at all, if phases only move forward.
func (o *oracle) doubtful() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.moody {
		return o.settings.grace + 50*time.Millisecond
	}
	return 0
}

// liars reports whether reads or claims may lie.
func (o *oracle) liars() bool { return o.lied.Load() }

// lie allows reads to lie from now on.
func (o *oracle) lie() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.onlyLies = !o.moody || o.onlyLies; !o.lying {
		o.lying, o.moody, o.everMoody = true, true, true
	}
	o.lieInForce = true
	o.lied.Store(true)
}

// lieEnds ends the lies of reads.
func (o *oracle) lieEnds() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lieInForce = false
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
	o.ledger.mu.Lock()
	for _, begun := range o.ledger.begun {
		if !begun.After(o.ledger.disturbed) {
			o.ledger.mu.Unlock()
			return // a lie may have been delivered
		}
	}
	o.ledger.mu.Unlock()
	o.lying, o.moody = false, o.moody && !o.onlyLies
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
