// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// TestFolders checks that the owner of a folder is known, and that nothing else of a folder whose
// owner has ended is removed than locks and logs.
func TestFolders(t *testing.T) {
	logs := testkit.Must(MakeLogs(t.TempDir()))(t)
	foreign, deadLogs := filepath.Join(t.TempDir(), "other"), logs.Path+"-dead"
	precious, log := filepath.Join(deadLogs, "precious.txt"), filepath.Join(foreign, "b.log")
	testkit.Check(t, errors.Join(os.Mkdir(foreign, 0o755), os.Mkdir(deadLogs, 0o755)))
	for _, path := range []string{filepath.Join(deadLogs, lockName), filepath.Join(deadLogs, "a.log"), precious, log} {
		testkit.Check(t, os.WriteFile(path, nil, 0o600))
	}
	for dir, want := range map[string]Owner{logs.Path: OwnerLives, deadLogs: OwnerEnded, foreign: OwnerUnknown} {
		if got := ownerOf(dir); got != want {
			t.Errorf("the owner of %s %s, want that it %s", dir, got, want)
		}
	}
	if err := removeLogs(deadLogs); err == nil {
		t.Error("a folder that holds something else was removed")
	}
	for _, dir := range []string{foreign, "", ".", "/", "pleg-bench-logs-relative"} {
		if err := removeLogs(dir); err != nil {
			t.Errorf("%q: %v", dir, err)
		}
	}
	for path, want := range map[string]bool{log: true, precious: true, filepath.Join(deadLogs, "a.log"): false} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", path, err, want)
		}
	}
	if err := errors.Join(os.Remove(precious), removeLogs(deadLogs), removeLogs(deadLogs), logs.Remove()); err != nil {
		t.Error(err)
	}
	for _, path := range []string{logs.Path, deadLogs} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
}
