// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
)

// Users of the token file. The node is bound to the real system:node role.
const (
	adminToken = "admin-token"
	nodeToken  = "node-token"
	nodeName   = "node-1"
	plainToken = "plain-token" // of a user without any role
)

// cluster is an etcd and an API server.
type cluster struct {
	t         *testing.T
	dir, bin  string
	etcdURL   string
	port      int
	extra     []string
	api, etcd *process
}

// process is a child of ours.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// version is the API server's version.
func version() string { return cmp.Or(os.Getenv("KUBE_VERSION"), "v1.36.3") }

func binaries(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "build", "apiserver", version()))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(dir, b)); err != nil {
			t.Fatalf("%s is not built: run ./build %s in this directory first (%v)", b, version(), err)
		}
	}
	return dir
}

// newCluster starts both and waits until the API server is ready. The cluster ends with the test.
func newCluster(t *testing.T, extra ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), bin: binaries(t), port: freePort(t), extra: extra}
	peer := freePort(t)
	c.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	c.etcd = c.spawn("etcd", "--data-dir", filepath.Join(c.dir, "etcd"), "--listen-client-urls", c.etcdURL, "--advertise-client-urls", c.etcdURL,
		"--listen-peer-urls", fmt.Sprintf("http://127.0.0.1:%d", peer), "--unsafe-no-fsync", "--log-level", "error")
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	if err := keyutil.WriteKey(filepath.Join(c.dir, "sa.key"), key); err != nil {
		t.Fatal(err)
	}
	tokens := adminToken + ",admin,1,system:masters\n" + nodeToken + ",system:node:" + nodeName + ",2,\"system:nodes,bench:nodes\"\n" + plainToken + ",plain,3\n"
	if err := os.WriteFile(filepath.Join(c.dir, "tokens.csv"), []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.api.end(syscall.SIGTERM)
		c.etcd.end(syscall.SIGTERM)
		if t.Failed() {
			for _, p := range []*process{c.etcd, c.api} {
				if data, err := os.ReadFile(p.log); err == nil {
					t.Logf("the end of %s:\n%s", filepath.Base(p.log), tail(string(data), 2000))
				}
			}
		}
	})
	c.startAPI()
	return c
}

// startAPI starts the API server, also again after its end.
func (c *cluster) startAPI() {
	c.t.Helper()
	key := filepath.Join(c.dir, "sa.key")
	args := append([]string{
		"--etcd-servers=" + c.etcdURL, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.port), "--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", "--cert-dir=" + filepath.Join(c.dir, "certs"), "--token-auth-file=" + filepath.Join(c.dir, "tokens.csv"),
		"--authorization-mode=RBAC", "--service-account-issuer=https://test", "--service-account-key-file=" + key,
		"--service-account-signing-key-file=" + key, "--service-cluster-ip-range=10.0.0.0/24",
		"--disable-admission-plugins=ServiceAccount",
	}, c.extra...)
	c.api = c.spawn("kube-apiserver", args...)
	client := c.client(adminToken)
	deadline := time.Now().Add(2 * time.Minute)
	for {
		_, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(c.t.Context())
		if err == nil {
			return
		}
		select {
		case <-c.api.done:
			c.t.Fatalf("the API server ended: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the API server is not ready after two minutes: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (c *cluster) spawn(name string, args ...string) *process {
	c.t.Helper()
	p := &process{cmd: exec.Command(filepath.Join(c.bin, name), args...), log: filepath.Join(c.dir, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	return p
}

// end ends a process started by the test, and waits for the end.
func (p *process) end(sig syscall.Signal) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

func (c *cluster) config(token string) *rest.Config {
	return &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", c.port), BearerToken: token, QPS: 50, Burst: 100, Timeout: 10 * time.Second,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // it signs its own certificate, on loopback
	}
}

func (c *cluster) client(token string) *kubernetes.Clientset {
	c.t.Helper()
	client, err := kubernetes.NewForConfig(c.config(token))
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

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

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func tail(s string, n int) string {
	if len(s) > n {
		s = s[len(s)-n:]
	}
	return strings.ToValidUTF8(s, "?")
}
