// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"
)

// Compare holds a transcript of the fake against that of the real runtime of that name. It returns
// the fake's transcript with every known difference replaced by what the real one does, and the
// differences of the table that it has found: what then still differs is unknown.
func Compare(runtime string, real, fake Transcript) (mended Transcript, found []Difference) {
	for _, s := range fake {
		s.Lines = slices.Clone(s.Lines)
		for _, d := range Differences {
			if d.Step != s.Name || len(d.Runtimes) > 0 && !slices.Contains(d.Runtimes, runtime) {
				continue
			}
			if d.Whole {
				if lines := real.step(s.Name); lines != nil && !slices.Equal(lines, s.Lines) {
					s.Lines = lines
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

// step returns the lines of the step of that name, or nil.
func (t Transcript) step(name string) []string {
	if i := slices.IndexFunc(t, func(s Step) bool { return s.Name == name }); i >= 0 {
		return t[i].Lines
	}
	return nil
}

// in finds where the difference is in the fake's lines, and how many of them it is; -1: nowhere.
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
