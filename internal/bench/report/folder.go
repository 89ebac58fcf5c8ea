// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
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

// JUnit is a suite of tests in the form that CI systems read.
type JUnit struct {
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

// NewJUnit returns a suite of one test, the verdict, and one for each bound on subject.
func NewJUnit(name string, began time.Time, verdict string, failures []string, bounds []Expectation, subject any) *JUnit {
	suite := &JUnit{Name: name, Time: began.UTC().Format("2006-01-02T15:04:05")}
	suite.add(verdict, strings.Join(failures, "; "))
	for _, e := range bounds {
		failure := ""
		if err := e.Check(subject); err != nil {
			failure = err.Error()
		}
		suite.add(e.String(), failure)
	}
	return suite
}

func (j *JUnit) add(name, failure string) {
	c := junitCase{Class: "pleg-bench", Name: name}
	if failure != "" {
		c.Failure = &junitFailure{failure}
		j.Failures++
	}
	j.Cases = append(j.Cases, c)
	j.Tests++
}

// Write writes the suite.
func (j *JUnit) Write(w io.Writer) error {
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	return encoder.Encode(j)
}
