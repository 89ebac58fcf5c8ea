// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestUsualEndpoint takes the first socket, and for want of one the first path at which nobody may
// look: who denies the look is said when it is connected to. SELinux denies it to a container.
func TestUsualEndpoint(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file := filepath.Join(dir, "file")
	err = os.WriteFile(file, nil, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(dir, "none")
	denied := filepath.Join(dir, "denied")
	stat := func(path string) (fs.FileInfo, error) {
		if filepath.Base(path) == "denied" {
			return nil, &fs.PathError{Op: "stat", Path: path, Err: syscall.EACCES}
		}
		return os.Stat(path)
	}
	for _, c := range []struct {
		paths []string
		want  string
	}{
		{nil, ""},
		{[]string{none, file, dir}, ""},
		{[]string{none, socket, filepath.Join(dir, ".", "cri.sock")}, socket},
		{[]string{denied, socket}, socket},
		{[]string{none, denied, denied + "/denied", file}, denied},
	} {
		if found := usualEndpoint(c.paths, stat); strings.TrimPrefix(found, "unix://") != c.want {
			t.Errorf("of %q: %q, want %q", c.paths, found, c.want)
		}
	}
}
