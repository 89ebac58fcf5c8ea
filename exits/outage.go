// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"time"

	"k8s.io/klog/v2"
)

// outage follows the failed writes of the ledger, and logs them: the first at once, and the others
// at doubling pauses. So no disk floods the log, whether broken for days or every now and then.
// Each line has the number of failures since the line before.
type outage struct {
	// since is when the first write failed after the last success; zero: none has.
	since time.Time
	// latest is when a write last failed.
	latest time.Time
	// failures is their number since the last line.
	failures int
	// nextAt is when the next line may be, pause the time from there to the one after it.
	nextAt time.Time
	pause  time.Duration
	// logged: the log says that the writes fail, and not yet that they succeed again.
	logged bool
}

const (
	// shortestPause is that after the first line.
	shortestPause = ledgerRetry
	// longestPause is also the time without a failure after which the pauses are short again.
	longestPause = time.Hour
)

// failed takes a failed write.
func (o *outage) failed(now time.Time, logger klog.Logger, err error) {
	if o.since.IsZero() {
		o.since = now
	}
	if now.Sub(o.latest) >= longestPause {
		o.nextAt = now
		o.pause = shortestPause
	}
	o.latest = now
	o.failures++
	if now.Before(o.nextAt) {
		return
	}
	logger.Error(err, "The ledger is not written: the next process would repeat reports",
		"failures", o.failures, "since", o.since.UTC().Format(time.RFC3339))
	o.logged = true
	o.failures = 0
	o.nextAt = now.Add(o.pause)
	o.pause = min(2*o.pause, longestPause)
}

// succeeded takes a write that has not failed.
func (o *outage) succeeded(now time.Time, logger klog.Logger) {
	if o.logged {
		logger.Info("The ledger is written again", "failures", o.failures, "for", now.Sub(o.since).Round(time.Second).String())
		o.logged = false
		o.failures = 0
	}
	o.since = time.Time{}
}

// last has the next failure logged whatever came before: no other line comes after it.
func (o *outage) last() { o.nextAt = time.Time{} }
