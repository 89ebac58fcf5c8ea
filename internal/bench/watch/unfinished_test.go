// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"testing"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/watch"
)

// TestUnfinished: the summary of a watch that could not begin names runtime and node as all others
// do, so that one can be joined with the other. An endpoint that is none stays as it was given.
func TestUnfinished(t *testing.T) {
	t.Setenv(bench.NodeVariable, "n1")
	for given, want := range map[string]string{
		"/run/cri.sock":        "unix:///run/cri.sock",
		"unix:///run/cri.sock": "unix:///run/cri.sock",
		"tcp://example":        "tcp://example",
		"bad\n":                `bad\n`,
	} {
		s := watch.Unfinished(watch.Options{Endpoint: given}, "it is a test")
		if s.Endpoint != want || s.Node != "n1" || s.Schema != watch.Schema {
			t.Errorf("%q: %q on %q, %q", given, s.Endpoint, s.Node, s.Schema)
		}
	}
}
