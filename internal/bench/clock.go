// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import "time"

// origin ties the monotonic clock of this process to the wall clock once.
var origin = time.Now()

// Stamp turns a time of this process into nanoseconds that can be compared with those of the other processes of a run: they follow the
// monotonic clock, so that steps of the wall clock during the run do not show. A time without a monotonic reading is taken by the wall clock.
func Stamp(t time.Time) int64 { return origin.UnixNano() + int64(t.Sub(origin)) }

// Now is Stamp(time.Now()).
func Now() int64 { return Stamp(time.Now()) }
