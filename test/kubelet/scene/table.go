// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package scene

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Column is the results of a kubelet: a cell for each row, by the row's name.
type Column struct {
	head  string
	rows  []string // in order
	cells map[string]string
}

// NewColumn returns an empty column.
func NewColumn(head string) *Column { return &Column{head: head, cells: make(map[string]string)} }

func (c *Column) add(row, format string, values ...any) {
	c.rows = append(c.rows, row)
	c.cells[row] = fmt.Sprintf(format, values...)
}

// times adds a row of durations.
func (c *Column) times(row string, all []time.Duration) {
	q := bench.Summarize(all)
	c.add(row+": number, p50 / p99 / worst ms", "%d: %.0f / %.0f / %.0f", q.Count, q.P50.Seconds()*1e3, q.P99.Seconds()*1e3, q.Max.Seconds()*1e3)
}

// growth adds a row for each counter that has grown, times a factor.
func (c *Column) growth(row, unit string, before, after map[string]uint64, factor float64) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if grown := after[name] - before[name]; grown > 0 {
			c.add(row+name+unit, "%.1f", float64(grown)*factor)
		}
	}
}

// WriteTable writes columns as a table in Markdown. A row that only later columns have stands
// behind the row before it.
func WriteTable(out io.Writer, columns []*Column) {
	var rows []string
	for _, c := range columns {
		at := 0
		for _, row := range c.rows {
			if i := slices.Index(rows, row); i >= 0 {
				at = i
			} else {
				rows = slices.Insert(rows, at, row)
			}
			at++
		}
	}
	line := func(name string, cell func(*Column) string) {
		fmt.Fprintf(out, "| %s |", name)
		for _, c := range columns {
			fmt.Fprintf(out, " %s |", cell(c))
		}
		fmt.Fprintln(out)
	}
	line("", func(c *Column) string { return c.head })
	line("---", func(*Column) string { return "---:" })
	for _, row := range rows {
		line(row, func(c *Column) string { return cmp.Or(c.cells[row], "0") })
	}
}
