// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	for _, e := range expectations {
		if err := e.Check(result); err != nil {
			s.Failures = append(s.Failures, err.Error())
		}
	}
	return s
}

// Names of the files in a folder.
const (
	resultFile, changesFile, benchstatFile, junitFile, pageFile = "result.json", "changes.csv", "benchstat.txt", "junit.xml", "report.html"
)

// Write writes every file into the folder, which it makes if there is none. It goes on after a failure.
func (s *Saved) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	var errs []error
	for name, write := range map[string]func(io.Writer) error{
		resultFile: s.writeJSON, changesFile: s.writeCSV, benchstatFile: s.writeBenchstat, junitFile: s.writeJUnit, pageFile: s.WritePage,
	} {
		var b bytes.Buffer
		err := write(&b)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--out: write %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
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
	s := new(Saved)
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("%s is no run that pleg-bench has kept (--out): %w", path, err)
	}
	if s.Schema != Schema || s.Result == nil || len(s.Sides) == 0 || s.Sides[0].Latency == nil {
		return nil, fmt.Errorf("%s is no run that pleg-bench has kept (--out): its schema is %q, want %q", path, s.Schema, Schema)
	}
	return s, nil
}

func (s *Saved) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	return encoder.Encode(s)
}

func (s *Saved) writeCSV(w io.Writer) error {
	table := csv.NewWriter(w)
	_ = table.Write([]string{"mode", "at_seconds", "latency_seconds"}) // Flush keeps errors
	for _, side := range s.Sides {
		for _, p := range side.points {
			_ = table.Write([]string{side.Mode, number(p.At.Seconds()), number(p.Latency.Seconds())})
		}
	}
	table.Flush()
	return table.Error()
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', 9, 64) }

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
	err := line(own(r))
	if r.Comparison != nil {
		err = errors.Join(err, line(r.Comparison))
	}
	return err
}

// own is a result's generator under test in the form of the one beside it.
func own(r *bench.Result) *bench.ComparisonResult {
	return &bench.ComparisonResult{
		PLEG: r.PLEG, Events: r.Events, Latency: r.Latency, LatencyBy: r.LatencyBy, EventLatency: r.EventLatency,
		Freshness: r.Freshness, Consistency: r.Consistency, Cost: r.Cost,
	}
}

// junit is what CI systems read.
type junit struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Time     string      `xml:"timestamp,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
}

func (s *Saved) writeJUnit(w io.Writer) error {
	suite := junit{Name: "pleg-bench run", Time: s.Began.Format("2006-01-02T15:04:05")}
	add := func(name, failure string) {
		c := junitCase{Class: "pleg-bench", Name: name}
		if failure != "" {
			c.Failure = &junitFailure{failure}
			suite.Failures++
		}
		suite.Cases = append(suite.Cases, c)
		suite.Tests++
	}
	add("the cache equals the runtime; nothing was told twice, out of order or never", strings.Join(s.Result.Failures, "; "))
	for _, e := range s.expectations {
		failure := ""
		if err := e.Check(s.Result); err != nil {
			failure = err.Error()
		}
		add(e.String(), failure)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	return encoder.Encode(suite)
}
