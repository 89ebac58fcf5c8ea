// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli is the common frame of pleg-bench and pleg-bench-fleet.
//
// # Model
//
// [Prepare] completes a root command. [Execute] runs the command line until its end or a signal,
// and returns the exit status. An [Output] has the flags by which a finding is printed, kept and
// judged. A [Line] shows progress.
//
// # Concurrency
//
// Values here have no lock: a goroutine owns each.
//
// # Errors
//
// [ErrBad] and [ErrUnmet] are returned by commands that have printed their finding. Errors of
// [Usage] and [Usagef] are about the command line.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/printable"
)

// Exit statuses.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitUnmet       = 3
	ExitInterrupted = 130
	// ExitUnread is the status of a program ended by SIGPIPE.
	ExitUnread = 141
)

var (
	// ErrBad is returned by a command after a bad finding was printed.
	ErrBad = errors.New("the finding is bad")
	// ErrUnmet is returned by a command after the broken bounds of --expect were printed.
	ErrUnmet = errors.New("an expectation was not kept")
	// ErrUnknown is returned by a check after an unknown outcome was printed; the exit status is 2, as
	// monitors expect.
	ErrUnknown = errors.New("the check could not find out")
	// errInterrupted is why the context ends at a Ctrl-C, SIGTERM or hangup.
	errInterrupted = errors.New("interrupted")
)

type usageError struct{ error }

// Usage marks an error as an error of the command line.
func Usage(err error) error { return usageError{err} }

// Usagef is [fmt.Errorf] for errors about the command line.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// IsUsage reports whether an error is about the command line.
func IsUsage(err error) bool {
	_, ok := errors.AsType[usageError](err)
	return ok
}

// HelpWidth is the width of help texts, on every terminal.
const HelpWidth = 80

// Prepare completes a root command: the version, errors of usage, and the width of help texts.
func Prepare(root *cobra.Command, commit string) {
	root.Version = Version(commit)
	root.Args = NoArgs
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.Flags().Bool("version", false, "print the version") // cobra's takes -v, which is --verbose
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{plain(err)} })
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	wrapped := fmt.Sprintf(".FlagUsagesWrapped %d", HelpWidth)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", wrapped))
}

// wanted says what the types of flags take.
var wanted = map[string]string{
	"int":      "a whole number",
	"uint64":   "a whole number from 0 on",
	"float64":  "a number",
	"duration": "a duration, such as 30s or 5m",
	"bool":     "true or false",
}

// plain is the error of a flag's value in the form of our own, without the words of a parser.
func plain(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	use := wanted[invalid.GetFlag().Value.Type()]
	if use == "" {
		return err
	}
	return fmt.Errorf("--%s %s: use %s", invalid.GetFlag().Name, invalid.GetValue(), use)
}

// Execute runs a command line and returns the exit status, with which the program is to end:
// signals stay handled. The hint for an error, if any, is printed below.
func Execute(root *cobra.Command, args []string, hint func(error) string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	endAtSignals(cancel)
	for _, w := range []io.Writer{root.OutOrStdout(), root.ErrOrStderr()} {
		if outlet, ok := w.(*Outlet); ok {
			outlet.asked = ctx.Done()
		}
	}
	root.SetArgs(args)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	refuse(root)
	cmd, err := root.ExecuteContextC(ctx)
	if outlet, ok := root.OutOrStdout().(*Outlet); ok && err == nil {
		err = outlet.failure() // which the command has not noticed
	}
	say := func(err error) {
		for _, line := range printable.Lines(err) {
			fmt.Fprintf(root.ErrOrStderr(), "%s: %s\n", root.CommandPath(), line)
		}
	}
	printed := isFinding(err)
	switch cause := context.Cause(ctx); {
	case err == nil:
		return ExitOK
	case errors.Is(cause, errInterrupted):
		rest := besides(err, func(part error) bool { return isFinding(part) || errors.Is(part, errInterrupted) })
		if rest != nil && !(unwritten(rest) && errors.Is(rest, syscall.EPIPE)) {
			say(rest)
		}
		say(cause)
		return ExitInterrupted
	case printed:
		if rest := besides(err, isFinding); rest != nil && !errors.Is(rest, syscall.EPIPE) {
			say(rest)
		}
		return status(err)
	case unwritten(err) && errors.Is(err, syscall.EPIPE): // as of `| head`: nobody is there to be told
		return ExitUnread
	}
	say(err)
	if hint != nil {
		fmt.Fprint(root.ErrOrStderr(), hint(err))
	}
	if IsUsage(err) {
		fmt.Fprintln(root.ErrOrStderr(), SeeHelp(cmd.CommandPath()))
		return ExitUsage
	}
	return ExitFailure
}

// SeeHelp is the line behind the error of a command that was used wrongly.
func SeeHelp(command string) string { return "See " + command + " --help." }

// isFinding reports whether an error stands for a printed finding.
func isFinding(err error) bool {
	return errors.Is(err, ErrBad) || errors.Is(err, ErrUnmet) || errors.Is(err, ErrUnknown)
}

// status is the exit status of a printed finding.
func status(err error) int {
	switch {
	case errors.Is(err, ErrBad):
		return ExitFailure
	case errors.Is(err, ErrUnmet):
		return ExitUnmet
	}
	return ExitUsage
}

