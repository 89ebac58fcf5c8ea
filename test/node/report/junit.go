// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

type junitSuites struct {
	XMLName  xml.Name   `xml:"testsuites"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Skipped  int        `xml:"skipped,attr"`
	Time     string     `xml:"time,attr"`
	Suite    junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Timestamp  string          `xml:"timestamp,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class      string          `xml:"classname,attr"`
	Name       string          `xml:"name,attr"`
	Time       string          `xml:"time,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Skipped    *junitMessage   `xml:"skipped"`
	Failure    *junitMessage   `xml:"failure"`
	Output     string          `xml:"system-out,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the run in the XML form that CI systems read. Figures are
// properties of their test case.
func (s *Suite) WriteJUnit(w io.Writer) error {
	suite := junitSuite{
		Name: s.Name, Tests: len(s.Results), Failures: s.Count(Failed), Skipped: s.Count(NotApplicable),
		Time: seconds(s.Took().Seconds()), Timestamp: s.Started.UTC().Format("2006-01-02T15:04:05"),
		Properties: []junitProperty{{"runtime", s.Runtime}},
	}
	for _, r := range s.Results {
		test := junitCase{
			Class: s.Name, Name: r.Name, Time: seconds(r.Took.Seconds()), Output: printable(r.Line()),
			Properties: []junitProperty{{"source", printable(r.Source)}},
		}
		for _, f := range r.Figures {
			test.Properties = append(test.Properties, junitProperty{f.Name, printable(f.Value)})
		}
		text := printable(strings.Join(r.Messages, "\n"))
		switch r.Outcome {
		case Failed:
			test.Failure = &junitMessage{Message: firstLine(text), Text: text}
		case NotApplicable:
			test.Skipped = &junitMessage{Message: firstLine(text)}
		}
		suite.Cases = append(suite.Cases, test)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	err := encoder.Encode(junitSuites{
		Tests: suite.Tests, Failures: suite.Failures, Skipped: suite.Skipped, Time: suite.Time, Suite: suite,
	})
	if err != nil {
		return fmt.Errorf("report: write JUnit XML: %w", err)
	}
	return encoder.Close()
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }

// printable replaces what XML 1.0 has no form for.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= 0x20 && r != 0xFFFE && r != 0xFFFF {
			return r
		}
		return '\uFFFD'
	}, text)
}
