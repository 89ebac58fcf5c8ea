// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evented-pleg/evented-pleg/test/node/conformance"
)

// envUpdate set to 1 lets the scenario write the transcript anew.
const envUpdate = "NODE_E2E_UPDATE"

// conform runs the script of package conformance and demands the recorded transcript of the
// runtime, with which the ordinary tests compare the fake runtime.
func conform(t *T) {
	n := t.NewNode()
	got, err := conformance.Record(t.ctx, n.Client, n.Traits, 800*time.Millisecond)
	t.Logf("the transcript:\n%s", got)
	t.Check(err)
	lines := 0
	for _, s := range got {
		lines += len(s.Lines)
	}
	t.Figure("steps", "%d", len(got))
	t.Figure("lines", "%d", lines)
	path := filepath.Join(run.root, "test", "node", "conformance", "testdata", t.env.kind.Name+".txt")
	if os.Getenv(envUpdate) == "1" {
		t.Check(os.WriteFile(path, []byte(got.String()), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	t.Check(err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("%s does not do what its transcript %s says; if that is right, record it anew with %s=1 (-want +got):\n%s", t.env.version, path, envUpdate, diff)
	}
}
