// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/deadmount"
)

// probeIn bounds the connection attempt of Denied.
const probeIn = 2 * time.Second

// Denied completes the error of an unreachable runtime with the cause of a denial, if there is a
// denial: the modes of the socket or of a folder above, or a security module such as SELinux. Other
// errors are returned unchanged. Denied connects to the socket once more.
func Denied(endpoint string, err error) error {
	if err == nil {
		return nil
	}
	if cause := Denial(endpoint); cause != "" {
		return fmt.Errorf("%w: %s", err, cause)
	}
	return err
}

// Denial connects to a socket, and returns the cause if the connection is denied; else empty, also
// if the kernel gives no answer about the path.
func Denial(endpoint string) string {
	path := strings.TrimPrefix(endpoint, "unix://")
	cause, _ := deadmount.AskFor(probeIn, path, func() string { return denial(path) })
	return cause
}

// denial is Denial of a path, without a bound.
func denial(path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), probeIn)
	defer cancel()
	conn, probed := new(net.Dialer).DialContext(ctx, "unix", path)
	if probed == nil {
		_ = conn.Close()
	}
	if !errors.Is(probed, fs.ErrPermission) {
		return ""
	}
	return denier(path, self())
}

// identity is a process, from the view of file modes.
type identity struct {
	uid, gid int
	groups   []int
}

func self() identity {
	groups, _ := os.Getgroups() // without them, the effective group decides
	return identity{uid: os.Geteuid(), gid: os.Getegid(), groups: groups}
}

// enforcing reports whether the kernel enforces a policy of SELinux. The file is readable in
// containers, too.
var enforcing = func() bool {
	state, err := os.ReadFile("/sys/fs/selinux/enforce")
	return err == nil && strings.TrimSpace(string(state)) == "1"
}

// denier names the cause of a denied connection to the socket at path.
func denier(path string, who identity) string {
	for _, at := range above(path) {
		info, err := os.Stat(at)
		if err != nil {
			return fmt.Sprintf(
				"%s cannot be looked at (%v): a folder above it, or a security module, denies it to %s",
				at,
				err,
				who,
			)
		}
		need := fs.FileMode(1)
		what := "searched"
		if at == path {
			need = 2
			what = "connected to"
		}
		owner := info.Sys().(*syscall.Stat_t)
		if !who.may(need, info.Mode(), owner) {
			return fmt.Sprintf("%s cannot be %s by %s: it belongs to %d:%d with mode %04o. "+
				"Run as its owner or as a member of its group", at, what, who, owner.Uid, owner.Gid, info.Mode().Perm())
		}
	}
	if enforcing() {
		return "the file modes allow it, and SELinux, which is enforcing, denies it: an ordinary container (container_t) may not connect to a runtime. " +
			"Run the pod with seLinuxOptions {type: spc_t}, or load deploy/selinux/pleg_watch.cil; the kernel's audit log has the denial (ausearch -m avc -c " + filepath.Base(os.Args[0]) + ")"
	}
	return "the file modes allow it: a security module (AppArmor, a sandbox, the mount's namespace) denies it"
}

// above returns the folders above a path from the root down, and the path.
func above(path string) (all []string) {
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		all = append(all, at)
		if at == filepath.Dir(at) {
			slices.Reverse(all)
			return all
		}
	}
}

// may reports whether the modes allow the need, one bit of an octal digit.
func (i identity) may(need, mode fs.FileMode, owner *syscall.Stat_t) bool {
	switch {
	case i.uid == int(owner.Uid):
		return mode>>6&need != 0
	case i.gid == int(owner.Gid) || slices.Contains(i.groups, int(owner.Gid)):
		return mode>>3&need != 0
	}
	return mode&need != 0
}

func (i identity) String() string {
	return fmt.Sprintf("user %d with groups %d %v", i.uid, i.gid, i.groups)
}
