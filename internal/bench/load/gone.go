// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

// Gone is the error of a runtime that has refused every call for a time.
type Gone struct {
	// After is that time.
	After time.Duration
	// Last is the error of the last call.
	Last error
}

// Error names the time and the last call.
func (g *Gone) Error() string {
	return fmt.Sprintf("the runtime has refused every call for %v, the last one so: %v", g.After, g.Last)
}

// Unwrap returns the error of the last call.
func (g *Gone) Unwrap() error { return g.Last }

// absence knows for how long a runtime has refused every call. It is safe for concurrent use.
type absence struct {
	mu sync.Mutex // owns the fields below
	// since began with the first refusal; nil: the last call was answered.
	since *standstill.Span
	gone  *Gone
}

// note takes the outcome of a call. It returns the error if the runtime is known to be gone, and
// whether this call has shown it.
func (a *absence) note(err error, after time.Duration, meter *standstill.Meter) (gone *Gone, news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone != nil || after == 0 {
		return a.gone, false
	}
	switch status.Code(err) {
	case codes.Unavailable:
	case codes.Canceled, codes.DeadlineExceeded: // no word of the runtime's
		return nil, false
	default:
		a.since = nil
		return nil, false
	}
	if a.since == nil {
		a.since = new(meter.Begin())
	}
	if !over(*a.since, after) {
		return nil, false
	}
	a.gone = &Gone{After: after, Last: err}
	return a.gone, true
}
