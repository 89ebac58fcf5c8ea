// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/deadmount"
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// Output is how a finding is printed, kept and judged: the flags --output, --out and --expect.
type Output struct {
	// Form is text or json, Dir the folder for kept files, if any.
	Form, Dir string
	// Lines prints JSON in a line, below others.
	Lines bool

	flags  *pflag.FlagSet
	bounds []report.Expectation
	expect []string
}

// AddFlags adds the flags, with the help of --output and an example of --expect.
func (o *Output) AddFlags(flags *pflag.FlagSet, form, example string) {
	o.flags = flags
	flags.StringVarP(&o.Form, "output", "o", "text", form)
	flags.StringVar(
		&o.Dir,
		"out",
		"",
		"keep what was found in this folder: report.html, result.json, benchstat.txt",
	)
	flags.StringArrayVar(
		&o.expect,
		"expect",
		nil,
		"exit with 3 unless a number of the result keeps a bound, such as '"+example+"'; may be repeated",
	)
}

// Check reads the bounds on results like blank without some parts, and checks before the work that
// the folder is writable.
func (o *Output) Check(blank any, without report.Without) (err error) {
	if o.Form != "text" && o.Form != "json" {
		return Usagef("--output %s: use text or json", o.Form)
	}
	if o.bounds, err = report.ParseExpectations(o.expect, blank, without); err != nil {
		return Usage(err)
	}
	switch {
	case o.Dir != "":
	case o.flags.Changed("out"):
		return Usagef("--out is empty: name a folder, or leave the flag out")
	default:
		return nil
	}
	if err := deadmount.Check(o.Dir); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	err = deadmount.Do(deadmount.FilesIn, o.Dir, func() error { return tryFolder(o.Dir) })
	_, hangs := errors.AsType[*deadmount.Unanswered](err)
	switch {
	case err == nil:
		return nil
	case hangs:
		return fmt.Errorf("--out: %w", err)
	case full(err):
		return fmt.Errorf("--out: %w: %s", err, makeRoom)
	}
	return Usagef("--out: %w: name a folder that can be written to", err)
}

// full reports whether an error is of a disk, or a quota, that is full.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// makeRoom is what to do about a full disk.
const makeRoom = "free some space, or name a folder on another disk"

// tryBytes is about the size of what a run keeps.
const tryBytes = 256 << 10

// tryFolder makes the folder if needed, and a file in it of about the size of what will be kept.
func tryFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".try-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, tryBytes))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// Write prints a finding and keeps the finding's files. Write returns left, if not nil, or ErrBad
// if the finding is not good, or ErrUnmet if a bound was broken.
func (o *Output) Write(cmd *cobra.Command, saved report.Saved, good bool, left error) error {
	var err error
	if o.Form == "json" {
		indent := "  "
		if o.Lines {
			indent = ""
		}
		err = printable.WriteJSON(cmd.OutOrStdout(), saved.Result, indent)
	} else {
		err = saved.Result.Document().WriteText(cmd.OutOrStdout(), Columns(cmd.OutOrStdout()))
	}
	if err != nil && !unwritten(left) { // else named already
		left = errors.Join(fmt.Errorf("write the result: %w", err), left)
	}
	saved.Command = append([]string{cmd.Root().Name()}, os.Args[1:]...)
	saved.Expect(o.bounds)
	if o.Dir != "" {
		err := saved.Write(o.Dir)
		if full(err) { // since the work began
			err = fmt.Errorf("%w: %s", err, makeRoom)
		}
		if err == nil && saved.Replaced != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: replaced %s in %s\n", cmd.Root().CommandPath(), saved.Replaced, o.Dir)
		}
		left = errors.Join(left, err)
	}
	for _, failure := range saved.Failures {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.Root().CommandPath(), printable.Text(failure))
	}
	if o.Dir != "" && terminal(cmd.ErrOrStderr()) > 0 { // scripts know the folder
		fmt.Fprintf(cmd.ErrOrStderr(), "kept in %s\n", filepath.Join(o.Dir, "report.html"))
	}
	switch {
	case left != nil:
		return left
	case !good:
		return ErrBad
	case len(saved.Failures) > 0:
		return ErrUnmet
	}
	return nil
}

// Failed returns the error of a command that has no finding. With -o json it prints a document that
// says why: whoever reads the pipe waits for one. A wrong command line prints none.
func (o *Output) Failed(cmd *cobra.Command, err error, document func(why string) any) error {
	if o.Form != "json" || IsUsage(err) {
		return err
	}
	indent := "  "
	if o.Lines {
		indent = ""
	}
	return errors.Join(err, printable.WriteJSON(cmd.OutOrStdout(), document(err.Error()), indent))
}

// Setup returns the options that shape a finding, and the version of the program.
func Setup(cmd *cobra.Command) map[string]string {
	options := map[string]string{cmd.Root().Name(): cmd.Root().Version}
	others := []string{
		"out",
		"expect",
		"output",
		"verbose",
		"help",
		"version",
		"metrics-addr",
		"endpoint",
		"log-directory",
		"status-every",
		"compare",
		"kubeconfig",
		"token-file",
		"dry-run",
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(others, f.Name) {
			options[f.Name] = f.Value.String()
		}
	})
	return options
}
