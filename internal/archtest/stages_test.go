// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// byHand are the targets of tests that no tier of CI makes.
var byHand = []string{
	"test-critest", // the stage critest runs the same test
	"test-stored",  // figures for docs/agent.md
	"test-value",   // hours, for the figures of docs/performance.md
}

// TestEveryTargetOfTestsIsAStage wants each test-… of the Makefile in a stage of CI: a test that
// nothing runs rots.
func TestEveryTargetOfTestsIsAStage(t *testing.T) {
	targets := regexp.MustCompile(`(?m)^(test-[a-z-]+):.* ##`).FindAllSubmatch(read(t, root+"/Makefile"), -1)
	var made []string
	for _, match := range regexp.MustCompile(`\btest-[a-z-]+`).FindAll(read(t, root+"/.ci/stages"), -1) {
		made = append(made, string(match))
	}
	for _, match := range targets {
		name := string(match[1])
		if slices.Contains(made, name) == slices.Contains(byHand, name) {
			t.Errorf("make %s: want a stage of .ci/stages, or a reason in byHand, and not both", name)
		}
	}
	if len(targets) < 10 {
		t.Errorf("%d targets of tests found: is the test in its place?", len(targets))
	}
}

// TestNoPipeIsLeftEarly wants no reader in a pipe of a script with pipefail that goes at its first
// match: what still writes into the pipe dies of SIGPIPE then, now and then, and the whole counts
// as failed, or under a ! as right. A here-string of $(...) has no such race.
func TestNoPipeIsLeftEarly(t *testing.T) {
	early := regexp.MustCompile(`(?m)^\s*[^#\s].*[^|]\|\s*(grep -[a-zA-Z]*[qm]|head\b).*$`)
	scripts := 0
	for _, folder := range []string{".ci", "test", "tools", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() || filepath.Ext(path) == ".go" {
				return err
			}
			text := read(t, path)
			if !bytes.Contains(text, []byte("pipefail")) { // also one that others source
				return nil
			}
			scripts++
			for _, line := range early.FindAll(text, -1) {
				t.Errorf("%s: %s", path, line)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if scripts < 10 {
		t.Errorf("%d scripts with pipefail found: is the test in its place?", scripts)
	}
}
