// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// isOurs reports whether that contestant is this project's PLEG, of this commit or of another.
func isOurs(name string) bool { return name == oursName || name == beforeName }

// joinBefore has the PLEG of the other program take part, right in front of ours.
func (b *bench) joinBefore() (err error) {
	info, err := os.Stat(b.before)
	switch {
	case err != nil:
		return fmt.Errorf("-before: %w; build it with go build -o PROGRAM . in this folder of the other commit", err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("-before: %s is no program; build it with go build -o PROGRAM . in this folder of the other commit", b.before)
	case !slices.Contains(b.agents, oursName):
		return fmt.Errorf("-before: %s is to stand beside %s, which is not among the -agents", b.before, oursName)
	}
	if b.before, err = filepath.Abs(b.before); err != nil {
		return err
	}
	b.agents = slices.Insert(b.agents, slices.Index(b.agents, oursName), beforeName)
	return nil
}

// beforeMarkdown prints ours beside the other build's as a table of its own: medians, and the median, the least and the greatest of the ratios of the
// rounds, each of which has both by turns. A ratio of zeros is none.
func (b *bench) beforeMarkdown(w io.Writer) error {
	head := "\n| row, case | measure | before | ours | ours : before | range |\n|---|---|---|---|---|---|\n"
	for _, old := range b.results {
		if old.Agent != beforeName {
			continue
		}
		for _, unit := range shown[old.Row] {
			ours := b.of(old.Row, old.Case, oursName)
			ratios := roundRatios(ours.Values[unit], old.Values[unit])
			ratio, spread := "", ""
			if n := len(ratios); n > 0 {
				ratio = fmt.Sprintf("%.3f", median(ratios))
				spread = fmt.Sprintf("%.3f to %.3f", ratios[0], ratios[n-1])
			}
			key := old.Row + ", " + strings.NewReplacer("/", ", ", "=", " ").Replace(old.Case)
			_, err := fmt.Fprintf(w, "%s| %s | %s | %s | %s | %s | %s |\n", head, key, measure(unit),
				plain(unit, old.median(unit)), plain(unit, ours.median(unit)), ratio, spread)
			if err != nil {
				return err
			}
			head = ""
		}
	}
	return nil
}

// roundRatios returns over : under of each round that has both, sorted.
func roundRatios(over, under []float64) (ratios []float64) {
	for i := range min(len(over), len(under)) {
		if x := over[i] / under[i]; !math.IsNaN(x) && !math.IsInf(x, 0) {
			ratios = append(ratios, x)
		}
	}
	slices.Sort(ratios)
	return ratios
}
