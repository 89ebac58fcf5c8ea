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

// onGone ends the run, as the user does, when the load finds that the runtime is gone.
func (r *runner) onGone(err error) { r.end(fmt.Errorf("%s: %w", r.options.Endpoint, err)) }

// whyGone is the reason if the run has ended because the runtime is gone, empty if not.
func (r *runner) whyGone() string {
	cause := context.Cause(r.asked)
	if _, gone := errors.AsType[*load.Gone](cause); gone {
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
