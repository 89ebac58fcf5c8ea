// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"io"
	"strings"

	"github.com/evented-pleg/evented-pleg/internal/junit"
)

// WriteJUnit writes the run in the XML form that CI systems read. Figures are
// properties of their test case.
func (s *Suite) WriteJUnit(w io.Writer) error {
	suite := junit.New(s.Name, s.Started)
	suite.Time = junit.Seconds(s.Took())
	suite.Properties = []junit.Property{{Name: "runtime", Value: s.Runtime}}
	for _, r := range s.Results {
		test := junit.Case{
			Class: s.Name, Name: r.Name, Time: junit.Seconds(r.Took), Output: r.Line(),
			Properties: []junit.Property{{Name: "source", Value: r.Source}},
		}
		for _, f := range r.Figures {
			test.Properties = append(test.Properties, junit.Property{Name: f.Name, Value: f.Value})
		}
		why := junit.Why(strings.Join(r.Messages, "\n"))
		switch r.Outcome {
		case Failed:
			test.Failure = why
		case NotApplicable:
			test.Skipped = why
		}
		suite.Add(test)
	}
	return suite.Write(w)
}
