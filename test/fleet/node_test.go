// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package fleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/criproxy"
	hostile "github.com/evented-pleg/evented-pleg/internal/hostile/runtime"
	"github.com/evented-pleg/evented-pleg/test/kubelet/control"
	"github.com/evented-pleg/evented-pleg/test/kubelet/machine"
	"github.com/evented-pleg/evented-pleg/test/kubelet/standalone"
	"github.com/evented-pleg/evented-pleg/test/node/components"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/daemon"
	"github.com/evented-pleg/evented-pleg/test/node/image"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// gateway is the cluster's own address, of its API server too.
const gateway = "10.99.0.1"

// Folders of a node's runtimes, the kubelet's and that for loads, and their sockets, which have the
// same names on each node. ownAlias is a name of the kubelet's that its configuration lacks.
const (
	ownBase      = machine.At + "/c"
	loadBase     = machine.At + "/b"
	ownEndpoint  = "unix://" + machine.At + "/own/cri.sock"
	ownAlias     = "unix://" + machine.At + "/alias/cri.sock"
	loadEndpoint = "unix://" + machine.At + "/load/cri.sock"
)

// hostileSocket is that of a hostile runtime before the kubelet's, for the watch alone.
const hostileSocket = machine.At + "/hostile.sock"

// watchedSockets are those that the folders of deploy/ name, by the family of the runtime. The
// proxy listens on all of the node's.
var watchedSockets = map[runtimes.Family][]string{
	runtimes.Containerd: {"/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock"},
	runtimes.CRIO:       {"/run/crio/crio.sock"},
}

// Lines by which the test commands a node.
const (
	dropExits      = "drop exits"
	holdStatistics = "hold statistics"
	holdLists      = "hold lists"
	denySocket     = "deny socket"
	poisonTexts    = "poison texts"
	killKubelet    = "kill kubelet"
	startKubelet   = "start kubelet"
)

// listMethods are the calls that list a runtime.
var listMethods = []string{"ListPodSandbox", "StreamPodSandboxes", "ListContainers", "StreamContainers"}

// Modes of the watched socket: a runtime's own, and one for its owner alone.
const (
	socketMode = 0o660
	deniedMode = 0o600
)

// node is a node of the cluster.
type node struct {
	Name string
	// Number is the last part of the node's address, and the third of its pods'.
	Number   int
	Programs programs
	// Runtime is the kubelet's runtime, and that for loads.
	Runtime components.Set

	dir      string
	process  *control.Process
	commands io.WriteCloser
	given    int // how many commands
}

func (n *node) address() string { return fmt.Sprintf("10.99.0.%d", n.Number) }

func (n *node) pods() string { return fmt.Sprintf("10.244.%d.0/24", n.Number) }

// start starts the node's namespaces and connects them to the cluster's network.
func (n *node) start(kubeconfig []byte) error {
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return err
	}
	cmd, err := machine.Command(n.dir, n.Name, firstStage, n)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(n.dir, "kubeconfig"), kubeconfig, 0o600); err != nil {
		return err
	}
	if n.commands, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if n.process, err = control.Spawn(cmd, filepath.Join(n.dir, "log")); err != nil {
		return err
	}
	err = machine.IP(fmt.Sprintf("link add %s type veth peer name eth0 netns %d", n.Name, cmd.Process.Pid),
		"link set "+n.Name+" master br0 up", fmt.Sprintf("route add %s via %s", n.pods(), n.address()))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(n.commands, "start")
	return err
}

