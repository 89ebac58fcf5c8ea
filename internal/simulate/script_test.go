// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var updateFlag = flag.Bool(
	"update",
	false,
	"rewrite the expect events and expect cache lines of the scripts with what happened; read the diff before you commit it",
)

var pendingFlag = flag.Bool(
	"pending",
	false,
	"run the scripts of what the core does not do yet: testdata/pending",
)

// TestScripts runs testdata/*.txtar: prose, a file "history" that must run without a violation and
// as it expects. Those that have a file "mutations" name the deliberate faults of internal/mutate
// that they convict, one a line; mutate -scripts checks that they do.
func TestScripts(t *testing.T) {
	pattern := "testdata/*.txtar"
	if *pendingFlag {
		pattern = "testdata/pending/*.txtar"
	}
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) < 20 && !*pendingFlag {
		t.Fatalf("%d scripts, %v", len(names), err)
	}
	for _, path := range names {
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		t.Run(name, func(t *testing.T) {
			if raceDetector && slices.Contains(crowded, name) {
				t.Skip("with the race detector it takes a minute; without it, it is played")
			}
			runScript(t, path)
		})
	}
}

// crowded are the scripts of so many pods that they take most of the time of all scripts. What runs
// at once in them does in others.
var crowded = []string{"limits-2-a-thousand-pods-of-50-ms", "limits-6-a-sudden-slowdown-under-500-exits"}

func runScript(t *testing.T, name string) {
	a, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var history History
	for _, f := range a.Files {
		if f.Name == "history" {
			history = strings.Split(strings.TrimRight(string(f.Data), "\n"), "\n")
		}
	}
	if len(history) == 0 {
		t.Fatal("it has no file called history")
	}
	if *updateFlag {
		update(t, name, a, history)
		return
	}
	r := inBubble(t, history, Options{Strict: true, Trace: true})
	if r.Violation != nil {
		t.Errorf("violation %v", r.Violation)
	}
	if r.Err != nil {
		t.Error(r.Err)
	}
}

// update writes the events and the cache into the script.
func update(t *testing.T, name string, a *txtar.Archive, history History) {
	r := inBubble(t, history, Options{Strict: true, Trace: true, Update: true})
	if r.Failed() {
		t.Errorf("violation %v, error %v", r.Violation, r.Err)
	}
	told := r.Trace
	for i, line := range history {
		if strings.HasPrefix(line, "expect events") || strings.HasPrefix(line, "expect cache") {
			if len(told) == 0 {
				t.Fatalf("line %d was not reached", i+1)
			}
			history[i], told = strings.TrimSpace(told[0]), told[1:]
		}
	}
	for i := range a.Files {
		if a.Files[i].Name == "history" {
			a.Files[i].Data = []byte(history.String())
		}
	}
	if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
		t.Fatal(err)
	}
}
