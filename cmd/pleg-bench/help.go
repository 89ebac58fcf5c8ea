// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

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
