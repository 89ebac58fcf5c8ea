// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// inContainer is the label of a process in an ordinary container, as SELinux ends it.
const inContainer = "system_u:system_r:container_t:s0:c12,c345\x00"

// without is the path of a source that is not there, as of SELinux in a container's own sysfs.
const without = "without"

// sources writes what the kernel tells of security modules, and returns the
// kernel that tells it.
func sources(t *testing.T, label, enforce string) kernel {
	t.Helper()
	dir := t.TempDir()
	k := kernel{
		stat:    os.Stat,
		label:   filepath.Join(dir, "current"),
		enforce: filepath.Join(dir, "enforce"),
	}
	for path, text := range map[string]string{k.label: label, k.enforce: enforce} {
		if text == without {
			continue
		}
		err := os.WriteFile(path, []byte(text), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	return k
}

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
	selinux := sources(t, inContainer, without)
	none := sources(t, without, without)
	for name, c := range map[string]struct {
		folder, socket os.FileMode
		who            identity
		kernel         kernel
		says           string
	}{
		"a closed folder":      {0o700, 0o666, other, none, dir + " cannot be searched"},
		"a socket of a group":  {0o711, 0o660, other, selinux, path + " cannot be connected to"},
		"a member, read only":  {0o711, 0o640, member, none, path + " cannot be connected to"},
		"a member, by SELinux": {0o711, 0o660, member, selinux, "the file modes allow it, and SELinux denies it: this process runs as container_t"},
		"a member, by another": {0o711, 0o660, member, none, "the file modes allow it, and a security module"},
		"the owner":            {0o700, 0o600, owner, selinux, "this process runs as container_t"},
	} {
		err := errors.Join(os.Chmod(dir, c.folder), os.Chmod(path, c.socket))
		said := denier(path, c.who, c.kernel)
		if err != nil || !strings.Contains(said, c.says) {
			t.Errorf("%s: %s (%v), want %q", name, said, err, c.says)
		}
	}
}

// TestDenierWithoutALook names the security module also if that denies every look at the socket, as
// SELinux does to an ordinary container.
func TestDenierWithoutALook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cri.sock")
	k := sources(t, inContainer, without)
	for failed, says := range map[error]string{
		syscall.EACCES: path + " cannot be looked at by user 0 with groups 0 []: the file modes allow it, and SELinux denies it: this process runs as container_t",
		syscall.ENOENT: path + " cannot be looked at: " + syscall.ENOENT.Error(),
	} {
		k.stat = func(at string) (fs.FileInfo, error) {
			if at == path {
				return nil, failed
			}
			return os.Stat("/") // everybody may search it
		}
		if said := denier(path, identity{}, k); !strings.HasPrefix(said, says) {
			t.Errorf("%v: %s, want %q", failed, said, says)
		}
	}
}

// TestModule tells SELinux from another module by what the kernel has written, and prints nothing
// else as it is.
func TestModule(t *testing.T) {
	const (
		another  = "a security module (AppArmor, a sandbox, the mount's namespace) denies it"
		contains = "SELinux denies it: this process runs as container_t. "
		labelled = another + `. The label of this process is "`
	)
	long := strings.Repeat("a", 4096)
	for name, c := range map[string]struct{ label, enforce, says string }{
		"in a container":             {inContainer, without, contains},
		"on the node":                {inContainer, "1", contains},
		"ended by a newline":         {"system_u:system_r:container_t:s0\n", "1\n", contains},
		"with a range":               {"u:r:pleg_watch.process:s0-s0:c0.c1023", without, "SELinux denies it: this process runs as pleg_watch.process. "},
		"a long type":                {"u:r:" + long[:1000] + ":s0", without, "SELinux denies it: this process runs as " + long[:256] + "… (1000 bytes). "},
		"which only logs":            {inContainer, "0\n", labelled + "system_u:system_r:container_t:s0:c12,c345\""},
		"which confines it no more":  {"system_u:system_r:spc_t:s0\x00", "1", labelled + "system_u:system_r:spc_t:s0\""},
		"no label":                   {without, "1\n", "SELinux, which is enforcing, denies it. "},
		"no label, which only logs":  {without, "0", another},
		"an empty label":             {"", "", another},
		"only ends":                  {"\x00\n\x00", "\n", another},
		"AppArmor":                   {"cri-containerd.apparmor.d (enforce)\n", without, labelled + "cri-containerd.apparmor.d (enforce)\""},
		"AppArmor, unconfined":       {"unconfined\n", without, labelled + "unconfined\""},
		"AppArmor in two namespaces": {"a//&:b:c//&:d:unconfined (enforce)\n", without, labelled + "a//&:b:c//&:d:unconfined (enforce)\""},
		"AppArmor in a namespace":    {":root//a:b:c", without, labelled + ":root//a:b:c\""},
		"a policy not yet loaded":    {"kernel\x00", without, labelled + "kernel\""},
		"too few parts":              {"u:r:container_t", without, labelled + "u:r:container_t\""},
		"an empty part":              {"u:r::s0", without, labelled + "u:r::s0\""},
		"control bytes":              {"u:r:x\x1b[2J\nforged:s0\x00", without, labelled + `u:r:x\x1b[2J\nforged:s0"`},
		"a NUL within":               {"u:r:container_t:s0\x00forged", without, labelled + `u:r:container_t:s0\x00forged"`},
		"no UTF-8":                   {"u:r:\xff:s0", without, labelled + `u:r:\xff:s0"`},
		"long":                       {long, without, labelled + long[:256] + "… (4096 bytes)\""},
		"longer than any":            {"u:r:container_t:s0" + long, "1" + long, another},
		"enormous":                   {strings.Repeat(inContainer, 1<<18), without, another},
	} {
		said := sources(t, c.label, c.enforce).module()
		matches := said == c.says
		if strings.HasSuffix(c.says, ". ") { // what to do follows
			matches = strings.HasPrefix(said, c.says) && strings.Contains(said, "type: spc_t")
		}
		if !matches {
			t.Errorf("%s: %s, want %q", name, said, c.says)
		}
	}
	dir := t.TempDir() // a file that opens and cannot be read, also by root
	if said := (kernel{label: dir, enforce: dir}).module(); said != another {
		t.Errorf("unreadable: %s", said)
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
