// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package standalone

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestProcess checks that a process ends in order or by force, in either case once, and its output
// is in the log.
func TestProcess(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	const stubborn = `trap '' TERM; echo ready; while :; do sleep 0.01; done`
	for _, tt := range []struct {
		name, script string
		stop         func(*Process) error
		wrong        string
	}{
		{"in order", `trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`, func(p *Process) error { return p.Stop(time.Minute) }, ""},
		{"by force", stubborn, func(p *Process) error { return p.Stop(50 * time.Millisecond) }, "did not end by itself"},
		{"as a crash", stubborn, (*Process).Kill, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, _ := os.ReadFile(log)
			p, err := Spawn(exec.Command("/bin/sh", "-c", tt.script), log)
			if err != nil {
				t.Fatal(err)
			}
			for said := before; len(said) == len(before); said, _ = os.ReadFile(log) {
				time.Sleep(time.Millisecond)
			}
			if !p.Alive() {
				t.Error("it has not lived")
			}
			if err := tt.stop(p); tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
				t.Errorf("the end: %v, want %q", err, tt.wrong)
			}
			if p.Alive() {
				t.Error("it lives on")
			}
		})
	}
	if said, _ := os.ReadFile(log); string(said) != "ready\nready\nready\n" {
		t.Errorf("the log has %q", said)
	}
	if _, err := Spawn(exec.Command(filepath.Join(t.TempDir(), "nothing")), log); err == nil {
		t.Error("what is not there was started")
	}
}
