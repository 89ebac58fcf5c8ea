// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/run"
)

// progressLine is the phase, and a bar while the load runs.
func progressLine(s run.Status) string {
	if s.Total == 0 {
		return s.Phase + " …"
	}
	const barWidth = 30
	done := min(int(barWidth*s.Elapsed/s.Total), barWidth)
	line := fmt.Sprintf("%s  %s%s  %s of %s  %s", s.Phase, strings.Repeat("█", done), strings.Repeat("░", barWidth-done),
		bench.Short(s.Elapsed.Round(100*time.Millisecond)), bench.Short(s.Total), bench.Count(s.Changes, "change"))
	if s.Behind > time.Second {
		line += fmt.Sprintf("  (%s behind: the runtime is slower than the rate)", bench.Short(s.Behind))
	}
	return line
}
