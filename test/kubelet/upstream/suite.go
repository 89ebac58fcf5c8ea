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
	"text/template"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	images         = "127.0.0.1:5555"
	socket         = at + "/c/c.sock"
	containerdUnit = "containerd.service"
)

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
	if err := n.configure(pauseOf(refs)); err != nil {
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
	daemon := []string{n.Config.Containerd + "/containerd", "--config", at + "/c/config.toml"}
	if err := newUnit(containerdUnit, at+"/containerd.log", daemon); err != nil {
		return err
	}
	go func() { // Restart=always
		for range time.Tick(time.Second) {
			_ = unit(filepath.Join(unitsDir, containerdUnit)).start()
		}
	}()
	if err := pull(ctx, refs); err != nil {
		return err
	}
	const endpoint = "unix://" + socket
	cmd := exec.Command(filepath.Join(n.Config.Suite, "ginkgo"),
		fmt.Sprint("-procs=", n.Part.Procs), "--focus="+n.Part.Focus, "--skip="+n.Part.Skip,
		fmt.Sprint("--timeout=", n.Part.Within), fmt.Sprint("--seed=", n.Config.Seed),
		"--no-color", "--silence-skips", "--junit-report=junit.xml", "--output-dir="+at+"/report",
		"./e2e_node.test", "--", "--node-name="+nodeName,
		"--container-runtime-endpoint="+endpoint, "--image-service-endpoint="+endpoint,
		"--prepull-images=false", "--report-dir="+at+"/report", "--server-start-timeout=8m",
		"--kubelet-config-file="+at+"/kubelet.yaml", "--system-spec-file="+at+"/spec.yaml")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err = cmd.Run(); errors.As(err, new(*exec.ExitError)) {
		return nil // a spec has failed, or more: the report says
	}
	return err
}

// configure writes the files of containerd, CNI, the kubelet and the suite.
func (n *Node) configure(pause string) error {
	var kubelet strings.Builder
	kubelet.WriteString("#!/bin/sh\nexec " + n.Column.Binary + ` "$@"`)
	for gate, on := range n.Column.Gates { // in the file they would be the suite's too
		fmt.Fprintf(&kubelet, " --feature-gates=%s=%v", gate, on)
	}
	var config strings.Builder
	err := containerdConfig.Execute(&config, map[string]any{
		"At": at, "Containerd": n.Config.Containerd, "Debs": n.Config.Debs, "Pause": pause,
		"Handlers": []string{"runc", "test-handler"},
	})
	suite := filepath.Join(n.Config.Suite, "e2e_node.test")
	errs := []error{err, os.Symlink(suite, at+"/cwd/e2e_node.test")}
	for name, text := range map[string]string{
		"c/config.toml": config.String(), "c/certs.d/_default/hosts.toml": hosts,
		"cni/10-e2e.conflist": cniConfig, "kubelet.yaml": kubeletConfig,
		"spec.yaml":   "os: Linux\nkernelSpec:\n  versions: ['.*']\n",
		"cwd/kubelet": kubelet.String() + "\n", // found beside e2e_node.test
	} {
		errs = append(errs, os.WriteFile(filepath.Join(at, name), []byte(text), 0o755))
	}
	return errors.Join(errs...)
}

const hosts = "[host.\"http://" + images + "\"]\n  capabilities = [\"pull\", \"resolve\"]\n"

// pull waits for containerd and pulls the images, so that no spec waits for that.
func pull(ctx context.Context, refs []string) error {
	insecure := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient("unix://"+socket, insecure)
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

var containerdConfig = template.Must(template.New("config.toml").Parse(`version = 3
root = '{{.At}}/c/root'
state = '{{.At}}/c/state'
imports = []
disabled_plugins = ['io.containerd.nri.v1.nri']
[grpc]
  address = '{{.At}}/c/c.sock'
[ttrpc]
  address = '{{.At}}/c/c.sock.ttrpc'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = '{{.At}}/c/certs.d'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '{{.Pause}}'
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
{{- range $handler := .Handlers}}
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{{$handler}}]
    runtime_type = 'io.containerd.runc.v2'
    runtime_path = '{{$.Containerd}}/containerd-shim-runc-v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{{$handler}}.options]
      BinaryName = '{{$.Debs}}/usr/sbin/runc'
      Root = '{{$.At}}/c/runc'
{{- end}}
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{{.Debs}}/usr/lib/cni']
    conf_dir = '{{.At}}/cni'
[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = '127.0.0.1'
  stream_server_port = '0'
[plugins.'io.containerd.internal.v1.opt']
  path = '{{.At}}/c/opt'
[plugins.'io.containerd.shim.v1.manager']
  socket_dir = '{{.At}}/c/s'
`))

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
