// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// quiet are streams without a reader.
func quiet() streams {
	return streams{in: strings.NewReader(""), out: new(bytes.Buffer), err: new(bytes.Buffer)}
}

// ours returns the command line's commands, those of the library and hidden ones left out.
func ours(t *testing.T) []*cobra.Command {
	t.Helper()
	root := newRoot(quiet())
	list := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion" {
			list = append(list, c)
		}
	}
	if len(list) != 10 {
		t.Fatalf("%d commands, want the root and nine more", len(list))
	}
	return list
}

// TestHelpFitsTheTerminal checks that help is complete and fits 80 columns.
func TestHelpFitsTheTerminal(t *testing.T) {
	for _, c := range ours(t) {
		var out bytes.Buffer
		c.SetOut(&out)
		testkit.Check(t, c.Help())
		if c.Long == "" || c.Example == "" {
			t.Errorf("%s has no description or no example", c.CommandPath())
		}
		if strings.Contains(out.String(), workerCommand) {
			t.Errorf("%s --help shows the internal command", c.CommandPath())
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > cli.HelpWidth {
				t.Errorf("%s --help: %d columns: %s", c.CommandPath(), n, line)
			}
		}
	}
}

// TestExamplesAreUnderstood parses every line of every example, those of other programs aside.
func TestExamplesAreUnderstood(t *testing.T) {
	lines := 0
	for _, c := range ours(t) {
		for line := range strings.Lines(strings.ReplaceAll(c.Example, "\\\n", " ")) {
			args := strings.Fields(strings.ReplaceAll(line, "'", ""))
			if args[0] != "pleg-bench" {
				continue
			}
			lines++
			target, rest, err := newRoot(quiet()).Find(args[1:])
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			if err := target.ParseFlags(rest); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			if err := target.ValidateArgs(target.Flags().Args()); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	if lines < 25 {
		t.Errorf("%d lines of examples, want more than two dozen", lines)
	}
}
