// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/unshare"
)

// Versions of the cluster's parts.
const (
	operator = "v0.85.0" // of Prometheus, for its definitions
	release  = "v0.1.0"  // of the image, as deploy/base names it
)

// kubernetes is the version of the control plane and the kubelets.
func kubernetes() string { return cmp.Or(os.Getenv("KUBE_VERSION"), "v1.36.3") }

// programs are the paths of everything that runs in the cluster. All are absolute.
type programs struct {
	// Root is the repository's root, Kube the folder of Kubernetes' programs, Debs that of the
	// unpacked packages, CRDs that of the definitions of Prometheus' operator.
	Root, Kube, Debs, CRDs string
	// Bench is pleg-bench, Agent pleg-agent.
	Bench, Agent string
	// Images are those of both.
	Images []archived

	Containerd, CRIO components.Set
	// Measured are the runtimes of TestStored, by name.
	Measured map[string]components.Set
}

// archived is an image in files.
type archived struct {
	// Ref is its name. Docker is docker's archive, OCI an archive of an OCI layout.
	Ref, Docker, OCI string
}

// Environment by which a stage of this program is recognized.
const (
	envPrograms = "FLEET_PROGRAMS" // of the tests, in the cluster's network
	firstStage  = "run-fleet-node" // argument of a node's first process
	nodeStage   = "run-fleet-node-inside"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case firstStage:
			exit(runFirst(os.Args[2]))
		case nodeStage:
			exit(runInside())
		}
	}
	flag.Parse()
	os.Exit(unshare.Main(func() int {
		if os.Getenv(envPrograms) != "" {
			return m.Run()
		}
		if err := runTests(); err != nil {
			fmt.Fprintln(os.Stderr, "fleet:", err)
			return unshare.ExitFailed
		}
		return 0
	}))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(unshare.ExitFailed)
	}
	os.Exit(0)
}

// runTests makes the programs and runs the tests in a network of their own.
func runTests() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p, err := build(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), envPrograms+"="+string(text))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	return cmd.Run()
}

// build makes the programs, unless they are there.
func build(ctx context.Context) (p programs, err error) {
	if p.Root, err = components.FindRoot(); err != nil {
		return p, err
	}
	under := func(path string) string { return filepath.Join(p.Root, "build", path) }
	p.Kube, p.Debs, p.CRDs = under("apiserver/"+kubernetes()), under("debs"), under("fleet/crds")
	p.Bench = under("fleet/pleg-bench-" + release + "-linux-amd64")
	p.Agent = under("fleet/pleg-agent-" + release + "-linux-amd64")
	p.Images = []archived{
		{benchImage, p.Bench + ".docker.tar", under("fleet/pleg-bench-" + release + ".oci.tar")},
		{agentImage, p.Agent + ".docker.tar", under("fleet/pleg-agent-" + release + ".oci.tar")},
	}
	for name, set := range map[string]*components.Set{"containerd": &p.Containerd, "crio": &p.CRIO} {
		if *set, err = p.runtime(ctx, name); err != nil {
			return p, err
		}
	}
	p.Measured = make(map[string]components.Set)
	for name := range strings.SplitSeq(strings.Replace(*measured, "all", allMeasured, 1), ",") {
		if p.Measured[name], err = p.runtime(ctx, name); err != nil {
			return p, err
		}
	}
	if err := components.Unpack(ctx, p.Debs, "runc", "containernetworking-plugins", "prometheus"); err != nil {
		return p, err
	}
	return p, components.Script(ctx, os.Stderr, "test/fleet/build", kubernetes(), release, operator)
}

// runtime builds a runtime, with a runc that has seccomp, for the profiles of deploy/.
func (p *programs) runtime(ctx context.Context, name string) (components.Set, error) {
	set, err := components.Build(ctx, name, os.Stderr)
	set.RuncDir = filepath.Join(p.Debs, "usr/sbin")
	return set, err
}
