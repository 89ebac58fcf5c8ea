// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evented-pleg/evented-pleg/internal/bench/report"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// outputTo is an output kept in a folder.
func outputTo(dir string) *Output {
	o := &Output{}
	o.AddFlags(pflag.NewFlagSet("test", pflag.ContinueOnError), "text or json", "x<1")
	o.Dir = dir
	return o
}

// TestFolderThatCannotBeWritten: what cannot be kept is said before the work, with what to do.
func TestFolderThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	testkit.Check(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{file, filepath.Join(file, "x"), "/proc/x"} {
		err := outputTo(dir).Check(struct{}{}, nil)
		if !IsUsage(err) || !strings.Contains(err.Error(), "name a folder that can be written") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestFullFolder: a disk that is full before the work is no surprise after it, and no wrong command
// line.
func TestFullFolder(t *testing.T) {
	dir := t.TempDir()
	err := syscall.Mount("none", dir, "tmpfs", 0, "size=64k")
	if err != nil {
		t.Skipf("mounts need root: %v", err)
	}
	t.Cleanup(func() { testkit.Check(t, syscall.Unmount(dir, 0)) })
	kept := filepath.Join(dir, "kept")
	err = outputTo(kept).Check(struct{}{}, nil)
	if !errors.Is(err, syscall.ENOSPC) || IsUsage(err) || !strings.Contains(err.Error(), "--out: ") ||
		!strings.Contains(err.Error(), "free some space, or name a folder on another disk") {
		t.Errorf("on a small disk: %v", err)
	}
	left := testkit.Must(os.ReadDir(kept))(t)
	if len(left) > 0 {
		t.Errorf("the try has left %v", left)
	}
	testkit.Check(t, os.WriteFile(filepath.Join(dir, "others"), make([]byte, 60<<10), 0o600))
	cmd := new(cobra.Command)
	cmd.SetOut(io.Discard)
	err = outputTo(kept).Write(cmd, report.Saved{Result: report.BlankRun()}, true, nil)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("on a disk that is full by now: %v", err)
	}
}
