// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// Expectation is a bound on a number of a result, such as "latency.p99<5ms".
type Expectation struct {
	text, path, op string
	bound          float64
	show           func(float64) string // a number as the bound is written
	word           string               // the expected text; empty if the bound is a number
	found          string               // the path with the names that the JSON has
}

var expectationForm = regexp.MustCompile(`^([A-Za-z0-9_.-]+)\s*(<=|>=|<|>|=)\s*(.+)$`)

// ParseExpectations reads bounds on results of the kind of blank, which has all its optional parts,
// and reports every bad bound, also those on what the options cannot measure. A bound is the path
// of a number in the result's JSON, in which _seconds and _bytes may be left out, a comparison, and
// a number, a duration (5ms) or a size (64MiB); or the path of a text, =, and the text.
func ParseExpectations(texts []string, blank any, without Without) ([]Expectation, error) {
	var list []Expectation
	var errs []error
	for _, text := range texts {
		e, err := parseExpectation(text, blank)
		if err == nil {
			err = without.refuse(e)
		}
		list = append(list, e)
		errs = append(errs, err)
	}
	return list, errors.Join(errs...)
}

// Without is why options do not measure parts of a result, by the path of the part.
type Without map[string]string

// Add adds paths with a common reason.
func (w Without) Add(why string, paths ...string) {
	for _, path := range paths {
		w[path] = why
	}
}

// refuse returns why the bound cannot be kept, nil if it can.
func (w Without) refuse(e Expectation) error {
	for path, why := range w {
		if e.found == path || strings.HasPrefix(e.found, path+".") {
			return fmt.Errorf("--expect %q: with these options %s is not measured: %s", e.text, e.path, why)
		}
	}
	return nil
}

// BlankRun is a run's result with all its optional parts, for [ParseExpectations].
func BlankRun() *bench.Result {
	blank := new(bench.Result)
	blank.Comparison = new(bench.ComparisonResult)
	blank.Cost.RuntimeCPUSeconds = new(float64)
	blank.Events.RuntimeEmitted = new(int)
	blank.Outage = new(bench.OutageResult)
	return blank
}

func parseExpectation(text string, blank any) (Expectation, error) {
	m := expectationForm.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return Expectation{}, fmt.Errorf(
			"--expect %q: use PATH<VALUE, such as latency.p99<5ms, events.missed=0 or cost.pleg_max_rss<64MiB",
			text,
		)
	}
	e := Expectation{text: text, path: m[1], op: m[2]}
	found, err := e.value(blank)
	if errors.Is(err, errNull) { // a list or a map
		err = e.noNumber()
	}
	if err != nil && !errors.Is(err, errAbsent) {
		return Expectation{}, err
	}
	if _, ok := found.(string); ok {
		if e.op != "=" {
			return Expectation{}, fmt.Errorf("--expect %q: %s is a text, which only = compares", text, e.path)
		}
		e.word = strings.TrimSpace(m[3])
		return e, nil
	}
	if e.bound, e.show, err = quantity(m[3]); err != nil {
		return Expectation{}, fmt.Errorf("--expect %q: %w", text, err)
	}
	return e, nil
}

// failures returns the bounds that a finding does not keep.
func failures(bounds []Expectation, found bench.Finding) []string {
	list := []string{}
	for _, e := range bounds {
		if err := e.Check(found); err != nil {
			list = append(list, err.Error())
		}
	}
	return list
}

// quantity reads a number, a duration in seconds, or a size in bytes, and returns the format for
// others.
func quantity(s string) (v float64, show func(float64) string, err error) {
	s = strings.TrimSpace(s)
	if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(f) { // which keeps no bound
		return f, func(v float64) string { return fmt.Sprintf("%.4g", v) }, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return d.Seconds(), bench.Seconds, nil
	}
	for unit, factor := range map[string]float64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(s, unit); ok {
			if f, err := strconv.ParseFloat(strings.TrimSpace(n), 64); err == nil && !math.IsNaN(f) {
				return f * factor, func(v float64) string { return bench.Bytes(uint64(max(v, 0))) }, nil
			}
		}
	}
	return 0, nil, fmt.Errorf("%q is no number, duration (5ms) or size (64MiB)", s)
}

