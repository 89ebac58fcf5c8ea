// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && e2e

package suite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/criproxy"
	"github.com/evented-pleg/evented-pleg/test/node/daemon"
	"github.com/evented-pleg/evented-pleg/test/node/runtimes"
)

// A Node is a runtime with a proxy and a client.
type Node struct {
	*crikit.Client // plays the other side: creates, stops, removes, tells the truth

	// Daemon is the private runtime; nil on an existing runtime.
	Daemon *daemon.Daemon
	// Proxy stands between the agents and the runtime.
	Proxy *criproxy.Proxy
	// Traits are the runtime's differences from others.
	Traits runtimes.Traits

	t      *T
	agents int
}

// startLimit bounds starts and stops of the runtime and the agent.
const startLimit = 2 * time.Minute

// NewNode starts a runtime, or uses the runtime in place, with a proxy in front. Everything goes
// away with the scenario.
func (t *T) NewNode() *Node {
	n := &Node{t: t, Traits: t.env.kind.Traits}
	socket, cgroup := *endpoint, ""
	if socket == "" {
		private, err := daemon.New(daemon.Config{Base: t.Dir, Components: t.env.set, Image: t.env.image})
		t.Check(err)
		n.Daemon = private
		t.Cleanup(n.stopForGood)
		ctx, cancel := context.WithTimeout(t.ctx, startLimit)
		defer cancel()
		t.Check(private.Start(ctx))
		socket, cgroup = private.Endpoint(), "/"+filepath.Base(t.Dir)
	}
	client, err := crikit.Dial(crikit.Options{
		Endpoint: socket, Image: t.env.image, CgroupParent: cgroup,
		Namespace: fmt.Sprintf("%s-%s", filepath.Base(run.dir), filepath.Base(t.Dir)),
	})
	t.Check(err)
	n.Client = client
	t.Cleanup(n.removePods)
	version, err := client.RuntimeServiceClient.Version(t.ctx, &runtimeapi.VersionRequest{})
	t.Check(err)
	t.env.version = display(version)
	n.Proxy, err = criproxy.Start(filepath.Join(t.Dir, "p.sock"), strings.TrimPrefix(socket, "unix://"))
	t.Check(err)
	t.Cleanup(n.Proxy.Close)
	return n
}

// removePods removes the scenario's pods, and first starts a runtime left down.
func (n *Node) removePods() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.ctx), startLimit)
	defer cancel()
	defer n.Client.Close()
	if n.Daemon != nil && !n.Daemon.Alive() {
		if err := n.Daemon.Start(ctx); err != nil {
			n.t.Logf("start the runtime to remove the pods: %v", err)
			return
		}
	}
	if err := n.RemoveAll(ctx); err != nil {
		n.t.Logf("remove the pods: %v", err)
	}
}

// stopForGood stops the runtime. What that leaves goes with the run.
func (n *Node) stopForGood() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.ctx), startLimit)
	defer cancel()
	if err := n.Daemon.Stop(ctx, syscall.SIGTERM); err != nil {
		n.t.Errorf("stop the runtime: %v", err)
	}
}

// RestartRuntime stops the runtime with the signal and starts the runtime again.
func (n *Node) RestartRuntime(signal syscall.Signal) {
	n.StopRuntime(signal)
	n.StartRuntime()
}

// StopRuntime stops the runtime with the signal. Containers live on.
func (n *Node) StopRuntime(signal syscall.Signal) {
	ctx, cancel := context.WithTimeout(n.t.ctx, startLimit)
	defer cancel()
	n.t.Check(n.Daemon.Stop(ctx, signal))
}

// StartRuntime starts the runtime again and waits for an answer.
func (n *Node) StartRuntime() {
	ctx, cancel := context.WithTimeout(n.t.ctx, startLimit)
	defer cancel()
	n.t.Check(n.Daemon.Start(ctx))
}

// Pod runs a pod.
func (n *Node) Pod(name string) *crikit.Pod {
	pod, err := n.RunPod(n.t.ctx, n.UID(name), name, 0)
	n.t.Check(err)
	return pod
}