// command has the node obey a line. At its return the node has: what the test does next must not
// overtake it.
func (n *node) command(line string) error {
	if _, err := fmt.Fprintln(n.commands, line); err != nil {
		return err
	}
	n.given++
	for range 300 {
		if _, err := os.Stat(filepath.Join(n.dir, obeyed(n.given))); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s has not obeyed %q in 30 s", n.Name, line)
}

// obeyed is the file in the node's folder that tells that its command of this number is done.
func obeyed(number int) string { return fmt.Sprint("obeyed-", number) }

// stop ends the node with everything in it.
func (n *node) stop() error {
	n.commands.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return n.process.Wait(ctx)
}

// runFirst is the first process of a node's namespaces.
func runFirst(dir string) error {
	if _, err := os.Stdin.Read(make([]byte, len("start\n"))); err != nil { // the network is there
		return err
	}
	n, err := machine.Read[*node](dir)
	if err != nil {
		return err
	}
	return machine.Machine{
		Dir: dir, Cgroup: n.Name, Name: n.Name, Address: n.address(), Keep: []string{n.Programs.Root},
		IP: []string{
			"link set lo up",
			"addr add " + n.address() + "/24 dev eth0",
			"link set eth0 up",
			"route add default via " + gateway,
		},
		Command: []string{machine.At + "/bin/self", nodeStage},
		Env:     []string{"PATH=" + os.Getenv("PATH"), "HOME=" + machine.At + "/tmp", "TMPDIR=/tmp"},
	}.Run()
}

// runInside runs the node's runtimes, proxy and kubelet until the end of its commands.
func runInside() error {
	n, err := machine.Read[*node](machine.At)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	own, err := n.runtimes(ctx)
	if err != nil {
		return err
	}
	proxy, err := n.proxy(own)
	if err != nil {
		return err
	}
	kubelet, err := n.kubelet()
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for given := 1; lines.Scan(); given++ {
		switch lines.Text() {
		case dropExits:
			proxy.Inject(criproxy.Fault{Method: "GetContainerEvents", Match: tellsExit, Do: criproxy.Drop{}})
		case holdStatistics:
			proxy.Inject(criproxy.Fault{Method: "ContainerStats", Do: criproxy.Hold{}})
		case holdLists:
			for _, method := range listMethods {
				proxy.Inject(criproxy.Fault{Method: method, Do: criproxy.Hold{}})
			}
		case denySocket:
			err = os.Chmod(n.watched()[0], deniedMode)
		case poisonTexts:
			proxy.Close()
			if err = serveHostile(own); err == nil {
				proxy, err = n.proxy(hostileSocket)
			}
		case killKubelet:
			err = kubelet.Kill()
		case startKubelet:
			kubelet, err = n.kubelet()
		default:
			err = fmt.Errorf("unknown command %q", lines.Text())
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(machine.At, obeyed(given)), nil, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// runtimes starts both runtimes, with the images of deploy/ in the kubelet's, and returns the
// kubelet's socket.
func (n *node) runtimes(ctx context.Context) (own string, err error) {
	if own, err = n.runtime(ctx, ownBase); err != nil {
		return "", err
	}
	if err := n.importImages(ctx, own); err != nil {
		return "", err
	}
	load, err := n.runtime(ctx, loadBase)
	if err != nil {
		return "", err
	}
	return own, errors.Join(
		link(own, socketOf(ownEndpoint)),
		link(own, socketOf(ownAlias)),
		link(load, socketOf(loadEndpoint)),
	)
}

func socketOf(endpoint string) string { return strings.TrimPrefix(endpoint, "unix://") }

// watched are the sockets of the node that the folders of deploy/ name.
func (n *node) watched() []string { return watchedSockets[n.Runtime.Runtime.Family] }

// proxy starts the proxy on the watched sockets, before the runtime at a socket. It ends with the
// node.
func (n *node) proxy(runtime string) (*criproxy.Proxy, error) {
	sockets := n.watched()
	if err := os.MkdirAll(filepath.Dir(sockets[0]), 0o711); err != nil {
		return nil, err
	}
	proxy, err := criproxy.Start(sockets[0], runtime)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(sockets[0], socketMode); err != nil {
		return nil, err
	}
	for _, socket := range sockets[1:] {
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if err := link(sockets[0], socket); err != nil {
			return nil, err
		}
	}
	return proxy, nil
}

// serveHostile serves the runtime at a socket with venom in its texts. It ends with the node.
func serveHostile(runtime string) error {
	conn, err := grpc.NewClient("unix:"+runtime, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", hostileSocket)
	if err != nil {
		return err
	}
	h := hostile.Runtime{Behind: conn}
	go func() { _ = h.Server().Serve(listener) }()
	return nil
}

// tellsExit reports whether a message is the event of an exit.
func tellsExit(message []byte) bool {
	var event runtimeapi.ContainerEventResponse
	return proto.Unmarshal(message, &event) == nil &&
		event.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
}

// link gives a socket another name, in a folder of its own.
func link(socket, name string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(name), 0o711), os.Link(socket, name))
}

// runtime starts a runtime below base, and returns its socket.
func (n *node) runtime(ctx context.Context, base string) (socket string, err error) {
	if err := os.Mkdir(base, 0o711); err != nil {
		return "", err
	}
	d, err := daemon.New(daemon.Config{Base: base, Components: n.Runtime, Image: image.DefaultRef})
	if err != nil {
		return "", err
	}
	for _, plugin := range []string{"bridge", "host-local", "loopback"} {
		if err := os.Symlink(filepath.Join(n.Programs.Debs, "usr/lib/cni", plugin), filepath.Join(base, "cni/bin", plugin)); err != nil {
			return "", err
		}
	}
	cni := fmt.Sprintf(
		`{"cniVersion": "1.0.0", "name": "fleet", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
  "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`,
		base+"/ipam",
		n.pods(),
	)
	if err := os.WriteFile(filepath.Join(base, "cni/conf/10-fleet.conflist"), []byte(cni), 0o644); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return socketOf(d.Endpoint()), d.Start(ctx)
}

// importImages brings the images of deploy/ to the kubelet's runtime. CRI-O pulls from the layout
// in the folder of an image's name, below its working directory.
func (n *node) importImages(ctx context.Context, socket string) error {
	for _, img := range n.Programs.Images {
		var err error
		if n.Runtime.Runtime.Family == runtimes.Containerd {
			err = daemon.Import(ctx, n.Runtime, "unix://"+socket, img.Docker)
		} else {
			err = pullLayout(ctx, socket, img)
		}
		if err != nil {
			return fmt.Errorf("import %s: %w", img.Ref, err)
		}
	}
	return nil
}

// pullLayout unpacks a layout for CRI-O, and has it pulled.
func pullLayout(ctx context.Context, socket string, img archived) error {
	name, _, _ := strings.Cut(img.Ref, ":")
	layout := filepath.Join(ownBase, name)
	if err := os.MkdirAll(layout, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("tar", "-C", layout, "-xf", img.OCI).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", img.OCI, err, out)
	}
	client, err := crikit.Dial(crikit.Options{Endpoint: "unix://" + socket})
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Images().PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: img.Ref}})
	return err
}

