// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/criproxy/disturb"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/internal/testkit/pages"
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

// TestCallsOfDocumentsAreUnderstood parses each call of pleg-bench in the documents, and in the
// help of its commands. Rules, faults and profiles are read as well.
func TestCallsOfDocumentsAreUnderstood(t *testing.T) {
	calls := pages.Calls(t, "../..", "pleg-bench")
	if len(calls) < 40 {
		t.Errorf("%d calls in the documents, want some dozens", len(calls))
	}
	examples := pages.Examples(newRoot(quiet()), "pleg-bench")
	if len(examples) < 25 {
		t.Errorf("%d calls in examples, want more than two dozen", len(examples))
	}
	for _, call := range append(calls, examples...) {
		set := pages.Understood(t, newRoot(quiet()), call)
		var errs []error
		_, err := disturb.Parse(set["rule"]...)
		if len(set["rule"]) > 0 {
			errs = append(errs, err)
		}
		_, err = fakeruntime.ParseFaults(set["fault"]...)
		errs = append(errs, err)
		for _, profile := range set["profile"] {
			_, err = fakeruntime.ProfileByName(profile)
			errs = append(errs, err)
		}
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: pleg-bench %s: %v", call.Page, strings.Join(call.Args, " "), err)
		}
	}
}

// TestInstallsOneVersion: the tool and docs/install.md install the program for a fleet by the same
// line.
func TestInstallsOneVersion(t *testing.T) {
	page := string(testkit.Must(os.ReadFile("../../docs/install.md"))(t))
	lines := regexp.MustCompile(`go install \S+/`+fleetProgram+`@\S+`).FindAllString(page, -1)
	if len(lines) != 1 || lines[0] != installFleet {
		t.Errorf("docs/install.md has %q, and pleg-bench fleet says %q", lines, installFleet)
	}
}
