// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
)

// onGone ends the run, as the user does, when the runtime is gone.
func (r *runner) onGone(gone *load.Gone) {
	r.end(&left{endpoint: r.options.Endpoint, gone: gone})
}

// left is the error of a run whose runtime is gone.
type left struct {
	endpoint string
	gone     *load.Gone
}

// Error names the runtime, and what to look at.
func (l *left) Error() string {
	return fmt.Sprintf("%s: the runtime has refused every call for %v: %s, then begin again; the last answer: %v",
		l.endpoint, l.gone.After, remedy(l.endpoint), l.gone.Last)
}

// Unwrap returns the load's error.
func (l *left) Unwrap() error { return l.gone }

// whyGone is the reason if the run has ended because the runtime is gone, or a stress test because
// the runtime was lost in a step; empty if not.
func (r *runner) whyGone() string {
	cause := context.Cause(r.asked)
	_, gone := errors.AsType[*left](cause)
	_, lost := errors.AsType[*cut](cause)
	if gone || lost {
		return cause.Error()
	}
	return ""
}

// leftEarly notes why a stress test ended early: the user ended it, or the runtime is gone.
func (r *runner) leftEarly(result *bench.StressResult) {
	result.End = bench.EndInterrupted
	if why := r.whyGone(); why != "" {
		result.End = bench.EndUnfinished
		result.Unfinished = why
	}
}
