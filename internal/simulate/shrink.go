// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"strings"
)

// Shrink reduces a failing history to a short history with the same failure: it leaves out lines,
// first many at once and then single lines, until every line is needed, and then simplifies the
// rest. Fails runs a history and reports whether it fails in the same way.
func Shrink(h History, fails func(History) bool) History {
	h = slices.Clone(h)
	for n := len(h) / 2; n >= 1; {
		shorter := false
		for from := 0; from+n <= len(h); {
			try := slices.Concat(h[:from], h[from+n:])
			if fails(try) {
				h = try
				shorter = true
			} else {
				from += n
			}
		}
		if !shorter || n > 1 {
			if n == 1 {
				break
			}
			n /= 2
		}
	}
	for i := range h {
		for _, simpler := range simplify(h[i]) {
			try := slices.Clone(h)
			try[i] = simpler
			if fails(try) {
				h = try
				break
			}
		}
	}
	return h
}

// simplify returns simpler forms of a line, the simplest first.
func simplify(line string) []string {
	fields := strings.Fields(line)
	var out []string
	if fields[0] == "advance" {
		for _, d := range []string{"1ms", "10ms", "100ms", "1s", "10s"} {
			if d != fields[1] {
				out = append(out, "advance "+d)
			}
		}
		return out
	}
	for i := len(fields) - 1; i > 0; i-- {
		if strings.Contains(fields[i], "=") || fields[i] == "drop" || fields[i] == "stale" ||
			fields[i] == "twice" ||
			fields[i] == "wall" {
			out = append(out, strings.Join(slices.Concat(fields[:i], fields[i+1:]), " "))
		}
	}
	return out
}
