// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"
)

// Compare returns the fake's transcript with every known difference from the named real runtime
// replaced by the real form, and the found differences of the table: any remaining difference is
// unknown.
func Compare(runtime string, fake Transcript) (mended Transcript, found []Difference) {
	for _, s := range fake {
		s.Lines = slices.Clone(s.Lines)
		for _, d := range Differences {
			if d.Step != s.Name || len(d.Runtimes) > 0 && !slices.Contains(d.Runtimes, runtime) {
				continue
			}
			if d.Append != "" {
				if d.appendTo(s.Lines) {
					found = append(found, d)
				}
				continue
			}
			at, replaced := d.in(s.Lines)
			if at < 0 {
				continue
			}
			found = append(found, d)
			var with []string
			if d.Real != "" {
				with = []string{d.Real}
			}
			s.Lines = slices.Replace(s.Lines, at, at+replaced, with...)
		}
		mended = append(mended, s)
	}
	return mended, found
}

// appendTo mends the lines with another end. It reports whether there are any.
func (d Difference) appendTo(lines []string) (any bool) {
	begin, _ := strings.CutSuffix(d.Fake, "…")
	for i, line := range lines {
		if strings.HasPrefix(line, begin) && !slices.Contains(d.Except, line) {
			lines[i], any = line+d.Append, true
		}
	}
	return any
}

// in returns the place of the difference in the fake's lines, and its length; -1: nowhere.
func (d Difference) in(lines []string) (at, count int) {
	if d.Fake == "" {
		return slices.Index(lines, d.Before), 0
	}
	begin, several := strings.CutSuffix(d.Fake, "…")
	if !several {
		return slices.Index(lines, d.Fake), 1
	}
	has := func(line string) bool { return strings.HasPrefix(line, begin) }
	if at = slices.IndexFunc(lines, has); at < 0 {
		return at, 0
	}
	for at+count < len(lines) && has(lines[at+count]) {
		count++
	}
	return at, count
}
