// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"errors"
	"fmt"
)

var (
	// ErrRunning is returned when recording is started while already active.
	ErrRunning = errors.New("events: already recording to the sink")
	// ErrNoSink is returned when recording is started without Options.Sink.
	ErrNoSink = errors.New("events: there is no sink to record to: set Options.Sink")
	// ErrShutdown is returned by every start after a shutdown.
	ErrShutdown = errors.New("events: the broadcaster was shut down")
)

// UnsentError reports the events not delivered by a shutdown.
type UnsentError struct {
	// Series is how many series the server was not told the end of.
	Series int
	// Occurrences is the number of emitted events unknown to the server.
	Occurrences int64
	// Cause is why: the end of the context, or the last answer of the server.
	Cause error
}

func (e *UnsentError) Error() string {
	return fmt.Sprintf("events: shutdown left %d series with %d occurrences unsent: %v", e.Series, e.Occurrences, e.Cause)
}

// Unwrap returns the cause.
func (e *UnsentError) Unwrap() error { return e.Cause }