// inMap matches paths into maps with keys known only to a run.
var inMap = regexp.MustCompile(`(^|\.)(cost\.rpcs|load\.errors|stream\.delay(_seconds)?|calls)(\.|$)`)

// counting matches paths into maps of counts, in which nothing is 0.
var counting = regexp.MustCompile(`^(stream\.(flaws|skipped|reordered|endings)|reports)\.`)

// errAbsent: a run has not measured the number. With errNull the JSON says so.
var (
	errAbsent = errors.New("this run has no such number")
	errNull   = fmt.Errorf("%w", errAbsent)
)

// value returns the number or the text that the expectation is about, and notes the whole path.
func (e *Expectation) value(result any) (any, error) {
	raw, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	var at any
	if err := json.Unmarshal(raw, &at); err != nil {
		return nil, err
	}
	e.found = ""
	empty := false
	for part := range strings.SplitSeq(e.path, ".") {
		fields, ok := at.(map[string]any)
		empty = empty || fields["count"] == 0. && part != "count" // quantiles of nothing
		found := false
		for _, name := range []string{part, part + "_seconds", part + "_bytes"} {
			at, found = fields[name]
			if found {
				e.found = strings.TrimPrefix(e.found+"."+name, ".")
				break
			}
		}
		switch {
		case found:
		case counting.MatchString(e.path):
			return 0., nil
		case inMap.MatchString(e.path):
			return nil, errAbsent
		case !ok:
			return nil, e.noNumber()
		default:
			return nil, fmt.Errorf(
				"--expect %q: with these options the result has no %s%s (docs/json.md lists its fields)",
				e.text,
				e.path,
				nearest(raw, e.path),
			)
		}
	}
	if empty {
		return nil, errAbsent
	}
	switch v := at.(type) {
	case float64, string:
		return v, nil
	case bool:
		if v {
			return 1., nil
		}
		return 0., nil
	case nil:
		return nil, errNull
	}
	return nil, e.noNumber()
}

// nearest suggests the path of a number or text that is spelt most like a path; empty if none is.
func nearest(raw []byte, path string) string {
	var root any
	_ = json.Unmarshal(raw, &root) // has been read before
	best := ""
	least := len(path)/3 + 2
	var visit func(at any, under string)
	visit = func(at any, under string) {
		fields, ok := at.(map[string]any)
		if !ok {
			named := strings.TrimPrefix(under, ".")
			if steps := distance(path, named); steps < least {
				least = steps
				best = named
			}
			return
		}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			short := strings.TrimSuffix(strings.TrimSuffix(name, "_seconds"), "_bytes")
			visit(fields[name], under+"."+short)
		}
	}
	visit(root, "")
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// distance is the number of letters to add, leave out or change between two words (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func (e *Expectation) noNumber() error {
	return fmt.Errorf(
		"--expect %q: %s is no number of the result (docs/pleg-bench.md lists them)",
		e.text,
		e.path,
	)
}

// Check returns why a finding does not keep the bound, nil if it does. A bound on what was not
// measured is not kept.
func (e Expectation) Check(result bench.Finding) error {
	found, err := e.value(result)
	if err != nil {
		return fmt.Errorf("expected %s: %w", e.text, err)
	}
	for _, path := range result.Unmeasured() {
		if e.found == path || strings.HasPrefix(e.found, path+".") {
			return fmt.Errorf("expected %s: %w", e.text, errAbsent)
		}
	}
	if s, ok := found.(string); ok {
		if s != e.word {
			return fmt.Errorf("expected %s, it is %s", e.text, s)
		}
		return nil
	}
	v := found.(float64) // value returns nothing else
	kept := map[string]bool{
		"<":  v < e.bound,
		"<=": v <= e.bound,
		">":  v > e.bound,
		">=": v >= e.bound,
		"=":  v == e.bound,
	}[e.op]
	if !kept {
		return fmt.Errorf("expected %s, it is %s", e.text, e.show(v))
	}
	return nil
}

// String returns the bound as written.
func (e Expectation) String() string { return e.text }
