// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "errors"

var (
	// ErrNoEvents is what a [Stream] ends with when the runtime does not offer events (CRI
	// Unimplemented).
	ErrNoEvents = errors.New("the runtime does not offer container events")
	// ErrAlreadyRun is returned by Run when the generator has run before. A generator runs once;
	// make a new one with the same cache.
	ErrAlreadyRun = errors.New("pleg: Run was called before: a generator runs once, make a new one over the same cache")
)
