// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listenOnSocket starts a server of a pod on a socket.
func listenOnSocket(t *testing.T, path string) *stub {
	t.Helper()
	l := must(net.Listen("unix", path))(t)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	s := &stub{sandboxes: []*runtimeapi.PodSandbox{sandbox("s", "u", ready)}}
	s.start(t, l)
	return s
}

// socketPathForTest returns a short path: t.TempDir may be too long for a socket.
func socketPathForTest(t *testing.T) string {
	t.Helper()
	dir := must(os.MkdirTemp("", "cri"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// TestSocket lists over a real socket, named in each possible way.
func TestSocket(t *testing.T) {
	socket := socketPathForTest(t)
	listenOnSocket(t, socket)
	for _, endpoint := range []string{socket, "unix://" + socket, "unix:" + socket} {
		c := must(Dial(t.Context(), Config{Endpoint: endpoint}))(t)
		if c.Endpoint() != "unix://"+socket {
			t.Errorf("the endpoint of %q is %q", endpoint, c.Endpoint())
		}
		if l := mustList(t, c, 0); len(l.Pods) != 1 {
			t.Errorf("List: %+v", l)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.List(t.Context(), 0); err == nil {
			t.Error("List of a closed client worked")
		}
	}
}
