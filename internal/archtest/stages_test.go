// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
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
