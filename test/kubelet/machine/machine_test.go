// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// hidden is the environment of the process in which TestHideKeeps hides a folder.
const hidden = "MACHINE_TEST_HIDDEN"

// TestHideKeeps hides a folder and keeps a checkout below it, which can be read and not written.
func TestHideKeeps(t *testing.T) {
	if point := os.Getenv(hidden); point != "" {
		if err := look(point); err != nil {
			t.Fatal(err)
		}
		return
	}
	point := t.TempDir()
	checkout := filepath.Join(point, "a/checkout")
	err := errors.Join(os.MkdirAll(checkout, 0o755),
		os.WriteFile(filepath.Join(checkout, "program"), []byte("x"), 0o644),
		os.WriteFile(filepath.Join(point, "other"), nil, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestHideKeeps$")
	cmd.Env = append(os.Environ(), hidden+"="+point)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// look hides point, and returns an error for each thing that is not as it must be.
func look(point string) error {
	checkout := filepath.Join(point, "a/checkout")
	err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		hide(point, []string{checkout, "/usr"}))
	if err != nil {
		return err
	}
	var errs []error
	if text, err := os.ReadFile(filepath.Join(checkout, "program")); err != nil || string(text) != "x" {
		errs = append(errs, fmt.Errorf("the checkout has %q (%w)", text, err))
	}
	if err := os.WriteFile(filepath.Join(checkout, "new"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		errs = append(errs, fmt.Errorf("a write into the checkout: %w, want a read-only file system", err))
	}
	if _, err := os.Stat(filepath.Join(point, "other")); !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("the rest of the folder is not hidden: %w", err))
	}
	return errors.Join(append(errs, os.WriteFile(filepath.Join(point, "new"), nil, 0o644))...)
}
