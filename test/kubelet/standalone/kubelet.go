// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package standalone

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/test/kubelet/control"
)

// Inside is the first argument with which the calling program's binary must call [RunInside].
const Inside = "run-kubelet-inside"

// Kubelet is a running kubelet.
type Kubelet struct {
	*control.Process
	node *Node
	url  string // of its server, which accepts anybody
}

// Start starts a kubelet of the binary and waits until healthy.
func (n *Node) Start(ctx context.Context, binary string, gates map[string]bool) (*Kubelet, error) {
	config, port, err := n.configure(gates)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	k := &Kubelet{node: n, url: "https://127.0.0.1:" + strconv.Itoa(port)}
	log := filepath.Join(n.cfg.Dir, "kubelet.log")
	cmd := n.sealed(self, binary, "--config="+config, "--root-dir="+n.root(), "--cert-dir="+n.certs(),
		"--hostname-override="+NodeName, "--v=2")
	if n.cfg.Kubeconfig != "" {
		cmd.Args = append(cmd.Args, "--kubeconfig="+n.cfg.Kubeconfig)
	}
	if k.Process, err = control.Spawn(cmd, log); err != nil {
		return nil, err
	}
	if err := k.awaitHealthy(ctx); err != nil {
		_ = k.Kill()
		return nil, fmt.Errorf("%s: %w\n%w", filepath.Base(binary), err, tail(log))
	}
	return k, nil
}

// sealed returns a command that runs a binary with only the node's own folders writable. Self is a
// program that calls [RunInside].
func (n *Node) sealed(self, binary string, args ...string) *exec.Cmd {
	cmd := exec.Command(
		self,
		append([]string{Inside, n.cfg.Dir, n.cfg.CgroupRoot, n.cfg.RuntimeLogs, binary}, args...)...)
	cmd.Dir = n.cwd()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
		Setpgid:      true,
	}
	return cmd
}

func (k *Kubelet) awaitHealthy(ctx context.Context) error {
	for end := time.Now().Add(healthyWithin); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		select {
		case <-k.Done():
			return fmt.Errorf("ended: %w", errors.Join(k.Wait(ctx), errors.New("see its log")))
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		if body, err := k.get(ctx, "/healthz"); err == nil && string(body) == "ok" {
			return nil
		}
	}
	return errDeadline
}

// Pods returns the static pods with the kubelet's reported status.
func (k *Kubelet) Pods(ctx context.Context) ([]corev1.Pod, error) {
	body, err := k.get(ctx, "/pods")
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("/pods: %w", err)
	}
	return list.Items, nil
}

// Metrics returns the kubelet's metrics by their names and labels in the text format.
func (k *Kubelet) Metrics(ctx context.Context) (map[string]float64, error) {
	body, err := k.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return bench.Scrape(body), nil
}

// Stacks returns the stacks of the kubelet's goroutines in Go's printed form.
func (k *Kubelet) Stacks(ctx context.Context) ([]string, error) {
	body, err := k.get(ctx, "/debug/pprof/goroutine?debug=2")
	return strings.Split(strings.TrimSpace(string(body)), "\n\n"), err
}

// CPUProfile returns the kubelet's CPU profile during the time, in pprof's form.
func (k *Kubelet) CPUProfile(ctx context.Context, d time.Duration) ([]byte, error) {
	return k.getWithin(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%.0f", d.Seconds()), d+30*time.Second)
}

func (k *Kubelet) get(ctx context.Context, path string) ([]byte, error) {
	return k.getWithin(ctx, path, 30*time.Second)
}

// client makes a connection for each request, so that no idle connection counts among the kubelet's
// goroutines. The kubelet signs its own certificate, on loopback.
var client = &http.Client{
	Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
}

func (k *Kubelet) getWithin(ctx context.Context, path string, patience time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return body, err
}