// besides returns what failed beside what is known.
func besides(err error, known func(error) bool) error {
	if !known(err) {
		return err
	}
	all, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var rest []error
	for _, part := range all.Unwrap() {
		rest = append(rest, besides(part, known))
	}
	return errors.Join(rest...)
}

// unwritten reports whether failed writes of the output are the only errors.
func unwritten(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case *fs.PathError:
		return e.Path == os.Stdout.Name() || e.Path == os.Stderr.Name()
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(part error) bool { return !unwritten(part) })
	}
	return unwritten(errors.Unwrap(err))
}

// sameWish is for how long after a signal another one is taken for the same wish: timeout(1), for
// one, sends SIGTERM to its command and then to the group that the command is in. A variable for
// tests.
var sameWish = 500 * time.Millisecond

// endAtSignals calls cancel at the first Ctrl-C, SIGTERM or hangup. A second Ctrl-C or SIGTERM
// after sameWish kills. A second hangup does not, because shells repeat the terminal's; nor does
// output without a reader. Pods have to be removed first.
//
// Until the program's end, further hangups go to the channel without a reader. signal.Ignore
// instead would let a hangup in the moment of the change kill the program (1 in 60 of the hangups
// that follow at once), and so would signal.Stop. The handling ends with the program only.
func endAtSignals(cancel context.CancelCauseFunc) {
	asked := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		asked = append(asked, syscall.SIGHUP)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, asked...)
	signal.Ignore(syscall.SIGPIPE)
	go func() { // ends with the program
		s := <-signals
		cancel(fmt.Errorf("%w (%v)", errInterrupted, s))
		time.Sleep(sameWish) // signals of then fill the channel
		signal.Reset(syscall.SIGINT, syscall.SIGTERM)
	}()
}

// Version is the module's version, the commit if known, and the Go release.
func Version(commit string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of an unknown build"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = cmp.Or(commit, s.Value)
		}
	}
	v := cmp.Or(info.Main.Version, "(devel)")
	if commit != "" {
		v += " commit " + commit
	}
	return v + " " + info.GoVersion
}

// NoArgs is [cobra.NoArgs] with a usage error.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	near := ""
	if names := cmd.SuggestionsFor(args[0]); len(names) > 0 {
		near = ": did you mean " + strings.Join(names, " or ") + "?"
	}
	return Usagef("unknown command or argument %q for %q%s", args[0], cmd.CommandPath(), near)
}

// refuse gives the commands of the library usage errors, for an unknown topic or shell.
func refuse(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if topic, rest, _ := root.Find(args); len(rest) > 0 {
					return topic.ValidateArgs(rest)
				}
				return nil
			}
		case "completion":
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, c := range append(cmd.Commands(), cmd) {
				c.Args = NoArgs
			}
		}
	}
}

// SetLogger sends all logs of klog from the level on to a writer, printable and in one form, and
// returns the logger.
func SetLogger(w io.Writer, level slog.Level) logr.Logger {
	options := slog.HandlerOptions{Level: level, ReplaceAttr: printable.LogAttr}
	logger := logr.FromSlogHandler(slog.NewTextHandler(w, &options))
	klog.SetLogger(logger)
	return logger
}

// Line is a line of progress, each text in place of the text before. A Line shows nothing unless
// its writer is a terminal that can clear a line.
type Line struct {
	w     io.Writer
	width int
}

// NewLine returns a line on a writer.
func NewLine(w io.Writer) *Line {
	if os.Getenv("TERM") == "dumb" { // which cannot clear a line
		return &Line{w, 0}
	}
	return &Line{w, terminal(w)}
}

// Show shows a text, cut to the terminal's width; an empty text clears the line.
func (l *Line) Show(text string) {
	if l.width > 0 {
		cut := []rune(printable.Text(text))
		fmt.Fprint(l.w, "\r\x1b[K"+string(cut[:min(len(cut), l.width-1)]))
	}
}

// Above returns a writer to the line's own, for texts that take the line's place: the next one is
// shown below.
func (l *Line) Above() io.Writer {
	if l.width == 0 {
		return l.w
	}
	return cleared{l.w}
}

// cleared clears the line before each text.
type cleared struct{ w io.Writer }

func (a cleared) Write(text []byte) (int, error) {
	const clear = "\r\x1b[K"
	n, err := a.w.Write(slices.Concat([]byte(clear), text))
	return max(n-len(clear), 0), err
}

// Columns returns the width of a text on a writer: the width of lines, and [bench.Columns] at most.
func Columns(w io.Writer) bench.Width {
	width := LineWidth(w)
	if width == 0 {
		return bench.Columns
	}
	return min(width, bench.Columns)
}

// LineWidth returns the width to which lines on a writer are folded: $COLUMNS, or the terminal's
// width; 0 without both.
func LineWidth(w io.Writer) bench.Width {
	asked, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err == nil && asked >= fewestColumns {
		return bench.Width(asked)
	}
	return bench.Width(terminal(w))
}

// fewestColumns is the narrowest terminal for which text is folded.
const fewestColumns = 20

// terminal returns the width of the terminal behind a writer, 0 if there is none.
func terminal(w io.Writer) int {
	if outlet, ok := w.(*Outlet); ok {
		w = outlet.w
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width < fewestColumns {
		return int(bench.Columns)
	}
	return width
}
