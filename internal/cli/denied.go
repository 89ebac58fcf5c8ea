// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/deadmount"
	"github.com/evented-pleg/evented-pleg/internal/printable"
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
	return denier(path, self(), machine)
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

// kernel is what the kernel tells of files and of security modules. Tests have others.
type kernel struct {
	stat func(path string) (fs.FileInfo, error)
	// label is the file of the label that a security module gives to this process. Every process
	// has it, also in a container.
	label string
	// enforce is the file that says whether SELinux enforces, 1, or only logs, 0. A container's own
	// sysfs lacks it; it is there on the node, and where the runtime binds the node's /sys.
	enforce string
}

var machine = kernel{
	stat:    os.Stat,
	label:   "/proc/self/attr/current",
	enforce: "/sys/fs/selinux/enforce",
}

// denier names the cause of a denied connection to the socket at path.
func denier(path string, who identity, k kernel) string {
	for _, at := range above(path) {
		info, err := k.stat(at)
		switch {
		case errors.Is(err, fs.ErrPermission): // by their modes, the folders above can be searched
			return fmt.Sprintf("%s cannot be looked at by %s: the file modes allow it, and %s", at, who, k.module())
		case err != nil:
			return fmt.Sprintf("%s cannot be looked at: %v", at, err)
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
	return "the file modes allow it, and " + k.module()
}

// anywhere is the type of a container that SELinux does not confine.
const anywhere = "spc_t"

// module says which security module denies what the file modes allow, and what to do.
func (k kernel) module() string {
	const remedy = ". An ordinary container may not connect to a runtime: run the pod with " +
		"seLinuxOptions {type: spc_t}, or a watch with the type of deploy/selinux/pleg_watch.cil; " +
		"the kernel's audit log has the denial (ausearch -m avc -c "
	label := line(k.label)
	enforce := line(k.enforce)
	own := typeOf(label)
	program := filepath.Base(os.Args[0])
	switch {
	case enforce == "0" || own == anywhere: // SELinux denies nothing to this process
	case own != "":
		return "SELinux denies it: this process runs as " + printable.Cut(own, mostShown) + remedy + program + ")"
	case enforce == "1":
		return "SELinux, which is enforcing, denies it" + remedy + program + ")"
	}
	said := "a security module (AppArmor, a sandbox, the mount's namespace) denies it"
	if label != "" {
		said += `. The label of this process is "` + printable.Cut(label, mostShown) + `"`
	}
	return said
}

const (
	// longestLabel is the length of the longest label of a process, in bytes: the kernel writes no
	// more than a page.
	longestLabel = 4096
	// mostShown is the length of the longest label that is shown whole, in bytes.
	mostShown = 256
)

// line is the text of a short file, without the NULs and newlines at its end. It is empty for a
// file that cannot be read, or that no kernel writes as a label: one longer than a page.
func line(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, longestLabel+1))
	if err != nil || len(text) > longestLabel {
		return ""
	}
	return strings.TrimRight(string(text), "\x00\n")
}

// labelForm is the form of SELinux's labels: user, role, type and level, such as
// system_u:system_r:container_t:s0:c1,c2. AppArmor's labels are "unconfined" or "profile (mode)".
var labelForm = regexp.MustCompile(`^[\w.-]+:[\w.-]+:([\w.-]+):[\w.,:-]+$`)

// typeOf is the type in a label of SELinux, empty if the label is none.
func typeOf(label string) string {
	found := labelForm.FindStringSubmatch(label)
	if found == nil {
		return ""
	}
	return found[1]
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
