// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Expectation is a bound on one number of a result, such as "latency.p99<5ms".
type Expectation struct {
	text, path, op string
	bound          float64
}

var expectationForm = regexp.MustCompile(`^([A-Za-z0-9_.]+)\s*(<=|>=|<|>|=)\s*(.+)$`)

// ParseExpectation reads a bound: the path of a number in the result's JSON, in which _seconds and _bytes
// may be left out, a comparison, and a number, a duration (5ms) or a size (64MiB).
func ParseExpectation(text string) (Expectation, error) {
	m := expectationForm.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return Expectation{}, fmt.Errorf("--expect %q: use PATH<VALUE, such as latency.p99<5ms, events.missed=0 or cost.pleg_max_rss<64MiB", text)
	}
	e := Expectation{text: text, path: m[1], op: m[2]}
	var err error
	if e.bound, err = quantity(m[3]); err != nil {
		return Expectation{}, fmt.Errorf("--expect %q: %w", text, err)
	}
	var blank bench.Result // every number is there, whatever the run was
	blank.Comparison, blank.Cost.RuntimeCPUSeconds, blank.Events.RuntimeEmitted = new(bench.ComparisonResult), new(float64), new(int)
	blank.Outage, blank.Stall = new(bench.OutageResult), new(bench.StallResult)
	if _, err := e.value(&blank); err != nil && !errors.Is(err, errAbsent) {
		return Expectation{}, err
	}
	return e, nil
}

// quantity reads a number, a duration in seconds, or a size in bytes.
func quantity(s string) (float64, error) {
	s = strings.TrimSpace(s)
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return f, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return d.Seconds(), nil
	}
	for unit, factor := range map[string]float64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(s, unit); ok {
			if f, err := strconv.ParseFloat(strings.TrimSpace(n), 64); err == nil {
				return f * factor, nil
			}
		}
	}
	return 0, fmt.Errorf("%q is no number, duration (5ms) or size (64MiB)", s)
}

// inMap matches paths into maps, whose keys only a run tells.
var inMap = regexp.MustCompile(`(^|\.)(latency_by_change|cost\.rpcs|load\.errors)(\.|$)`)

// errAbsent says that a run has not measured a number.
var errAbsent = errors.New("this run has no such number")

// value returns the number that the expectation is about.
func (e Expectation) value(r *bench.Result) (float64, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	var at any
	if err := json.Unmarshal(raw, &at); err != nil {
		return 0, err
	}
	for part := range strings.SplitSeq(e.path, ".") {
		fields, ok := at.(map[string]any)
		if !ok && inMap.MatchString(e.path) {
			return 0, errAbsent
		}
		if !ok {
			return 0, fmt.Errorf("--expect %q: %s is no number of the result (docs/pleg-bench.md lists them)", e.text, e.path)
		}
		found := false
		for _, name := range []string{part, part + "_seconds", part + "_bytes"} {
			if at, found = fields[name]; found {
				break
			}
		}
		if !found && inMap.MatchString(e.path) {
			return 0, errAbsent
		}
		if !found {
			return 0, fmt.Errorf("--expect %q: the result has no %s (docs/pleg-bench.md lists its fields)", e.text, e.path)
		}
	}
	switch v := at.(type) {
	case float64:
		return v, nil
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	case nil:
		return 0, errAbsent
	}
	return 0, fmt.Errorf("--expect %q: %s is no number of the result (docs/pleg-bench.md lists them)", e.text, e.path)
}

// Check says why a result does not keep the bound, nil if it does.
func (e Expectation) Check(r *bench.Result) error {
	v, err := e.value(r)
	if err != nil {
		return fmt.Errorf("expected %s: %w", e.text, err)
	}
	kept := map[string]bool{"<": v < e.bound, "<=": v <= e.bound, ">": v > e.bound, ">=": v >= e.bound, "=": v == e.bound}[e.op]
	if !kept {
		return fmt.Errorf("expected %s, it is %.4g", e.text, v)
	}
	return nil
}

// String returns the bound as it was written.
func (e Expectation) String() string { return e.text }
