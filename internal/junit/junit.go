// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package junit writes what was found in the XML form that CI systems read.
//
// A [Suite] belongs to one goroutine. Only writing fails.
package junit

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// Suite is one run. [New] makes it, Add counts its cases.
type Suite struct {
	XMLName    xml.Name   `xml:"testsuite"`
	Name       string     `xml:"name,attr"`
	Tests      int        `xml:"tests,attr"`
	Failures   int        `xml:"failures,attr"`
	Skipped    int        `xml:"skipped,attr"`
	Time       string     `xml:"time,attr,omitempty"` // in seconds
	Timestamp  string     `xml:"timestamp,attr"`
	Properties []Property `xml:"properties>property"`
	Cases      []Case     `xml:"testcase"`
}

// Property is a figure, or what else is known.
type Property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

// Case is one test. One that neither failed nor was left out has passed.
type Case struct {
	Class      string     `xml:"classname,attr"`
	Name       string     `xml:"name,attr"`
	Time       string     `xml:"time,attr,omitempty"` // in seconds
	Properties []Property `xml:"properties>property"`
	Skipped    *Message   `xml:"skipped"`
	Failure    *Message   `xml:"failure"`
	Output     string     `xml:"system-out,omitempty"`
}

// Message says why: in a line, and in full.
type Message struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// New returns a suite without cases.
func New(name string, began time.Time) *Suite {
	return &Suite{Name: name, Timestamp: began.UTC().Format("2006-01-02T15:04:05")}
}

// Why returns a message of some lines.
func Why(text string) *Message {
	first, _, _ := strings.Cut(text, "\n")
	return &Message{Message: first, Text: text}
}

// Seconds writes a time.
func Seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// Add adds a case.
func (s *Suite) Add(c Case) {
	s.Tests++
	if c.Failure != nil {
		s.Failures++
	}
	if c.Skipped != nil {
		s.Skipped++
	}
	s.Cases = append(s.Cases, c)
}

// Write writes the suite. The encoder replaces what XML has no form for.
func (s *Suite) Write(w io.Writer) error {
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(s); err != nil {
		return fmt.Errorf("junit: %w", err)
	}
	return encoder.Close()
}
