// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDenier names the file that denies a socket, and a security module where no file does.
func TestDenier(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "denied") // a short path; t.TempDir's parents are closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "cri.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	owner := self()
	other := identity{uid: owner.uid + 1000, gid: owner.gid + 1000}
	member := identity{uid: other.uid, gid: other.gid, groups: []int{owner.gid}}
	for name, c := range map[string]struct {
		folder, socket os.FileMode
		who            identity
		selinux        bool
		says           string
	}{
		"a closed folder":      {0o700, 0o666, other, false, dir + " cannot be searched"},
		"a socket of a group":  {0o711, 0o660, other, true, path + " cannot be connected to"},
		"a member, read only":  {0o711, 0o640, member, false, path + " cannot be connected to"},
		"a member, by SELinux": {0o711, 0o660, member, true, "SELinux, which is enforcing"},
		"a member, by another": {0o711, 0o660, member, false, "a security module"},
		"the owner":            {0o700, 0o600, owner, true, "SELinux, which is enforcing"},
	} {
		before := enforcing
		enforcing = func() bool { return c.selinux }
		err := errors.Join(os.Chmod(dir, c.folder), os.Chmod(path, c.socket))
		said := denier(path, c.who)
		enforcing = before
		if err != nil || !strings.Contains(said, c.says) {
			t.Errorf("%s: %s (%v), want %q", name, said, err, c.says)
		}
	}
}

// TestDeniedLeavesOtherErrors returns an error unchanged unless a connection is denied.
func TestDeniedLeavesOtherErrors(t *testing.T) {
	failed := errors.New("failed")
	if got := Denied("unix://"+filepath.Join(t.TempDir(), "none"), failed); got != failed {
		t.Errorf("%v, want the error unchanged", got)
	}
	if err := Denied("unix:///none", nil); err != nil {
		t.Error(err)
	}
}
