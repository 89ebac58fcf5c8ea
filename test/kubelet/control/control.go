// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package control runs a control plane: etcd, kube-apiserver, and what else a test spawns beside
// them, built from the module registry (script build in test/apiserver).
//
// # Model
//
// A [Plane] is a folder with data and logs, and processes that die with this one. Its users are
// those of Config.Users; Admin may do all.
//
// # Concurrency
//
// One goroutine starts and ends processes. Clients are safe for concurrent use.
//
// # Errors
//
// Start and StartServer fail unless the server is ready within two minutes.
package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/evented-pleg/evented-pleg/internal/bench/child"
)

// Admin is the token of the user who may do all.
const Admin = "admin-token"

// Config is the configuration of a control plane.
type Config struct {
	// Binaries is the folder of the programs, Dir an existing one for data and logs.
	Binaries, Dir string
	// Address is the server's, an address of this machine.
	Address string
	// Users are further lines of the server's token file.
	Users string
	// Flags are further flags of the server.
	Flags []string
}

// Plane is a control plane.
type Plane struct {
	*kubernetes.Clientset // of Admin
	// Kubeconfig is the path of Admin's access to the server, Key the path of the key that signs
	// service accounts' tokens.
	Kubeconfig, Key string

	config    Config
	url       string
	args      []string // of the server
	server    *Process
	processes []*Process
}

// Start starts etcd and kube-apiserver, and waits until the server is ready.
func Start(ctx context.Context, c Config) (p *Plane, err error) {
	in := func(name string) string { return filepath.Join(c.Dir, name) }
	p = &Plane{Kubeconfig: in("kubeconfig"), Key: in("sa.key"), config: c}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	ports, err := FreePorts(3)
	if err != nil {
		return p, err
	}
	etcd := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	if _, err := p.Spawn("etcd", "--data-dir="+in("etcd"), "--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", ports[1]), "--unsafe-no-fsync", "--log-level=error"); err != nil {
		return p, err
	}
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return p, err
	}
	p.url = fmt.Sprintf("https://%s:%d", c.Address, ports[2])
	kubeconfig := fmt.Sprintf(
		"apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
			"clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]\nusers: [{name: u, user: {token: %q}}]\n",
		p.url,
		Admin,
	)
	p.Clientset, err = kubernetes.NewForConfig(p.Access(Admin))
	err = errors.Join(err, keyutil.WriteKey(p.Key, key), os.WriteFile(p.Kubeconfig, []byte(kubeconfig), 0o600),
		os.WriteFile(in("tokens.csv"), []byte(Admin+",admin,1,system:masters\n"+c.Users), 0o600))
	if err != nil {
		return p, err
	}
	p.args = append([]string{
		"--etcd-servers=" + etcd,
		"--bind-address=" + c.Address,
		fmt.Sprintf("--secure-port=%d", ports[2]),
		"--advertise-address=" + c.Address,
		"--endpoint-reconciler-type=none",
		"--cert-dir=" + in("api-certs"),
		"--token-auth-file=" + in("tokens.csv"),
		"--service-account-issuer=https://test",
		"--service-account-key-file=" + p.Key,
		"--service-account-signing-key-file=" + p.Key,
		"--service-cluster-ip-range=10.0.0.0/24",
		"--allow-privileged",
	}, c.Flags...)
	return p, p.StartServer(ctx)
}

// Access is a user's access to the server, which signs its own certificate.
func (p *Plane) Access(token string) *rest.Config {
	return &rest.Config{
		Host:            p.url,
		BearerToken:     token,
		QPS:             500,
		Burst:           500,
		Timeout:         20 * time.Second,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
}

// StartServer starts the API server, at first or after StopServer, and waits until it is ready.
func (p *Plane) StartServer(ctx context.Context) (err error) {
	if p.server, err = p.Spawn("kube-apiserver", p.args...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		_, err := p.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.server.Done():
			return fmt.Errorf("control: the API server ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("control: the API server is not ready: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// StopServer ends the API server by a signal.
func (p *Plane) StopServer(s syscall.Signal) error { return p.server.end(s, stopWithin) }

// Spawn starts another program of the folder until Close, with a log of its name.
func (p *Plane) Spawn(program string, args ...string) (*Process, error) {
	process, err := Spawn(
		exec.Command(filepath.Join(p.config.Binaries, program), args...),
		filepath.Join(p.config.Dir, program+".log"),
	)
	if err != nil {
		return nil, fmt.Errorf("%w (the build script in test/apiserver makes it)", err)
	}
	p.processes = append(p.processes, process)
	return process, nil
}

const stopWithin = 15 * time.Second

// Close ends all programs, the last first, by force if need be.
func (p *Plane) Close() {
	for _, process := range slices.Backward(p.processes) {
		_ = process.Stop(stopWithin)
	}
}

// Process is a child that dies with this process.
type Process struct{ *child.Process }

// Spawn starts a command with its output at the end of a log.
func Spawn(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout = out
	cmd.Stderr = out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p, err := child.Spawn(cmd)
	return &Process{p}, err
}

// Stop ends the process in order, and kills it after the grace.
func (p *Process) Stop(grace time.Duration) error { return p.end(syscall.SIGTERM, grace) }

func (p *Process) end(s syscall.Signal, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return p.End(ctx, s)
}

// FreePorts finds unused ports. Another process may take a port before its user does; then the
// user's log shows the conflict.
func FreePorts(count int) (ports []int, err error) {
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // once all are found, which so differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
