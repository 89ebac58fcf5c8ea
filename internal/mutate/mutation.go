// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"strings"
)

// mutation replaces a text that occurs once in a file, within the body of one function.
type mutation struct {
	name, file, old, new string
}

// mutationsText has paragraphs: "# FILE" for those below, or a mutation of that file. A mutation
// has its name, then the old lines behind a minus and the new ones behind a plus, as a patch has
// them. Lines begin and end anywhere in the lines of the file.
//
//go:embed mutations.txt
var mutationsText string

// ledgerDir holds the ledger from which a kubelet's lists are served.
const ledgerDir = "embed/ledger/"

// allMutations returns all of them, in the order in which they are tried.
func allMutations() (list []mutation) {
	file := ""
	for paragraph := range strings.SplitSeq(strings.TrimSuffix(mutationsText, "\n"), "\n\n") {
		if name, ok := strings.CutPrefix(paragraph, "# "); ok {
			file = name
			continue
		}
		name, lines, _ := strings.Cut(paragraph, "\n")
		var before, after []string
		for line := range strings.SplitSeq(lines, "\n") {
			if text, ok := strings.CutPrefix(line, "-"); ok {
				before = append(before, text)
			} else {
				after = append(after, strings.TrimPrefix(line, "+"))
			}
		}
		list = append(list, mutation{name, file, strings.Join(before, "\n"), strings.Join(after, "\n")})
	}
	return list
}
