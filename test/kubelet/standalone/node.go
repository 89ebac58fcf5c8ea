// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evented-pleg/evented-pleg/test/kubelet/control"
)

// Config is the configuration of a node.
type Config struct {
	// Dir is an empty folder with a short name, for sockets.
	Dir string
	// RuntimeEndpoint is the unix socket of the runtime.
	RuntimeEndpoint string
	// FileCheck is how often the manifests are decoded anew. Default 20s.
	FileCheck time.Duration
	// CgroupRoot is the name of a cgroup in all hierarchies (package unshare makes it): the kubelet
	// makes a cgroup for each pod below. Empty: none.
	CgroupRoot string
	// RuntimeLogs is the runtime's folder for logs of containers without a log path: a kubelet
	// removes a container only with its log. Empty: none.
	RuntimeLogs string
	// Kubeconfig is the access to an API server, with which the kubelet registers. Empty: the
	// kubelet stands alone, with static pods only.
	Kubeconfig string
	// LogInterval is how often the kubelet checks logs for rotation. Default an hour, which keeps it
	// from asking a runtime without logs again and again: see [Node.WriteLogs].
	LogInterval time.Duration
}

// NodeName is the name of every node. It is an address, for documentation only, because a kubelet
// asks the DNS for any other name again and again, and its sync loop waits for the answer.
const NodeName = "192.0.2.1"

// Node is a node without a kubelet yet.
type Node struct {
	cfg Config
	folders
}

// folders are the folders of a node, by purpose.
type folders struct{ dir string }

func (f folders) manifests() string { return filepath.Join(f.dir, "static") }
func (f folders) tmp() string       { return filepath.Join(f.dir, "tmp") } // the harness's own
func (f folders) root() string      { return filepath.Join(f.dir, "root") }
func (f folders) logs() string      { return filepath.Join(f.dir, "logs") }
func (f folders) certs() string     { return filepath.Join(f.dir, "pki") }
func (f folders) cwd() string       { return filepath.Join(f.dir, "cwd") }
func (f folders) scratch() string   { return filepath.Join(f.dir, "kubelet-tmp") }
func (f folders) plugins() string   { return filepath.Join(f.dir, "plugins") }

// writable returns the kubelet's writable folders.
func (f folders) writable() []string {
	return []string{f.root(), f.logs(), f.certs(), f.cwd(), f.scratch(), f.plugins()}
}

// NewNode makes the folders of a node.
func NewNode(cfg Config) (*Node, error) {
	n := &Node{cfg: cfg, folders: folders{cfg.Dir}}
	for _, d := range append(n.writable(), n.manifests(), n.tmp()) {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// PodsSocket is where the kubelet serves its pods API.
func (n *Node) PodsSocket() string { return filepath.Join(n.root(), "pods-api", "pods-api.sock") }

// Put makes a static pod, or replaces the pod of the same name.
func (n *Node) Put(pod *corev1.Pod) error {
	data, err := yaml.Marshal(pod)
	if err != nil {
		return err
	}
	tmp := filepath.Join(n.tmp(), pod.Name) // so the kubelet never sees half a manifest
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(n.manifests(), pod.Name+".yaml"))
}

// Remove removes a static pod.
func (n *Node) Remove(name string) error {
	return os.Remove(filepath.Join(n.manifests(), name+".yaml"))
}

// WriteLogs makes an empty log for each container with a folder made by the kubelet, like a
// runtime, and returns their number.
func (n *Node) WriteLogs() (int, error) {
	folders, err := filepath.Glob(filepath.Join(n.logs(), "*", "*"))
	for _, folder := range folders {
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, "0.log"), nil, 0o644)
		}
	}
	return len(folders), err
}

// configure writes the kubelet's configuration, and returns the port of its server.
func (n *Node) configure(gates map[string]bool) (file string, port int, err error) {
	ports, err := control.FreePorts(1)
	if err != nil {
		return "", 0, err
	}
	c := map[string]any{
		"address":                     "127.0.0.1",
		"port":                        ports[0],
		"healthzPort":                 0,
		"registerNode":                n.cfg.Kubeconfig != "",
		"maxPods":                     2000,
		"staticPodPath":               n.manifests(),
		"podLogsDir":                  n.logs(),
		"volumePluginDir":             n.plugins(),
		"featureGates":                gates,
		"cgroupsPerQOS":               n.cfg.CgroupRoot != "",
		"containerLogMonitorInterval": cmp.Or(n.cfg.LogInterval, time.Hour).String(),
		// A static pod removed and put back under its UID counts as a crash; the wait after the crash
		// has nothing to do with a PLEG.
		"crashLoopBackOff": map[string]any{"maxContainerRestartPeriod": "2s"},
	}
	if n.cfg.CgroupRoot != "" {
		c["cgroupRoot"] = "/" + n.cfg.CgroupRoot
	}
	if n.cfg.FileCheck != 0 {
		c["fileCheckFrequency"] = n.cfg.FileCheck.String()
	}
	data, err := Configuration(n.cfg.RuntimeEndpoint, c)
	if err != nil {
		return "", 0, err
	}
	file = filepath.Join(n.cfg.Dir, "kubelet.yaml")
	return file, ports[0], os.WriteFile(file, data, 0o644)
}

//go:embed kubelet.yaml
var common []byte

// Configuration returns the configuration of a kubelet on a runtime's socket: the common settings
// of kubelet.yaml, and more.
func Configuration(socket string, more map[string]any) ([]byte, error) {
	c := make(map[string]any)
	if err := yaml.Unmarshal(common, &c); err != nil {
		return nil, err
	}
	maps.Copy(c, more)
	c["containerRuntimeEndpoint"] = "unix://" + socket
	return yaml.Marshal(c)
}

// tail returns the last errors in the kubelet's log.
func tail(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return errors.New(strings.Join(lines[max(0, len(lines)-15):], "\n"))
}

var errDeadline = fmt.Errorf("not healthy within %v", healthyWithin)

const healthyWithin = 2 * time.Minute
