// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
	"golang.org/x/perf/benchunit"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
)

func newCompare(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "compare A [B]",
		Short: "Compare kept runs as benchstat does",
		Long: `compare reads what "--out DIR" of run, stress or watch has kept in A and in B,
folders with any number of such folders below, and prints medians, their
confidence intervals, and which differ by more than chance (Mann-Whitney U test,
alpha 0.05), in the format of benchstat. Six runs each are enough for both. With
A alone it compares the evented and the generic PLEG that watched the same load.
Options in which A and B differ are named.`,
		Example: `  for i in 1 2 3 4 5 6; do pleg-bench run --out before/$i; done
  pleg-bench run --out after/1 --relist-max 60s
  pleg-bench compare before after
  # evented and generic of the same runs
  pleg-bench compare before
  benchstat -ignore seed before/*/benchstat.txt`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return cli.Usagef("compare needs one or two folders of --out: %d given", len(args))
			}
			if i := slices.Index(args, ""); i >= 0 {
				return cli.Usagef("compare: folder %d of %d is empty: name a folder of --out", i+1, len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var sides []*measured
			for _, path := range args {
				m, err := measureUntil(cmd.Context(), path)
				if err != nil {
					return err
				}
				sides = append(sides, m)
			}
			compared := sides
			if len(sides) == 1 {
				compared = sides[0].byMode()
			}
			d := compare(compared[0], compared[1])
			if len(d.Tables) == 0 {
				return incomparable(args, sides)
			}
			return d.WriteText(s.out, cli.Columns(s.out))
		},
	}
}

// incomparable is the error of folders without a benchmark in common.
func incomparable(paths []string, sides []*measured) error {
	names := strings.Join(paths, ", ")
	if len(sides) > 1 {
		return fmt.Errorf("%s: no benchmark is in both: compare folders of one command with the same options", names)
	}
	for name := range sides[0].values {
		if !strings.HasPrefix(name, "Run/") {
			return fmt.Errorf("%s: only a run has two PLEGs to compare, and this is %s: name a second folder", names, name)
		}
	}
	return fmt.Errorf("%s: no benchmark is in both; for the two PLEGs of one run, keep it with --compare", names)
}

// measured is the figures of a side of a comparison.
type measured struct {
	name string
	// values are by benchmark and unit, options the values of each configuration key.
	values  map[string]map[string][]float64
	options map[string]map[string]bool
}

// measureUntil is measure until ctx ends: the file may be a pipe without a writer. The goroutine of
// an abandoned read remains.
func measureUntil(ctx context.Context, path string) (*measured, error) {
	err := deadmount.Check(path)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	var m *measured
	read := make(chan struct{})
	go func() {
		defer close(read)
		m, err = measure(path)
	}()
	select {
	case <-read:
		return m, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// measure reads a file in the format of Go's benchmarks, or all such files below a folder.
func measure(path string) (*measured, error) {
	var paths []string
	top := path
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		top += string(filepath.Separator) // follows a link to a folder
	}
	err = filepath.WalkDir(top, func(p string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && (p == path || entry.Name() == report.BenchmarksFile) {
			paths = append(paths, p)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: name a folder of --out, or a %s", err, report.BenchmarksFile)
	}
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s holds no %s: name a folder of --out", path, report.BenchmarksFile)
	}
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	m := &measured{
		name:    path,
		values:  make(map[string]map[string][]float64),
		options: make(map[string]map[string]bool),
	}
	for _, p := range paths {
		if err := m.read(p); err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
	}
	if len(m.values) == 0 {
		return nil, fmt.Errorf("compare: %s holds no benchmark", path)
	}
	return m, nil
}

func (m *measured) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := benchfmt.NewReader(f, path)
	for r.Scan() {
		result, ok := r.Result().(*benchfmt.Result)
		if !ok {
			if bad, ok := errors.AsType[*benchfmt.SyntaxError](r.Result().(error)); ok {
				return bad
			}
			continue // metadata of units
		}
		name := string(result.Name)
		if m.values[name] == nil {
			m.values[name] = make(map[string][]float64)
		}
		for _, v := range result.Values {
			m.values[name][v.Unit] = append(m.values[name][v.Unit], v.Value)
		}
		for _, c := range result.Config {
			if c.File && m.options[c.Key] == nil {
				m.options[c.Key] = make(map[string]bool)
			}
			if c.File {
				m.options[c.Key][string(c.Value)] = true
			}
		}
	}
	return r.Err()
}

// byMode divides runs into those of the evented and those of the generic PLEG, under the same name.
func (m *measured) byMode() []*measured {
	const generic, evented = "mode=generic", "mode=evented"
	var split []*measured
	for _, mode := range []string{generic, evented} {
		part := &measured{
			name:   strings.TrimPrefix(mode, "mode="),
			values: make(map[string]map[string][]float64),
		}
		for name, values := range m.values {
			if strings.Contains(name, mode) {
				part.values[strings.Replace(name, "/"+mode, "", 1)] = values
			}
		}
		split = append(split, part)
	}
	return split
}

// compare returns both sides as benchstat's table: B beside A as the base.
func compare(a, b *measured) bench.Document {
	d := bench.Document{Title: "A: " + a.name, Lines: []string{"B: " + b.name}}
	for _, key := range slices.Sorted(maps.Keys(a.options)) {
		x := some(a.options[key])
		y := some(b.options[key])
		if x != y {
			d.Lines = append(d.Lines, fmt.Sprintf("not alike: %s: %s and %s", key, x, y))
		}
	}
	footnote := func(warnings ...[]error) (marks string) {
		for _, w := range slices.Concat(warnings...) {
			i := slices.Index(d.Story, w.Error())
			if i < 0 {
				i = len(d.Story)
				d.Story = append(d.Story, w.Error())
			}
			if mark := superscript(i + 1); !strings.Contains(marks, mark) {
				marks += " " + mark
			}
		}
		return marks
	}
	for _, name := range slices.Sorted(maps.Keys(a.values)) {
		t := bench.Table{Title: name, Columns: []string{"A", "B", "vs base"}}
		for _, unit := range slices.Sorted(maps.Keys(a.values[name])) {
			if b.values[name][unit] == nil {
				continue
			}
			thresholds := benchmath.DefaultThresholds
			x := benchmath.NewSample(a.values[name][unit], &thresholds)
			y := benchmath.NewSample(b.values[name][unit], &thresholds)
			sx := benchmath.AssumeNothing.Summary(x, 0.95)
			sy := benchmath.AssumeNothing.Summary(y, 0.95)
			c := benchmath.AssumeNothing.Compare(x, y)
			show := func(s benchmath.Summary) string {
				center := benchunit.Scale(s.Center, benchunit.ClassOf(unit))
				return center + " ± " + strings.TrimPrefix(s.PctRangeString(), "± ")
			}
			marks := footnote(sx.Warnings, sy.Warnings, c.Warnings)
			delta := c.FormatDelta(sx.Center, sy.Center) + " (" + c.String() + ")" + marks
			t.Add(unit, "", show(sx), show(sy), delta)
		}
		if len(t.Rows) > 0 {
			d.Tables = append(d.Tables, t)
		}
	}
	for i := range d.Story {
		d.Story[i] = superscript(i+1) + " " + d.Story[i]
	}
	return d
}

// superscript is the mark of a footnote.
func superscript(n int) string { return string([]rune("⁰¹²³⁴⁵⁶⁷⁸⁹")[n%10]) }

// some writes the values of an option.
func some(values map[string]bool) string {
	return cmp.Or(strings.Join(slices.Sorted(maps.Keys(values)), ","), "(none)")
}
