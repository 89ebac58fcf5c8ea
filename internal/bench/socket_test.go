// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// TestRemoveSocket: the socket of a server stays, also of one that has taken no connection for so
// long that its queue is full. One that nobody listens on any more goes.
func TestRemoveSocket(t *testing.T) {
	dir := testkit.Must(os.MkdirTemp("/tmp", "socket-"))(t) // a test's own may be too long for a socket
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "cri.sock")
	server := testkit.Must(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))(t)
	testkit.Check(t, errors.Join(
		syscall.Bind(server, &syscall.SockaddrUnix{Name: path}),
		syscall.Listen(server, 1),
	))
	var waiting []net.Conn
	for {
		conn, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		waiting = append(waiting, conn)
	}
	there := testkit.Must(os.Lstat(path))(t)
	if err := RemoveSocket(path, there, "x"); err == nil {
		t.Error("the socket of a busy server is removed")
	}
	for _, conn := range waiting {
		testkit.Check(t, conn.Close())
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
	testkit.Check(t, syscall.Close(server))
	testkit.Check(t, RemoveSocket(path, there, "x"))
	if _, err := os.Lstat(path); err == nil {
		t.Error("a socket without a listener stays")
	}
}

// TestListenFailed: the error of a socket that cannot be made says what to do.
func TestListenFailed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	testkit.Check(t, os.WriteFile(file, nil, 0o600))
	for path, want := range map[string]string{
		filepath.Join(dir, "none", "x"): "there is no folder " + filepath.Join(dir, "none"),
		filepath.Join(file, "x"):        "there is no folder " + file,
	} {
		_, err := net.Listen("unix", path)
		said := ListenFailed(path, err).Error()
		if !strings.HasPrefix(said, "--socket "+path+": "+want) || !errors.Is(ListenFailed(path, err), err) {
			t.Errorf("%s: %s", path, said)
		}
	}
	for _, denied := range []error{syscall.EACCES, syscall.EROFS} {
		said := ListenFailed("/run/x.sock", denied).Error()
		if !strings.Contains(said, "no socket can be made in /run by this user: name a path in another folder") {
			t.Error(said)
		}
	}
}
