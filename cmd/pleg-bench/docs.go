// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newDocs is the command for packagers and `make docs`.
func newDocs() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    "docs --out DIR",
		Short:  "Write man pages and Markdown for every command",
		Hidden: true,
		Long: `docs writes a man page of every command to DIR/man, section 1, and the same as
Markdown to DIR/markdown. SOURCE_DATE_EPOCH sets the date of the man pages.`,
		Example: `  pleg-bench docs --out /tmp/docs && man -l /tmp/docs/man/pleg-bench.1`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usageError{fmt.Errorf("--out is missing: name a folder for the documents")}
			}
			return writeDocs(cmd.Root(), dir)
		},
	}
	cmd.Flags().StringVar(&dir, "out", "", "folder for the documents, which is made if it is not there")
	return cmd
}

// writeDocs documents a command and its subcommands.
func writeDocs(root *cobra.Command, dir string) error {
	root.DisableAutoGenTag = true
	forDocs(root)
	man, markdown := filepath.Join(dir, "man"), filepath.Join(dir, "markdown")
	for _, d := range []string{man, markdown} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("docs: %w", err)
		}
	}
	header := &doc.GenManHeader{Section: "1", Source: root.Name() + " " + root.Version, Manual: "Evented PLEG"}
	if err := doc.GenManTree(root, header, man); err != nil {
		return fmt.Errorf("docs: man pages: %w", err)
	}
	if err := doc.GenMarkdownTree(root, markdown); err != nil {
		return fmt.Errorf("docs: Markdown: %w", err)
	}
	return nil
}

// forDocs marks indented lines of a description as code: Markdown, also the source of man pages,
// would run them together.
func forDocs(cmd *cobra.Command) {
	lines := strings.Split(cmd.Long, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[i] = "    " + line
		}
	}
	cmd.Long = strings.Join(lines, "\n")
	for _, c := range cmd.Commands() {
		forDocs(c)
	}
}
