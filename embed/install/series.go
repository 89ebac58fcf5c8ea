// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The parts of the series, in the order in which each builds and passes by itself.
const (
	partCache   = "cache"
	partCore    = "core"
	partAdapter = "adapter"
	partGate    = "gate"
	partLedger  = "ledger"
	partLists   = "lists"
	partChanges = "changes"
	partVolumes = "volumes"
	partResting = "housekeeping"
)

// afterGenerator are the parts of files that the generator does without.
var afterGenerator = []string{partLedger, partLists, partChanges, partResting}

// commits are the patches of the series.
var commits = []struct {
	part, subject, body string
	// patch is the file with changes of the tree, and files the changed files of it; nil means all.
	patch string
	only  func(file string) bool
}{
	{
		part:    partCache,
		subject: "kubelet/pleg/evented: Add a cache of pod statuses that readers can wait on",
		body: "An entry has the time of the last look that agreed with it. A waiter is a demand for a read\n" +
			"of its pod. A reader is never handed nil.",
	},
	{
		part:    partCore,
		subject: "kubelet/pleg/evented: Add a generator that reads decide and events guide",
		body: "Events cause reads and change nothing else. The relist period starts at a second, doubles with\n" +
			"each relist that finds nothing the events had not announced, and falls back with the first that does.",
	},
	{
		part:    partAdapter,
		subject: "kubelet/pleg/evented: Add the kubelet's PLEG, its metrics and an alpha feature gate",
		body: "EventDrivenPLEG replaces the PLEG. It is off by default, and nothing uses the package yet. The\n" +
			"metrics are ALPHA and registered with the gate on only.",
		patch: "kubelet.patch",
		only:  func(file string) bool { return file != kubeletFile },
	},
	{
		part:    partGate,
		subject: "kubelet: Use the event-driven PLEG behind EventDrivenPLEG",
		body:    "With the gate off the pod cache, the CRI client and the PLEG are the same objects as before.",
		patch:   "kubelet.patch",
		only:    func(file string) bool { return file == kubeletFile },
	},
	{
		part:    partLedger,
		subject: "kubelet/pleg/evented: Add a ledger of what lists would show",
		body: "Answers, events and the kubelet's own calls are its facts. It may show too much for a bounded time,\n" +
			"never too little. Nothing uses it yet.",
	},
	{
		part:    partLists,
		subject: "kubelet: Answer lists from memory behind EventDrivenPLEGServeLists",
		body: "The gate is alpha, off, and depends on EventDrivenPLEG. Housekeeping, the log manager and the image\n" +
			"collector name themselves, so that each is served by rules of its own.",
		patch: "lists.patch",
	},
	{
		part:    partChanges,
		subject: "kubelet/pleg/evented: Add counts of changes, by which a loop leaves out rounds",
		body: "A lock counts a change unless its holder says that there is none, so that nothing new is forgotten.\n" +
			"Nothing uses it yet.",
	},
	{
		part:    partVolumes,
		subject: "kubelet: Populate volumes when something has changed, behind EventDrivenVolumePopulator",
		body: "The gate is alpha, off, and needs none of the others. The pod manager, the pod workers and the pods\n" +
			"to be processed again are counted. A round that leaves something is followed by another, as before.",
		patch: "volumes.patch",
	},
	{
		part:    partResting,
		subject: "kubelet: Clean up pods when something has changed, behind EventDrivenHousekeeping",
		body: "The gate is alpha, off, and depends on EventDrivenPLEGServeLists, whose ledger knows whether the runtime\n" +
			"has changed. Pod workers are synced every two seconds as before; the rest is left out while it finds\n" +
			"what it found.",
		patch: "housekeeping.patch",
	},
}

const kubeletFile = "pkg/kubelet/kubelet.go"

// patchName returns the name of the file of a commit.
func patchName(commit int) string {
	return fmt.Sprintf("%04d-%s.patch", commit+1, commits[commit].part)
}