// loadSandboxes counts the sandboxes of the runtime for loads, from outside the node.
func (n *node) loadSandboxes(ctx context.Context) (int, error) {
	client, err := crikit.Dial(crikit.Options{Endpoint: strings.Replace(loadEndpoint, machine.At, n.dir, 1)})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	list, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	return len(list.GetItems()), err
}

// kubelet starts the node's kubelet on its runtime, in a folder of its own.
func (n *node) kubelet() (*control.Process, error) {
	config, err := standalone.Configuration(socketOf(ownEndpoint), map[string]any{
		"volumePluginDir":           "/var/lib/kubelet/plugins",
		"cgroupRoot":                "/",
		"nodeStatusUpdateFrequency": "2s",
		"nodeLeaseDurationSeconds":  10,
	})
	if err != nil {
		return nil, err
	}
	cwd := machine.At + "/kubelet-cwd"
	err = errors.Join(os.WriteFile(machine.At+"/kubelet.yaml", config, 0o644), os.MkdirAll(cwd, 0o755))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(
		filepath.Join(n.Programs.Kube, "kubelet"),
		"--config="+machine.At+"/kubelet.yaml",
		"--kubeconfig="+machine.At+"/kubeconfig",
		"--root-dir=/var/lib/kubelet",
		"--cert-dir=/var/lib/kubelet/pki",
		"--hostname-override="+n.Name,
		"--node-ip="+n.address(),
		"--node-labels=runtime="+string(n.Runtime.Runtime.Family),
	)
	cmd.Dir = cwd
	return control.Spawn(cmd, machine.At+"/kubelet.log")
}
