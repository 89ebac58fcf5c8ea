// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/test/kubelet/control"
)

// Users of the token file beside the administrator. The node is bound to the real system:node role.
const (
	adminToken = control.Admin
	nodeToken  = "node-token"
	nodeName   = "node-1"
	plainToken = "plain-token" // of a user without any role
	users      = nodeToken + ",system:node:" + nodeName + ",2,\"system:nodes,bench:nodes\"\n" + plainToken + ",plain,3\n"
)

// cluster is an etcd and an API server.
type cluster struct {
	*control.Plane
	t *testing.T
}

// version is the API server's version.
func version() string { return cmp.Or(os.Getenv("KUBE_VERSION"), "v1.36.3") }

// newCluster starts both and waits until the API server is ready. The cluster ends with the test.
func newCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	dir := t.TempDir()
	plane, err := control.Start(t.Context(), control.Config{
		Binaries: filepath.Join("..", "..", "build", "apiserver", version()), Dir: dir, Address: "127.0.0.1", Users: users,
		Flags: append(flags, "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		plane.Close()
		logs, _ := filepath.Glob(filepath.Join(dir, "*.log")) // the pattern is good
		for _, log := range logs {
			if text, err := os.ReadFile(log); err == nil && t.Failed() {
				t.Logf("the end of %s:\n%s", filepath.Base(log), text[max(0, len(text)-2000):])
			}
		}
	})
	return &cluster{plane, t}
}

// startServer starts the API server again.
func (c *cluster) startServer() {
	c.t.Helper()
	testkit.Check(c.t, c.StartServer(c.t.Context()))
}

func clientOf(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client := testkit.Must(kubernetes.NewForConfig(config))(t)
	return client
}

func (c *cluster) client(token string) *kubernetes.Clientset { return clientOf(c.t, c.Access(token)) }

// eventually waits for a condition of the server, for a minute at most.
func eventually(t *testing.T, what string, ok func(ctx context.Context) (bool, string)) {
	t.Helper()
	var state string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var done bool
		if done, state = ok(t.Context()); done {
			return
		}
	}
	t.Fatalf("%s: still %s", what, state)
}
