// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
)

// Compare holds a transcript of the fake against that of the real runtime of that name. It returns the fake's transcript with every known
// difference replaced by what the real one does, and the differences of the table that it has found: what then still differs is unknown.
func Compare(runtime string, fake Transcript) (mended Transcript, found []Difference) {
	for _, s := range fake {
		s.Lines = slices.Clone(s.Lines)
		for _, d := range Differences {
			if d.Step != s.Name || len(d.Runtimes) > 0 && !slices.Contains(d.Runtimes, runtime) {
				continue
			}
			at := slices.Index(s.Lines, d.Fake)
			if d.Fake == "" {
				at = slices.Index(s.Lines, d.Before)
			}
			if at < 0 {
				continue
			}
			found = append(found, d)
			replaced := 1
			if d.Fake == "" {
				replaced = 0
			}
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
