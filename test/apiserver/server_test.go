// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"sync"
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
	plane, err := startPlane(t.Context(), dir, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		plane.Close()
		printLogs(t, dir)
	})
	return &cluster{plane, t}
}

func startPlane(ctx context.Context, dir string, flags ...string) (*control.Plane, error) {
	return control.Start(ctx, control.Config{
		Binaries: filepath.Join("..", "..", "build", "apiserver", version()),
		Dir:      dir,
		Address:  "127.0.0.1",
		Users:    users,
		Flags:    append(flags, "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount"),
	})
}

// printLogs prints the ends of the programs' logs if the test has failed.
func printLogs(t *testing.T, dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log")) // the pattern is good
	for _, log := range logs {
		if text, err := os.ReadFile(log); err == nil && t.Failed() {
			t.Logf("the end of %s:\n%s", filepath.Base(log), text[max(0, len(text)-2000):])
		}
	}
}

// shared is the cluster of the tests that neither stop it nor want flags. Each has namespaces of
// its own. The first starts it; TestMain ends it.
var shared struct {
	once  sync.Once
	dir   string
	plane *control.Plane
	err   error
}

// sharedCluster returns the shared cluster.
func sharedCluster(t *testing.T) *cluster {
	t.Helper()
	shared.once.Do(func() {
		shared.dir, shared.err = os.MkdirTemp("", "apiserver")
		if shared.err == nil {
			shared.plane, shared.err = startPlane(context.Background(), shared.dir)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	t.Cleanup(func() { printLogs(t, shared.dir) })
	return &cluster{shared.plane, t}
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.plane != nil {
		shared.plane.Close()
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
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
