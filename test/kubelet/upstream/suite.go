// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package upstream

import (
	"context"
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
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

const images = "127.0.0.1:5555"

// RunSuite runs the specs in a node made by [RunNode].
func RunSuite(ctx context.Context) error {
	n, err := readNode(at)
	if err != nil {
		return err
	}
	refs, err := references(n.Config.Tree)
	if err != nil {
		return err
	}
	runtime := containerd
	if n.Config.Runtime.Runtime.Family == runtimes.CRIO {
		runtime = crio
	}
	if err := n.configure(runtime, pauseOf(refs)); err != nil {
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
	if err := newUnit(runtime.unit, at+"/runtime.log", runtime.command(n.Config)); err != nil {
		return err
	}
	go func() { // Restart=always
		for range time.Tick(time.Second) {
			_ = unit(filepath.Join(unitsDir, runtime.unit)).start()
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
		"--container-runtime-process-name="+strings.TrimSuffix(runtime.unit, ".service"),
		"--prepull-images=false", "--report-dir="+at+"/report", "--server-start-timeout=8m",
		"--kubelet-config-file="+at+"/kubelet.yaml", "--system-spec-file="+at+"/spec.yaml")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err = cmd.Run(); errors.As(err, new(*exec.ExitError)) {
		return nil // a spec has failed, or more: the report says
	}
	return err
}

// configure writes the files of the runtime, CNI, the kubelet and the suite.
func (n *Node) configure(runtime service, pause string) error {
	var kubelet strings.Builder
	kubelet.WriteString("#!/bin/sh\nexec " + n.Column.Binary + ` "$@"`)
	for gate, on := range n.Column.Gates { // in the file they would be the suite's too
		fmt.Fprintf(&kubelet, " --feature-gates=%s=%v", gate, on)
	}
	err := runtime.configure(n.Config, pause)
	suite := filepath.Join(n.Config.Suite, "e2e_node.test")
	errs := []error{err, os.Symlink(suite, at+"/cwd/e2e_node.test")}
	for name, text := range map[string]string{
		"cni/10-e2e.conflist": cniConfig, "kubelet.yaml": kubeletConfig,
		"spec.yaml":   "os: Linux\nkernelSpec:\n  versions: ['.*']\n",
		"cwd/kubelet": kubelet.String() + "\n", // found beside e2e_node.test
	} {
		errs = append(errs, os.WriteFile(filepath.Join(at, name), []byte(text), 0o755))
	}
	return errors.Join(errs...)
}

// pull waits for the runtime and pulls the images, so that no spec waits for that.
func pull(ctx context.Context, endpoint string, refs []string) error {
	insecure := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient(endpoint, insecure)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	service := runtimeapi.NewImageServiceClient(conn)
	for _, ref := range refs {
		image := &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}}
		if _, err := service.PullImage(ctx, image, grpc.WaitForReady(true)); err != nil {
			return fmt.Errorf("upstream: pull %s: %w", ref, err)
		}
	}
	return nil
}

const cniConfig = `{"cniVersion": "1.0.0", "name": "e2e", "plugins": [{
  "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
  "ipam": {
    "type": "host-local", "dataDir": "` + at + `/c/ipam",
    "ranges": [[{"subnet": "10.100.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]
  }
}]}
`

// kubeletConfig is the suite's own for cgroup v1 and cgroupfs, without a firewall.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupRoot: /
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
volumeStatsAggPeriod: 10s
serializeImagePulls: false
fileCheckFrequency: 10s
podCIDR: 10.100.0.0/24
evictionPressureTransitionPeriod: 30s
evictionHard: {memory.available: 250Mi, nodefs.available: 5%, nodefs.inodesFree: 5%}
evictionMinimumReclaim: {nodefs.available: 5%, nodefs.inodesFree: 5%}
enforceNodeAllocatable: []
makeIPTablesUtilChains: false
resolvConf: /etc/resolv.conf
volumePluginDir: /var/lib/kubelet/volumeplugins
`
