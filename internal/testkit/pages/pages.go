// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package pages finds the command lines in the documents, for tests that the programs understand
// them.
package pages

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Call is a call of a program in a document.
type Call struct {
	// Page is the document's path.
	Page string
	// Args are the arguments, the program's name left out.
	Args []string
}

// Calls returns all calls of a program in the README and the pages of docs, decisions left out.
// Root is the repository's folder. The order is that of the pages.
func Calls(t testing.TB, root, program string) (calls []Call) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/[^a]*/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, code := range codeOf(string(text)) {
				for _, args := range callsIn(code, program) {
					calls = append(calls, Call{Page: path, Args: args})
				}
			}
		}
	}
	return calls
}

// Examples returns all calls of a program in the examples of a command and of those below it. Their
// page is the command.
func Examples(root *cobra.Command, program string) (calls []Call) {
	for line := range strings.Lines(strings.ReplaceAll(root.Example, "\\\n", " ")) {
		for _, args := range callsIn(line, program) {
			calls = append(calls, Call{Page: root.CommandPath() + " --help", Args: args})
		}
	}
	for _, below := range root.Commands() {
		calls = append(calls, Examples(below, program)...)
	}
	return calls
}

// inline is code within a line of text.
var inline = regexp.MustCompile("`([^`\n]+)`")

// codeOf returns the code of a page: the lines of its blocks, and the code within its text. A line
// that ends in a backslash goes on in the next.
func codeOf(page string) (code []string) {
	fenced := false
	for line := range strings.Lines(strings.ReplaceAll(page, "\\\n", " ")) {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced, strings.HasPrefix(line, "    "):
			code = append(code, line)
		default:
			for _, span := range inline.FindAllStringSubmatch(line, -1) {
				code = append(code, span[1])
			}
		}
	}
	return code
}

var (
	// comment is the rest of a line of a shell that is not executed.
	comment = regexp.MustCompile(`(^|\s)#.*`)
	// between is what separates two calls in a line of a shell.
	between = regexp.MustCompile(`&&|[;|&]|\bdo\b`)
)

// callsIn returns the arguments of each call of a program in a line of a shell. The program is
// called by its name, or by "go run".
func callsIn(line, program string) (calls [][]string) {
	line = comment.ReplaceAllString(line, "")
	line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
	for _, call := range between.Split(line, -1) {
		words := strings.Fields(strings.NewReplacer("'", "", `"`, "").Replace(call))
		run, isRun := strings.CutPrefix(strings.Join(words, " "), "go run ./cmd/")
		if isRun {
			words = strings.Fields(run)
		}
		if len(words) > 0 && words[0] == program {
			calls = append(calls, words[1:])
		}
	}
	return calls
}

// Understood parses a call with the command of a program, and returns the flags that are set, by
// their names. The test fails if the program would refuse the command, a flag or an argument.
func Understood(t testing.TB, root *cobra.Command, call Call) map[string][]string {
	t.Helper()
	root.InitDefaultCompletionCmd(call.Args...)
	target, rest, err := root.Find(call.Args)
	if err == nil {
		err = target.ParseFlags(rest)
	}
	if err == nil && !target.DisableFlagParsing {
		err = target.ValidateArgs(target.Flags().Args())
	}
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		t.Errorf("%s: %s %s: %v", call.Page, root.Name(), strings.Join(call.Args, " "), err)
		return nil
	}
	set := make(map[string][]string)
	target.Flags().Visit(func(f *pflag.Flag) {
		if list, isList := f.Value.(pflag.SliceValue); isList {
			set[f.Name] = list.GetSlice()
			return
		}
		set[f.Name] = []string{f.Value.String()}
	})
	return set
}