// onlyOurs returns an error if a folder has patches that are not of the series: they would be
// applied with the series, by the names of the folder.
func onlyOurs(out string) error {
	found, err := os.ReadDir(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, file := range found {
		ours := path.Ext(file.Name()) != ".patch"
		for i := range commits {
			ours = ours || patchName(i) == file.Name()
		}
		if !ours {
			return fmt.Errorf(
				"%s is not of this series, and would be applied with it: remove it first",
				filepath.Join(out, file.Name()),
			)
		}
	}
	return nil
}

// writeSeries writes the change of a pristine tree as patches for git am.
func writeSeries(ctx context.Context, tree, out string, report io.Writer) error {
	if exists(filepath.Join(tree, into)) {
		return fmt.Errorf("%s is there: a series starts from a tree without it", filepath.Join(tree, into))
	}
	if err := onlyOurs(out); err != nil {
		return err
	}
	files, s, err := prepare(tree)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.applyAll(ctx, files); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for i, c := range commits {
		var body bytes.Buffer
		code := 0
		tests := 0
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if files[name].part != c.part {
				continue
			}
			lines := addFile(&body, path.Join(into, name), files[name].text)
			if strings.HasSuffix(name, "_test.go") {
				tests += lines
			} else {
				code += lines
			}
		}
		changed := 0
		if c.patch != "" {
			var inTests int
			changed, inTests = addChanges(&body, files[c.patch].text, c.only)
			tests += inTests
		}
		name := patchName(i)
		text := fmt.Sprintf(
			"From %040d Mon Sep 17 00:00:00 2001\nFrom: The Evented PLEG Authors <evented-pleg@users.noreply.github.com>\n"+
				"Date: Thu, 1 Jan 2026 00:00:00 +0000\nSubject: [PATCH %d/%d] %s\n\n%s\n---\n%s-- \n%s\n",
			0,
			i+1,
			len(commits),
			c.subject,
			c.body,
			body.String(),
			version(),
		)
		err := os.WriteFile(filepath.Join(out, name), []byte(text), 0o644)
		_, told := fmt.Fprintf(
			report,
			"%s: %d lines of code, %d of tests, %d changed in files of the tree\n",
			name,
			code,
			tests,
			changed,
		)
		if err := errors.Join(err, told); err != nil {
			return err
		}
	}
	return nil
}

// addFile adds a new file to a patch, and returns its lines that are neither empty nor comments.
func addFile(to *bytes.Buffer, name string, text []byte) (lines int) {
	n := bytes.Count(text, []byte("\n"))
	fmt.Fprintf(
		to,
		"diff --git a/%s b/%s\nnew file mode 100644\n--- /dev/null\n+++ b/%s\n@@ -0,0 +1,%d @@\n",
		name,
		name,
		name,
		n,
	)
	inComment := false
	for line := range bytes.Lines(text) {
		to.WriteByte('+')
		to.Write(line)
		trimmed := bytes.TrimSpace(line)
		switch {
		case bytes.HasPrefix(trimmed, []byte("/*")):
			inComment = true
		case bytes.HasPrefix(trimmed, []byte("*/")):
			inComment = false
		case len(trimmed) > 0 && !inComment && !bytes.HasPrefix(trimmed, []byte("//")):
			lines++
		}
	}
	return lines
}

// addChanges adds a patch's changes of some files, and returns the numbers of added and removed
// lines outside tests and in tests.
func addChanges(to *bytes.Buffer, patch []byte, only func(string) bool) (lines, tests int) {
	var header []byte
	wanted := false
	test := false
	for line := range bytes.Lines(patch) {
		file, named := changedBy(line)
		switch {
		case bytes.HasPrefix(line, []byte("--- a/")):
			header = line
			continue
		case named:
			wanted = only == nil || only(file)
			test = strings.HasSuffix(file, "_test.go")
			if wanted {
				fmt.Fprintf(to, "diff --git a/%s b/%s\n%s%s", file, file, header, line)
			}
			continue
		case !wanted:
			continue
		case line[0] != '+' && line[0] != '-':
		case test:
			tests++
		default:
			lines++
		}
		to.Write(line)
	}
	return lines, tests
}
