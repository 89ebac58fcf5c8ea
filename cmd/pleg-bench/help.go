// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/worker"
)

// helpWidth is how wide help texts are, whatever the terminal.
const helpWidth = 80

// narrow wraps the flags' help of a command and its subcommands.
func narrow(root *cobra.Command) {
	wrapped := fmt.Sprintf(".FlagUsagesWrapped %d", helpWidth)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", wrapped))
}

// suggest returns ": did you mean …?" with names near the wrong name, by cobra's measure, or
// nothing.
func suggest(wrong string, names []string) string {
	judge := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		judge.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	near := judge.SuggestionsFor(wrong)
	if len(near) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(near, " or ") + "?"
}

// flagError is a usage error that suggests a known flag.
func flagError(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return usageError{err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return usageError{fmt.Errorf("%w%s", err, suggest("--"+unknown.GetSpecifiedName(), names))}
}

// faultNames are those of all faults of the fake runtime.
func faultNames() (names []string) {
	for _, f := range fakeruntime.FaultList() {
		names = append(names, f.Name)
	}
	return names
}

// nearFault suggests a name for the first unknown fault.
func nearFault(faults []string) string {
	known := faultNames()
	for _, fault := range faults {
		if name, _, _ := strings.Cut(fault, "="); !slices.Contains(known, name) {
			return suggest(name, known)
		}
	}
	return ""
}

// completeFlags lets shells complete the values of flags with few values.
func completeFlags(cmd *cobra.Command) {
	values := map[string][]string{
		"output": {"text", "json"}, "mode": {worker.Evented, worker.Generic}, "profile": fakeruntime.ProfileNames(),
	}
	if cmd.Flags().Lookup("profile") != nil {
		for _, f := range fakeruntime.FaultList() {
			values["fault"] = append(values["fault"], f.Name+"="+f.Example+"\t"+f.Help)
		}
	}
	for name, list := range values {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)) // fails for registered flags
		}
	}
}