// UID is the UID of the named pod: unique to the run on a shared runtime.
func (n *Node) UID(name string) string { return n.Namespace + "-" + name }

// Container creates and starts a container.
func (n *Node) Container(pod *crikit.Pod, name string, args ...string) string {
	id, err := n.CreateAndStart(n.t.ctx, pod, crikit.Spec{Name: name, Args: args})
	n.t.Check(err)
	return id
}

// Mortal creates and starts a container that runs until [Node.End], and returns its ID and its PID.
func (n *Node) Mortal(pod *crikit.Pod, name string, code int32) (id string, pid int) {
	id = n.Container(pod, name, "sleep", "1h", fmt.Sprint(code))
	return id, n.pidOf(id)
}

// End lets the program of a Mortal end with its code, and waits until the end is kept for a runtime
// that may be down.
func (n *Node) End(id string, pid int) {
	n.t.Eventually(settle, "the program ends", func() error {
		// Again and again, since a young program does not hear the signal.
		if err := syscall.Kill(pid, syscall.SIGUSR1); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("process %d is there: %v", pid, err)
		}
		return nil
	})
	if !n.Traits.KeeperTells { // the container's own keeper writes the code and goes
		n.t.Eventually(settle, "the keeper ends", func() error {
			if pid, found := n.findKeeper(id); found {
				return fmt.Errorf("process %d is there", pid)
			}
			return nil
		})
	}
}

// Exited waits until the runtime reports the container as exited.
func (n *Node) Exited(id string) *runtimeapi.ContainerStatus {
	ctx, cancel := context.WithTimeout(n.t.ctx, startLimit)
	defer cancel()
	status, err := n.WaitState(ctx, id, runtimeapi.ContainerState_CONTAINER_EXITED)
	n.t.Check(err)
	return status
}

// MustTruth returns Truth; an error ends the scenario.
func (n *Node) MustTruth() []bench.Pod {
	truth, err := n.Truth(n.t.ctx)
	n.t.Check(err)
	return truth
}

// A recorder judges the runtime's stream.
type recorder struct {
	mu     sync.Mutex // owns the fields below
	judge  *stream.Judge
	events int
	stale  []stream.Event // those with a phase before an earlier event's
}

// message takes a message of the stream.
func (r *recorder) message(raw []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.judge.Event(time.Now(), raw)
	r.events++
	if hasFlaw(e, stream.StalePayload) || hasFlaw(e, stream.Contradicting) || hasFlaw(e, stream.Reordered) {
		r.stale = append(r.stale, e)
	}
}

func hasFlaw(e stream.Event, f stream.Flaw) bool {
	return slices.ContainsFunc(e.Flaws, func(text string) bool { return strings.HasPrefix(text, string(f)) })
}

// soFar returns the number of events, and the stale events.
func (r *recorder) soFar() (events int, stale []stream.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events, slices.Clone(r.stale)
}

// Record judges the runtime's stream until the scenario ends: with a separate subscription, or, on
// a runtime with a single subscriber for each event, by observing the proxy's traffic to the
// scenario's only agent.
func (n *Node) Record() *recorder {
	r := &recorder{judge: stream.New(0)}
	n.t.Cleanup(func() {
		if _, stale := r.soFar(); len(stale) > 0 {
			n.t.Figure("stale payloads seen", "%d", len(stale))
		}
	})
	if n.Traits.SharedStream && n.agents > 0 {
		tap := func(message []byte) bool {
			r.message(message)
			return false
		}
		n.Proxy.Inject(criproxy.Fault{Method: eventStream, Match: tap, Do: criproxy.Drop{}})
		return r
	}
	ctx, cancel := context.WithCancel(n.t.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = n.Listen(ctx, func(e *runtimeapi.ContainerEventResponse) {
			raw, _ := proto.Marshal(e) // it was unmarshalled
			r.message(raw)
		})
	}()
	n.t.Cleanup(func() { cancel(); <-ended })
	return r
}
