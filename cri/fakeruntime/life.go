// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Life is how a container ends by itself: after For, counted from its start, with ExitCode, if
// Ends. Containers made through the CRI take their Life from the annotations [AnnotationLifetime]
// and [AnnotationExitCode], or else from their command.
type Life struct {
	Ends     bool
	For      time.Duration
	ExitCode int32
}

// Annotations of a container that is created through the CRI, or of its pod.
const (
	// AnnotationLifetime is the time until the natural end: a Go duration, or a number of seconds.
	AnnotationLifetime = "fakeruntime.evented-pleg.io/lifetime"
	// AnnotationExitCode is the exit code of the natural end.
	AnnotationExitCode = "fakeruntime.evented-pleg.io/exit-code"
	// AnnotationIgnoreTerm set to "true": the container survives until the timeout of StopContainer
	// is over.
	AnnotationIgnoreTerm = "fakeruntime.evented-pleg.io/ignore-term"
)

// After returns a Life with an end.
func After(d time.Duration, exitCode int32) Life { return Life{true, d, exitCode} }

// maxLife bounds lifetimes, so that they can be added to any time.
const maxLife = 100 * 365 * 24 * time.Hour

func (l Life) validate() error {
	if l.For < 0 || l.For > maxLife {
		return fmt.Errorf("lifetime %v: use 0 to %v", l.For, maxLife)
	}
	if l.ExitCode < 0 || l.ExitCode > 255 {
		return fmt.Errorf("exit code %d: use 0 to 255", l.ExitCode)
	}
	return nil
}

// parseLifetime reads a duration; infinity does not end.
func parseLifetime(s string) (Life, error) {
	switch strings.ToLower(s) {
	case "inf", "infinity":
		return Life{}, nil
	}
	var d time.Duration
	if sec, err := strconv.ParseFloat(s, 64); err == nil {
		if !(sec >= 0 && sec <= maxLife.Seconds()) {
			return Life{}, fmt.Errorf("lifetime %q: use 0 to %v", s, maxLife)
		}
		d = time.Duration(math.Round(sec * float64(time.Second)))
	} else if d, err = time.ParseDuration(s); err != nil {
		return Life{}, fmt.Errorf("lifetime %q is neither a number of seconds nor a duration such as 1m30s", s)
	}
	life := Life{Ends: true, For: d}
	return life, life.validate()
}

func parseExitCode(s string) (int32, error) {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("exit code %q: use a number from 0 to 255", s)
	}
	return int32(n), nil
}
