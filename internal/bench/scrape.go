// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strconv"
	"strings"
)

// Scrape reads metrics in Prometheus' text format, each by its name and labels. Other lines, such
// as comments, are skipped.
func Scrape(text []byte) map[string]float64 {
	values := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		end := strings.LastIndexByte(line, '}') + 1 // of the name and its labels
		if end == 0 {
			end = strings.IndexByte(line, ' ')
		}
		if end < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		value := append(strings.Fields(line[end:]), "") // and perhaps when it was so
		if v, err := strconv.ParseFloat(value[0], 64); err == nil {
			values[line[:end]] = v
		}
	}
	return values
}
