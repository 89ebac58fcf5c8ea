// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// reported is a node as a public report describes it, with an agent: what the runtime's lists show
// and what its statuses show are apart.
type reported struct {
	*stub
	t          *testing.T
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*runtimeapi.ContainerStatus
	missing    codes.Code // of the answer about an ID that is not there

	client   *Client
	plain    *pleg.Generator[PodStatus]
	statuses *cache.Cache[PodStatus]

	toldMu sync.Mutex
	told   []string
}

// onReported runs f beside an agent on a node, ten seconds after its start. The runtime has no
// events, or, if silent, a stream that tells nothing.
func onReported(t *testing.T, silent bool, set func(n *reported), f func(n *reported)) {
	synctest.Test(t, func(t *testing.T) {
		n := &reported{
			stub: &stub{}, t: t, missing: codes.NotFound,
			sandboxes:  make(map[string]*runtimeapi.PodSandboxStatus),
			containers: make(map[string]*runtimeapi.ContainerStatus),
		}
		n.podSandboxStatus = func(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			s := n.sandboxes[id]
			if s == nil {
				return nil, status.Error(n.missing, "No such sandbox: "+id)
			}
			return &runtimeapi.PodSandboxStatusResponse{Status: s}, nil
		}
		n.containerStatus = func(id string) (*runtimeapi.ContainerStatusResponse, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			s := n.containers[id]
			if s == nil {
				return nil, status.Error(n.missing, "No such container: "+id)
			}
			return &runtimeapi.ContainerStatusResponse{Status: s}, nil
		}
		set(n)
		n.client = serve(t, n.stub, Config{})
		if silent {
			n.on("GetContainerEvents", hang)
		}
		n.statuses = cache.New(EmptyStatus)
		n.plain = must(pleg.New(pleg.Config[PodStatus]{
			Source: n.client, Stream: n.client, Cache: n.statuses, Merge: KeepIPs, Same: SameStatus,
		}))(t)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = n.plain.Run(ctx) })
		running.Go(func() {
			for e := range n.plain.Watch() {
				n.toldMu.Lock()
				n.told = append(n.told, fmt.Sprintf("%s %s", e.Type, e.ID))
				n.toldMu.Unlock()
			}
		})
		time.Sleep(10 * time.Second)
		f(n)
		cancel()
		running.Wait()
	})
}

func (n *reported) shows(uid string) string {
	s, err := n.statuses.Get(cache.UID(uid))
	text := s.String()
	if err != nil {
		text += " error: " + err.Error()
	}
	return text
}

func (n *reported) events() []string {
	n.toldMu.Lock()
	defer n.toldMu.Unlock()
	told := n.told
	n.told = nil
	return told
}

func (n *reported) reads() int { return n.called("PodSandboxStatus") + n.called("ContainerStatus") }

func (n *reported) pod(uid string, listed, shown runtimeapi.PodSandboxState) {
	n.stub.sandboxes = append(n.stub.sandboxes, sandbox("s-"+uid, uid, listed))
	n.sandboxes["s-"+uid] = sandboxStatus("s-"+uid, uid, shown)
}

func (n *reported) container(uid string, listed, shown runtimeapi.ContainerState) {
	n.stub.containers = append(n.stub.containers, container("c-"+uid, "s-"+uid, uid, listed))
	n.containers["c-"+uid] = wholeContainer("c-"+uid, uid, shown)
}

// TestOddNodes: what the runtimes of public reports show stays in the cache as it is shown, Watch
// tells of it once, and a runtime that shows the same is not asked for it without end.
func TestOddNodes(t *testing.T) {
	again := func(n *reported, state runtimeapi.ContainerState) {
		n.set(func() {
			n.stub.containers = []*runtimeapi.Container{container("c-a", "s-a", "a", state)}
			n.containers["c-a"] = wholeContainer("c-a", "a", state)
		})
		time.Sleep(6 * time.Minute) // a silent stream has a list every five
	}
	for _, silent := range []bool{true, false} {
		for _, x := range []struct {
			name string
			set  func(n *reported)
			then func(n *reported)
			want string
			told []string
		}{
			// containerd 11029
			{"a container runs on without its sandbox", func(n *reported) {
				n.pod("a", notReady, notReady)
				n.container("a", running, running)
			}, nil, "ns/pod-a(a) ips=[] sandbox:s-a=Exited name-c-a:c-a=Running", []string{"ContainerDied s-a", "ContainerStarted c-a"}},
			// cri-o 8401, containerd 7988: the sandbox could not be loaded after a restart
			{"a container of a sandbox that is not there", func(n *reported) {
				n.stub.containers = append(n.stub.containers, container("c-a", "s-a", "a", running))
				n.containers["c-a"] = wholeContainer("c-a", "a", running)
			}, nil, "ns/pod-a(a) ips=[] name-c-a:c-a=Running", []string{"ContainerStarted c-a"}},
			// kubernetes 22541 and 75065: docker has another error for what is not there
			{"a removed container has an error that is not NotFound", func(n *reported) {
				n.missing = codes.Unknown
				n.pod("a", ready, ready)
				n.container("a", exited, exited)
			}, func(n *reported) {
				n.set(func() {
					n.stub.containers = nil
					delete(n.containers, "c-a")
				})
				time.Sleep(6 * time.Minute)
			}, "ns/pod-a(a) ips=[] sandbox:s-a=Running", []string{"ContainerStarted s-a", "ContainerDied c-a", "ContainerRemoved c-a"}},
			// cri-o 7004: a restart of the runtime brings an ended container back; kubernetes 31092: docker
			// starts a container again
			{"an ended container runs again, and ends", func(n *reported) {
				n.pod("a", ready, ready)
				n.container("a", exited, exited)
			}, func(n *reported) {
				again(n, running)
				if got, want := n.shows("a"), "ns/pod-a(a) ips=[] sandbox:s-a=Running name-c-a:c-a=Running"; got != want {
					n.t.Errorf("the cache shows %s, want %s", got, want)
				}
				again(n, exited)
			}, "ns/pod-a(a) ips=[] sandbox:s-a=Running name-c-a:c-a=Exited", []string{"ContainerStarted s-a", "ContainerDied c-a", "PodSync ", "PodSync "}},
		} {
			t.Run(fmt.Sprint(x.name, "/events=", silent), func(t *testing.T) {
				onReported(t, silent, x.set, func(n *reported) {
					if x.then != nil {
						x.then(n)
					}
					time.Sleep(10 * time.Minute)
					before := n.reads()
					time.Sleep(10 * time.Minute)
					if reads := n.reads() - before; reads > 10 {
						t.Errorf("%d statuses were read in ten minutes", reads)
					}
					if got := n.shows("a"); got != x.want {
						t.Errorf("the cache shows %s, want %s", got, x.want)
					}
					if told := n.events(); !slices.Equal(told, x.told) {
						t.Errorf("told %v, want %v", told, x.told)
					}
					if s := n.plain.Stats(); silent && s.RelistPeriod != 5*time.Minute {
						t.Errorf("a list every %v", s.RelistPeriod)
					}
				})
			})
		}
	}
}
