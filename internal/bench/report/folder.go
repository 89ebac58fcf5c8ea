// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/junit"
)

// Names of the files in a folder.
const (
	resultFile, benchstatFile, junitFile, pageFile = "result.json", "benchstat.txt", "junit.xml", "report.html"

	changesFile, stepsFile = "changes.csv", "steps.csv"
)

// Files are what a folder holds, by name, each with what writes it.
type Files map[string]func(io.Writer) error

// Write writes every file into the folder, which it makes if there is none. It goes on after a failure.
func (f Files) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(f)) {
		var b bytes.Buffer
		err := f[name](&b)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--out: write %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// JSON returns what writes a value as JSON.
func JSON(v any) func(io.Writer) error {
	return func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", " ")
		return encoder.Encode(v)
	}
}

// Number writes a number for a table that programs read.
func Number(f float64) string { return strconv.FormatFloat(f, 'g', 9, 64) }

// NewJUnit returns a suite of one test, the verdict, and one for each bound on subject.
func NewJUnit(name string, began time.Time, verdict string, failures []string, bounds []Expectation, subject any) *junit.Suite {
	suite := junit.New(name, began)
	add := func(name, failure string) {
		c := junit.Case{Class: "pleg-bench", Name: name}
		if failure != "" {
			c.Failure = junit.Why(failure)
		}
		suite.Add(c)
	}
	add(verdict, strings.Join(failures, "; "))
	for _, e := range bounds {
		failure := ""
		if err := e.Check(subject); err != nil {
			failure = err.Error()
		}
		add(e.String(), failure)
	}
	return suite
}
