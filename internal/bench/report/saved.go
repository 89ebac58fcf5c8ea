// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Schema names the form of result.json. It changes when a field changes its meaning or goes.
const Schema = "pleg-bench/report/v1"

// Saved is a run with all that is kept of it.
type Saved struct {
	Schema string `json:"schema"`
	// Began is when, Command the arguments of the program.
	Began   time.Time     `json:"began"`
	Command []string      `json:"command"`
	Result  *bench.Result `json:"result"`
	// Sides are the generators, the one under test first.
	Sides []Side `json:"sides"`
	// Failures are the expectations that were not kept.
	Failures []string `json:"expectations_failed"`

	expectations []Expectation
}

// Side is one generator over time.
type Side struct {
	Mode string `json:"mode"`
	// Latency is that of every change, in a form that merges with other runs'.
	Latency *bench.Histogram `json:"latency_histogram"`
	// Samples are what the generator told of itself while the load ran.
	Samples []bench.Sample `json:"samples"`

	points []bench.Point
}

// New returns what is to be kept of a result that was made with Options.WantTimeline, judged by
// expectations.
func New(began time.Time, command []string, result *bench.Result, expectations []Expectation) *Saved {
	s := &Saved{Schema: Schema, Began: began.UTC(), Command: command, Result: result, Failures: []string{}, expectations: expectations}
	for _, series := range result.Series {
		h := new(bench.Histogram)
		for _, p := range series.Points {
			h.Record(p.Latency)
		}
		s.Sides = append(s.Sides, Side{Mode: series.Mode, Latency: h, Samples: series.Samples, points: series.Points})
	}
	s.Failures = append(s.Failures, Failures(expectations, result)...)
	return s
}

// Write writes every file into the folder, which it makes if there is none. It goes on after a failure.
func (s *Saved) Write(dir string) error {
	verdict := "the cache equals the runtime; nothing was told twice, out of order or never"
	suite := NewJUnit("pleg-bench run", s.Began, verdict, s.Result.Failures, s.expectations, s.Result)
	return Files{
		resultFile: JSON(s), changesFile: s.writeCSV, benchstatFile: s.writeBenchstat, junitFile: suite.Write, pageFile: s.WritePage,
	}.Write(dir)
}

// Load reads result.json, or that of a folder.
func Load(path string) (*Saved, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, resultFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a run: %w", err)
	}
	var of struct{ Schema string }
	if err := json.Unmarshal(raw, &of); err != nil {
		return nil, fmt.Errorf("%s is no run that \"pleg-bench run --out\" has kept: %w", path, err)
	}
	if of.Schema != Schema {
		return nil, fmt.Errorf("%s is no run that \"pleg-bench run --out\" has kept: its schema is %q, want %q", path, of.Schema, Schema)
	}
	s := new(Saved)
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("%s is no run that \"pleg-bench run --out\" has kept: %w", path, err)
	}
	if s.Result == nil || len(s.Sides) == 0 || s.Sides[0].Latency == nil {
		return nil, fmt.Errorf("%s is no whole run: it lacks its result or its latencies", path)
	}
	// Each change is in a file of its own, which a page shows if it is there.
	if err := s.readCSV(filepath.Join(filepath.Dir(path), changesFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return s, nil
}

// readCSV reads the changes back.
func (s *Saved) readCSV(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read a run: %w", err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	sides := make(map[string]*Side)
	for i := range s.Sides {
		sides[s.Sides[i].Mode] = &s.Sides[i]
	}
	for i, row := range rows[min(1, len(rows)):] {
		side := sides[row[0]]
		if len(row) != 3 || side == nil {
			return fmt.Errorf("%s, line %d: want mode, at_seconds and latency_seconds of one of the run's generators, it is %q", path, i+2, row)
		}
		at, errAt := strconv.ParseFloat(row[1], 64)
		latency, errLatency := strconv.ParseFloat(row[2], 64)
		if err := errors.Join(errAt, errLatency); err != nil {
			return fmt.Errorf("%s, line %d: %w", path, i+2, err)
		}
		side.points = append(side.points, bench.Point{At: duration(at), Latency: duration(latency)})
	}
	return nil
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func (s *Saved) writeCSV(w io.Writer) error {
	table := csv.NewWriter(w)
	_ = table.Write([]string{"mode", "at_seconds", "latency_seconds"}) // Flush keeps errors
	for _, side := range s.Sides {
		for _, p := range side.points {
			_ = table.Write([]string{side.Mode, Number(p.At.Seconds()), Number(p.Latency.Seconds())})
		}
	}
	table.Flush()
	return table.Error()
}

// writeBenchstat writes lines in the form of Go's benchmarks, one for each generator. Those of several
// runs go to benchstat one after another.
func (s *Saved) writeBenchstat(w io.Writer) error {
	r := s.Result
	line := func(c *bench.ComparisonResult) error {
		calls := 0
		for _, n := range c.Cost.RPCs {
			calls += n
		}
		_, err := fmt.Fprintf(w, "BenchmarkRun/mode=%s/pods=%d/rate=%g 1 %g p50-sec %g p99-sec %g fresh-p99-sec %g cpu-sec %d rss-bytes %d lists %d reads %d calls\n",
			c.PLEG.Mode, r.Load.Pods, r.Load.Rate, c.Latency.P50, c.Latency.P99, c.Freshness.P99, c.Cost.PLEGCPUSeconds, c.Cost.PLEGMaxRSSBytes,
			c.Cost.Relists, c.Cost.Inspections, calls)
		return err
	}
	if _, err := fmt.Fprintf(w, "runtime: %s %s\n", r.Runtime.Name, r.Runtime.Version); err != nil {
		return err
	}
	err := line(&r.ComparisonResult)
	if r.Comparison != nil {
		err = errors.Join(err, line(r.Comparison))
	}
	return err
}
