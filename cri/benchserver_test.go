// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The benchmarks measure the client alone: the server is this test binary in another process, and
// sends pre-encoded messages. The environment selects the messages.
const (
	benchSocket = "CRI_BENCH_SOCKET"
	benchPods   = "CRI_BENCH_PODS"
	// changing is the header by which a client asks for 1 % of changed containers in each list.
	changing = "changing"
	// filled is the header by which a client asks for container statuses along with a sandbox's.
	filled = "filled"
)

// rawCodec sends and receives bytes on the server's side.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
func (rawCodec) Name() string { return "" }

// nodePod returns a sandbox and its containers with about as many labels, annotations and mounts as
// the kubelet sets.
func nodePod(pod, containers int, state runtimeapi.ContainerState) (*runtimeapi.PodSandbox, []*runtimeapi.Container) {
	uid := fmt.Sprintf("%08x-1c2d-4e5f-8a9b-%012x", pod, pod)
	name := fmt.Sprintf("workload-%d-7d9f8b6c5-%05x", pod%97, pod)
	namespace := fmt.Sprintf("team-%d", pod%17)
	sandboxID := fmt.Sprintf("%064x", uint64(pod)*2654435761+1)
	labels := map[string]string{
		labelPodUID: uid, labelPodName: name, labelPodNamespace: namespace,
		"app.kubernetes.io/name": "workload", "app.kubernetes.io/part-of": "platform", "pod-template-hash": "7d9f8b6c5",
	}
	sandbox := &runtimeapi.PodSandbox{
		Id: sandboxID, CreatedAt: 1700000000e9, Labels: labels, RuntimeHandler: "runc",
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Uid: uid, Namespace: namespace},
		Annotations: map[string]string{
			"kubernetes.io/config.seen": "2026-11-20T02:49:42.123456789Z", "kubernetes.io/config.source": "api",
			"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "checksum/config": strings.Repeat("0123456789abcdef", 4),
		},
	}
	var list []*runtimeapi.Container
	for i := range containers {
		list = append(list, &runtimeapi.Container{
			Id: fmt.Sprintf("%064x", uint64(pod*64+i)*11400714819323198485+7), PodSandboxId: sandboxID, State: state, CreatedAt: 1700000001e9,
			Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprintf("container-%d", i)},
			Image:    &runtimeapi.ImageSpec{Image: "sha256:" + strings.Repeat("ab", 32), UserSpecifiedImage: "registry.example.com/team/workload:v1.2.3"},
			ImageRef: "registry.example.com/team/workload@sha256:" + strings.Repeat("cd", 32), ImageId: "sha256:" + strings.Repeat("ab", 32),
			Labels: map[string]string{
				labelPodUID: uid, labelPodName: name, labelPodNamespace: namespace, "io.kubernetes.container.name": fmt.Sprintf("container-%d", i),
			},
			Annotations: map[string]string{
				annotationHash: "8f3c1d2e", annotationRestartCount: "0",
				"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
				"io.kubernetes.container.terminationMessagePolicy": "File",
				"io.kubernetes.pod.terminationGracePeriod":         "30",
				"io.kubernetes.container.ports":                    `[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"metrics","containerPort":9090,"protocol":"TCP"}]`,
				"io.kubernetes.container.preStopHandler":           `{"exec":{"command":["/bin/sh","-c","sleep 5 && kill -TERM 1 && while kill -0 1; do sleep 1; done"]}}`,
			},
		})
	}
	return sandbox, list
}

// encoded is a listing of a node as messages: each list in a single message, and in batches.
type encoded struct{ sandboxes, containers [][]byte }

// encodeNode encodes pods × 2 containers in random order, with map entries in random order, as
// containerd does. The first container of every hundredth pod has the given state.
func encodeNode(pods, batch int, special runtimeapi.ContainerState) (e encoded) {
	var sandboxes []*runtimeapi.PodSandbox
	var containers []*runtimeapi.Container
	for i := range pods {
		s, cs := nodePod(i, 2, running)
		if i%50 == 0 {
			cs[0].State = special
		}
		sandboxes, containers = append(sandboxes, s), append(containers, cs...)
	}
	rand.Shuffle(len(sandboxes), func(i, j int) { sandboxes[i], sandboxes[j] = sandboxes[j], sandboxes[i] })
	rand.Shuffle(len(containers), func(i, j int) { containers[i], containers[j] = containers[j], containers[i] })
	encode := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			panic(err)
		}
		return b
	}
	for part := range batches(sandboxes, batch) {
		e.sandboxes = append(e.sandboxes, encode(&runtimeapi.ListPodSandboxResponse{Items: part}))
	}
	for part := range batches(containers, batch) {
		e.containers = append(e.containers, encode(&runtimeapi.ListContainersResponse{Containers: part}))
	}
	return e
}

// nodeEvent returns an event of a container's life in a pod of two containers.
func nodeEvent(pod int, kind runtimeapi.ContainerEventType) *runtimeapi.ContainerEventResponse {
	s, cs := nodePod(pod, 2, running)
	e := &runtimeapi.ContainerEventResponse{
		ContainerId: cs[0].Id, ContainerEventType: kind, CreatedAt: 1700000002e9,
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id: s.Id, Metadata: s.Metadata, CreatedAt: s.CreatedAt, Labels: s.Labels, Annotations: s.Annotations, RuntimeHandler: "runc",
			Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::1"}}},
		},
	}
	for _, c := range cs {
		e.ContainersStatuses = append(e.ContainersStatuses, statusOf(c))
	}
	return e
}

