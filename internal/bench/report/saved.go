// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package report stores the findings of a command of pleg-bench.
//
// # Model
//
// A [Saved] is a finding with its setup and its timeline. [Saved.Write] puts the finding into a
// folder: result.json, benchstat.txt, and report.html, which shows the terminal's document with
// charts, without need of a network. An [Expectation] is a bound on a number of the finding.
//
// # Concurrency
//
// Values here have no lock: a goroutine owns each.
//
// # Errors
//
// An error of writing names the path, and no file is half written; an error of an expectation has
// its text and the right form.
package report

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// Schema names the form of result.json. It changes when a field changes its meaning or goes.
const Schema = "pleg-bench/report/v2"

// BenchmarksFile is the file of a folder for compare and benchstat.
const BenchmarksFile = "benchstat.txt"

// resultFile has the JSON.
const resultFile = "result.json"

// Saved is a stored finding.
type Saved struct {
	// Schema is pleg-bench/report/v2.
	Schema string `json:"schema"`
	// Kind is the command: run, stress, watch, doctor, fleet verdict or fleet run.
	Kind string `json:"kind"`
	// Began is the begin of the work.
	Began time.Time `json:"began"`
	// Command is the command line.
	Command []string `json:"command"`
	// Setup is every option with influence on the finding.
	Setup map[string]string `json:"setup"`
	// Result is the command's JSON.
	Result bench.Finding `json:"result"`
	// Timeline holds the measurements over time.
	Timeline []bench.Series `json:"timeline"`
	// Failures are the broken expectations.
	Failures []string `json:"expectations_failed"`

	// Replaced is what Write has found in the folder, in words; empty for nothing.
	Replaced string `json:"-"`
}

// Expect holds the finding against bounds.
func (s *Saved) Expect(bounds []Expectation) { s.Failures = failures(bounds, s.Result) }

// Write writes result.json, benchstat.txt and report.html into the folder, and makes the folder if
// needed: all files whole, or none.
func (s *Saved) Write(dir string) error {
	s.Schema = Schema
	s.Began = s.Began.UTC()
	s.Replaced, _ = deadmount.Ask(dir, func() string { return earlier(dir) })
	return files{
		resultFile: func(w io.Writer) error {
			return printable.WriteJSON(w, s, " ")
		},
		BenchmarksFile: s.writeBenchmarks,
		pageFile:       s.page().Write,
	}.write(dir)
}

// earlier says what an earlier command has kept in the folder; empty for nothing.
func earlier(dir string) string {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return ""
	}
	defer root.Close()
	info, err := root.Lstat(resultFile)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	const unknown = "an earlier " + resultFile
	file, err := root.Open(resultFile)
	if err != nil {
		return unknown
	}
	defer file.Close()
	const head = 1 << 10
	text, _ := io.ReadAll(io.LimitReader(file, head))
	m := inHead.FindSubmatch(text)
	if m == nil {
		return unknown
	}
	return fmt.Sprintf("the result of %s of %s", m[1], m[2])
}

// inHead finds the kind and the begin of a result.
var inHead = regexp.MustCompile(`"kind": "([a-z ]+)",\s+"began": "([0-9TZ:-]+)[.0-9]*Z"`)

// writeBenchmarks writes the format of Go's benchmarks, the setup as its configuration.
func (s *Saved) writeBenchmarks(w io.Writer) error {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s.Setup)) {
		fmt.Fprintf(&b, "%s: %s\n", key, printable.Text(strings.Join(strings.Fields(s.Setup[key]), " ")))
	}
	if verdict, _, _ := strings.Cut(s.Result.Document().Printable().Verdict, ":"); verdict != "" {
		fmt.Fprintf(&b, "verdict: %s\n", verdict) // benchstat keeps runs of other verdicts apart
	}
	for _, line := range s.Result.Benchmarks() {
		fmt.Fprintf(&b, "Benchmark%s 1", printable.Text(line.Name))
		for _, f := range line.Figures {
			fmt.Fprintf(&b, " %g %s", f.Value, f.Unit)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// files are the content of a folder, by name, each with its writer.
type files map[string]func(io.Writer) error

// write writes all files or none: a full disk leaves the files of before, and so does a folder
// whose mount has died, but for a file of a name that begins with a dot.
func (f files) write(dir string) error {
	err := deadmount.Do(deadmount.FilesIn, dir, func() error { return f.writeAll(dir) })
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

// writeAll is write without a bound. Nothing is written through a link that somebody has put into
// the folder.
func (f files) writeAll(dir string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	names := slices.Sorted(maps.Keys(f))
	temporary := make(map[string]string)
	defer func() {
		for _, name := range temporary {
			_ = root.Remove(name) // not there after a rename
		}
	}()
	for _, name := range names {
		var b bytes.Buffer
		if err = f[name](&b); err == nil {
			temporary[name] = "." + name + "." + rand.Text()
			err = writeNew(root, temporary[name], b.Bytes())
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", filepath.Join(dir, name), err)
		}
	}
	for _, name := range names {
		if err := root.Rename(temporary[name], name); err != nil { // in place of a link, not through it
			return err
		}
	}
	return nil
}

// writeNew writes a file that must not be there.
func writeNew(root *os.Root, name string, content []byte) error {
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}
