// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// agentImage is the image of the agent's containers.
const agentImage = "example.com/agent:1"

// agentPatience is how long the agent waits for an answer of the runtime's.
const agentPatience = 2 * time.Second

// fakeAgent makes the agent's own calls of the second tier, as CRI calls over a separate
// connection.
type fakeAgent struct {
	line callLine
	conn *grpc.ClientConn
	cri  runtimeapi.RuntimeServiceClient
	img  runtimeapi.ImageServiceClient

	limit atomic.Int64 // of memory, at the agent's last change of a container's resources
}

func newFakeAgent(conn *grpc.ClientConn) *fakeAgent {
	return &fakeAgent{
		conn: conn,
		cri:  runtimeapi.NewRuntimeServiceClient(conn),
		img:  runtimeapi.NewImageServiceClient(conn),
	}
}

// call makes a call of the agent, written as in the first tier, to the runtime. A failing call is
// not made; a timed-out call is made, and its answer is lost; takes=D delays the runtime's answer.
func (a *fakeAgent) call(w *world, f *fakeSide, what string, args []string) error {
	c, names, err := parseCall(what, args)
	if err != nil {
		return err
	}
	if what == "sandbox" {
		w.truth.Mention(cache.UID(names[0]))
	}
	name := names[len(names)-1]
	before, done := a.line.queue(name)
	var parent <-chan struct{}
	if what == "container" { // an agent has its sandbox before making a container in it
		var over chan struct{}
		parent, over = a.line.queue(names[0])
		close(over)
	}
	w.children.Go(func() {
		defer close(done)
		for _, other := range []<-chan struct{}{before, parent} {
			if other != nil {
				<-other
			}
		}
		if a.plan(w, f, &c, what, names) {
			c.begin(w)
			err := c.do()
			w.upset(
				time.Now(),
			) // done by the runtime, though unknown to the agent for as long as the call takes
			_ = sleep(w.ctx, c.takes)
			c.end(w, err)
			w.upset(time.Now())
		}
	})
	return nil
}

// plan fills in the effect of a call, and returns false if the subject was never made.
func (a *fakeAgent) plan(w *world, f *fakeSide, c *ownCall, what string, names []string) bool {
	name := names[len(names)-1]
	id := f.id(name)
	c.about.ID = id
	c.now.ID = id
	switch what {
	case "sandbox":
		c.pod = cache.UID(names[0])
	case "container":
		w.truth.refresh()
		c.pod, _ = w.truth.phaseOf(f.id(names[0]))
		c.now.Name = name
	}
	if c.makes {
		c.about = pleg.OwnCall{Pod: named(c.pod)}
		if id != "" || c.pod == "" {
			return false
		}
	} else if id == "" {
		return false
	}
	sandbox := f.id(names[0])
	c.work = func(telling) error {
		ctx, cancel := context.WithTimeout(w.ctx, agentPatience)
		defer cancel()
		made, err := a.send(ctx, c, what, sandbox, name)
		if made != "" {
			c.now.ID = made
			f.called(name, made)
		}
		return err
	}
	return true
}

// send makes the call to the runtime, and returns the ID of its product.
func (a *fakeAgent) send(ctx context.Context, c *ownCall, what, sandbox, name string) (made string, err error) {
	id := c.now.ID
	isSandbox := c.now.Kind == pleg.Sandbox
	labels := map[string]string{
		"io.kubernetes.pod.uid": string(
			c.pod,
		),
		"io.kubernetes.pod.name":      string(c.pod),
		"io.kubernetes.pod.namespace": "default",
	}
	pod := &runtimeapi.PodSandboxConfig{Labels: labels, Metadata: &runtimeapi.PodSandboxMetadata{
		Name: string(c.pod), Uid: string(c.pod), Namespace: "default", Attempt: attempt(name),
	}}
	switch {
	case what == "sandbox":
		r, err := a.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: pod})
		return r.GetPodSandboxId(), err
	case what == "container":
		image := &runtimeapi.ImageSpec{Image: agentImage, UserSpecifiedImage: agentImage}
		if _, err := a.img.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image}); err != nil {
			return "", err
		}
		r, err := a.cri.CreateContainer(
			ctx,
			&runtimeapi.CreateContainerRequest{
				PodSandboxId:  sandbox,
				SandboxConfig: pod,
				Config: &runtimeapi.ContainerConfig{
					Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: image, Labels: labels,
				},
			},
		)
		return r.GetContainerId(), err
	case what == "update":
		_, err = a.cri.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: id,
			Linux:       &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: a.limit.Add(1 << 20)},
		})
	case what == "start":
		_, err = a.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	case what == "stop" && isSandbox:
		_, err = a.cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	case what == "stop":
		_, err = a.cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 1})
	case isSandbox:
		_, err = a.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	default:
		_, err = a.cri.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	}
	return "", err
}

// attempt is a number for a sandbox's name, because runtimes want a unique name for each sandbox of
// a pod.
func attempt(name string) (n uint32) {
	for _, r := range strings.TrimPrefix(name, "s") {
		if r >= '0' && r <= '9' {
			n = 10*n + uint32(r-'0')
		}
	}
	return n
}