// statusOf returns the status of a listed container.
func statusOf(c *runtimeapi.Container) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: c.Id, Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt, StartedAt: c.CreatedAt + 1, Image: c.Image, ImageRef: c.ImageRef,
		ImageId: c.ImageId, Labels: c.Labels, Annotations: c.Annotations, LogPath: "/var/log/pods/x/y/0.log",
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/etc/hosts", HostPath: "/var/lib/kubelet/pods/" + c.Labels[labelPodUID] + "/etc-hosts"},
			{ContainerPath: "/dev/termination-log", HostPath: "/var/lib/kubelet/pods/" + c.Labels[labelPodUID] + "/containers/x/0"},
			{ContainerPath: "/var/run/secrets/kubernetes.io/serviceaccount", HostPath: "/var/lib/kubelet/pods/" + c.Labels[labelPodUID] + "/volumes/t", Readonly: true},
		},
		Resources: &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuShares: 102, MemoryLimitInBytes: 1 << 28, OomScoreAdj: 999}},
	}
}

// encodeStatuses encodes the answers to status calls by ID, without the containers' statuses in the
// sandbox's, and with them.
func encodeStatuses(pods int) (answers [2]map[string][]byte) {
	answers[0], answers[1] = map[string][]byte{}, map[string][]byte{}
	for i := range pods {
		e := nodeEvent(i, 0)
		for filled, into := range answers {
			r := &runtimeapi.PodSandboxStatusResponse{Status: e.PodSandboxStatus}
			if filled == 1 {
				r.ContainersStatuses, r.Timestamp = e.ContainersStatuses, 1
			}
			into[r.Status.Id], _ = proto.Marshal(r)
			for _, c := range e.ContainersStatuses {
				into[c.Id], _ = proto.Marshal(&runtimeapi.ContainerStatusResponse{Status: c})
			}
		}
	}
	return answers
}

// benchServe is the server's process.
func benchServe(socket string) {
	pods, _ := strconv.Atoi(os.Getenv(benchPods))
	// The first two are the same state, encoded differently; in the others 1 % of the containers
	// have changed, and changed again.
	var plain, stream []encoded
	for _, special := range []runtimeapi.ContainerState{running, running, exited, created} {
		plain = append(plain, encodeNode(pods, 0, special))
		stream = append(stream, encodeNode(pods, 5000, special))
	}
	var events [][]byte
	for i := range min(pods, 1000) {
		b, err := proto.Marshal(nodeEvent(i, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT))
		if err != nil {
			panic(err)
		}
		events = append(events, b)
	}
	statuses := encodeStatuses(min(pods, 1000))
	var calls atomic.Uint64 // of container lists
	variant := func(ctx context.Context, list []encoded, n uint64) encoded {
		if md, _ := grpcmetadata.FromIncomingContext(ctx); len(md[changing]) > 0 {
			return list[2+n%2]
		}
		return list[n%2]
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.MaxSendMsgSize(1<<30), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		var req []byte
		if err := s.RecvMsg(&req); err != nil {
			return err
		}
		path, _ := grpc.MethodFromServerStream(s)
		var answer [][]byte
		switch path {
		case methodPaths[listPodSandbox]:
			answer = variant(s.Context(), plain, calls.Load()).sandboxes
		case methodPaths[streamPodSandboxes]:
			answer = variant(s.Context(), stream, calls.Load()).sandboxes
		case methodPaths[listContainers]:
			answer = variant(s.Context(), plain, calls.Add(1)).containers
		case methodPaths[streamContainers]:
			answer = variant(s.Context(), stream, calls.Add(1)).containers
		case methodPaths[podSandboxStatus], methodPaths[containerStatus]:
			md, _ := grpcmetadata.FromIncomingContext(s.Context())
			answer = [][]byte{statuses[len(md[filled])][string(req[2:])]}
		case methodPaths[getContainerEvents]:
			for i := 0; ; i++ {
				if err := s.SendMsg(events[i%len(events)]); err != nil {
					return err
				}
			}
		}
		for _, m := range answer {
			if err := s.SendMsg(m); err != nil {
				return err
			}
		}
		return nil
	}))
	listener, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() { // ends with the parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("ready")
	_ = server.Serve(listener)
}

// startBenchServer starts the server's process for a node of so many pods and returns its socket.
func startBenchServer(b *testing.B, pods int) string {
	b.Helper()
	socket := filepath.Join(b.TempDir(), "s")
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), benchSocket+"="+socket, fmt.Sprintf("%s=%d", benchPods, pods))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		b.Fatalf("the server said %q: %v", line, err)
	}
	return socket
}

// cpu returns the CPU time used by this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// dialBench returns a plain connection to the server, with the options of Client's own.
func dialBench(b *testing.B, socket string, options ...grpc.DialOption) *grpc.ClientConn {
	conn, err := grpc.NewClient("unix://"+socket, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}
