// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// TestProcess checks that a process ends in order or by force, in either case once.
func TestProcess(t *testing.T) {
	const stubborn = `trap '' TERM; echo ready; while :; do sleep 0.01; done`
	end := func(grace time.Duration) func(*Process) error {
		return func(p *Process) error {
			ctx, cancel := context.WithTimeout(t.Context(), grace)
			defer cancel()
			return p.End(ctx, syscall.SIGTERM)
		}
	}
	for _, tt := range []struct {
		name, script string
		stop         func(*Process) error
		wrong        string
	}{
		{"in order", `trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`, end(time.Minute), ""},
		{"by force", stubborn, end(50 * time.Millisecond), "did not end by itself"},
		{"as a crash", stubborn, (*Process).Kill, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command("/bin/sh", "-c", tt.script)
			out, in := io.Pipe()
			cmd.Stdout = in
			p := testkit.Must(Spawn(cmd))(t)
			testkit.Must(io.ReadFull(out, make([]byte, len("ready\n"))))(t)
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
	if _, err := Spawn(exec.Command(filepath.Join(t.TempDir(), "nothing"))); err == nil {
		t.Error("what is not there was started")
	}
}
