// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package upstream

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/kubelet/control"
	"github.com/evented-pleg/evented-pleg/test/kubelet/machine"
	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
)

const images = "127.0.0.1:5555"

// RunSuite runs the specs in a node made by [RunNode].
func RunSuite(ctx context.Context) error {
	n, err := machine.Read[Node](at)
	if err != nil {
		return err
	}
	refs, err := references(n.Config.Tree)
	if err != nil {
		return err
	}
	runtime := serviceOf(n.Config)
	if err := errors.Join(runtime.configure(n.Config, pauseOf(refs)), n.configure()); err != nil {
		return err
	}
	layers, err := layersOf(n.Config)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", images)
	if err != nil {
		return err
	}
	quiet := registry.Logger(log.New(io.Discard, "", 0))
	go func() { _ = http.Serve(listener, registry.New(quiet)) }() // until the node ends
	if err := push(images, layers, refs); err != nil {
		return err
	}
	unit := []string{"-p", "StandardError=append:" + at + "/runtime.log", "--unit=" + runtime.name + ".service"}
	if out, err := exec.Command("systemd-run", append(unit, runtime.command...)...).
		CombinedOutput(); err != nil {
		return fmt.Errorf("upstream: start the runtime: %w: %s", err, out)
	}
	go func() { // Restart=always
		for range time.Tick(time.Second) {
			_ = exec.Command("systemctl", "start", runtime.name).Run()
		}
	}()
	endpoint := "unix://" + runtime.socket
	if err := pull(ctx, endpoint, refs); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(n.Config.Suite, "ginkgo"),
		fmt.Sprint("-procs=", n.Part.Procs), "--focus="+n.Part.Focus, "--skip="+n.Part.Skip,
		fmt.Sprint("--timeout=", n.Part.Within), fmt.Sprint("--seed=", n.Config.Seed),
		"--no-color", "--silence-skips", "--junit-report=junit.xml", "--output-dir="+at+"/report",
		"./e2e_node.test", "--", "--node-name="+nodeName,
		"--container-runtime-endpoint="+endpoint, "--image-service-endpoint="+endpoint,
		"--container-runtime-process-name="+runtime.name,
		"--prepull-images=false", "--report-dir="+at+"/report", "--server-start-timeout=8m",
		"--kubelet-config-file="+at+"/kubelet.yaml", "--system-spec-file="+at+"/spec.yaml")
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	if err = cmd.Run(); errors.As(err, new(*exec.ExitError)) {
		return nil // a spec has failed, or more: the report says
	}
	return err
}

// configure writes the files of the kubelet and the suite.
func (n *Node) configure() error {
	var kubelet strings.Builder
	kubelet.WriteString("#!/bin/sh\nexec " + n.Column.Binary + ` "$@"`)
	for gate, on := range n.Column.Gates { // in the file they would be the suite's too
		fmt.Fprintf(&kubelet, " --feature-gates=%s=%v", gate, on)
	}
	err := os.Symlink(filepath.Join(n.Config.Suite, "e2e_node.test"), at+"/cwd/e2e_node.test")
	for name, text := range map[string]string{
		"kubelet.yaml": kubeletConfig, "spec.yaml": "os: Linux\nkernelSpec:\n  versions: ['.*']\n",
		"cwd/kubelet": kubelet.String() + "\n", // found beside e2e_node.test
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(at, name), []byte(text), 0o755))
	}
	return err
}

// pull waits for the runtime and pulls the images, so that no spec waits for that.
func pull(ctx context.Context, endpoint string, refs []string) error {
	client, err := crikit.Dial(crikit.Options{Endpoint: endpoint})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for _, ref := range refs {
		image := &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}}
		if _, err := client.Images().PullImage(ctx, image, grpc.WaitForReady(true)); err != nil {
			return fmt.Errorf("upstream: pull %s: %w", ref, err)
		}
	}
	return nil
}

// Config is what all nodes of a run have in common. Paths are absolute.
type Config struct {
	// Tree is the release's source tree, Suite the folder of its tests' programs, Debs that of the
	// unpacked packages.
	Tree, Suite, Debs string
	// Runtime is the runtime's programs, and the one that plays nmeter.
	Runtime components.Set
	// Out is the folder of the results, with a folder for each node.
	Out  string
	Seed int64
}

// Column is a kubelet under test.
type Column struct {
	Name, Binary string
	Gates        map[string]bool
}

// Part is a selection of specs, by regular expressions.
type Part struct {
	Name, Focus, Skip string
	// Procs is the number of specs at the same time, Within the time of all.
	Procs  int
	Within time.Duration
}

// Node is the run of a part on a column.
type Node struct {
	Config Config
	Column Column
	Part   Part
	Cgroup string // its name below the root of each hierarchy
}

// The stages of a node's program, as its first arguments.
const (
	Namespaces = "run-upstream-node"
	Suite      = "run-upstream-suite"
)

const at = machine.At

// units is the program that plays systemd.
//
//go:embed units.sh
var units []byte

//go:embed kubelet.yaml
var kubeletConfig string

const (
	nodeName = "e2enode"
	address  = "192.168.77.2" // on a bridge without a way out
)

// RunNode is the first process of a node's namespaces: it makes the node and runs [RunSuite] in it.
func RunNode(dir string) error {
	n, err := machine.Read[Node](dir)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("%s/bin:%s/usr/sbin:%s", at, n.Config.Debs, os.Getenv("PATH"))
	return machine.Machine{
		Keep: []string{filepath.Dir(n.Config.Debs)}, // the builds
		Dir:  dir, Cgroup: n.Cgroup, Name: nodeName, Address: address,
		IP: []string{
			"link set lo up", "link add eth0 type bridge", "addr add " + address + "/24 dev eth0",
			"link set eth0 up", "route add default via 192.168.77.1",
		},
		Command: []string{at + "/bin/self", Suite},
		Env:     []string{"PATH=" + path, "HOME=" + at + "/tmp", "TMPDIR=/tmp"},
	}.Run()
}

// startTime is the time for a node's start and end, beside that of the specs.
const startTime = 10 * time.Minute

// Run runs the specs and returns their results. Specs that fail are no error.
func (n *Node) Run(ctx context.Context) (results map[string]Result, err error) {
	name := n.Column.Name + "-" + n.Part.Name
	dir := filepath.Join(n.Config.Out, name)
	n.Cgroup = fmt.Sprintf("upstream-%d-%s", os.Getpid(), name)
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w (see %s)", name, err, dir)
		}
	}()
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "report"), 0o755)); err != nil {
		return nil, err
	}
	cmd, err := machine.Command(dir, n.Cgroup, Namespaces, n)
	if err != nil {
		return nil, err
	}
	defer func() { // the namespaces are gone with their first process, and the mounts with them
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, "c")))
	}()
	for _, program := range []string{"systemd-run", "systemctl", "journalctl", "sudo"} {
		if err := os.WriteFile(filepath.Join(dir, "bin", program), units, 0o755); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, n.Part.Within+startTime)
	defer cancel()
	process, err := control.Spawn(cmd, filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	if err := process.Wait(ctx); err != nil {
		return nil, err
	}
	return readResults(filepath.Join(dir, "report", "junit.xml"))
}
