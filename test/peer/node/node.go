// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Config says what a node has and how it behaves.
type Config struct {
	Pods, Containers int
	// Delay is how long each status call takes.
	Delay time.Duration
	// Streams says that the runtime has the streaming list calls; it answers them in batches of 5000 as
	// containerd does.
	Streams bool
}

// batch is the number of items in one message of a streaming list.
const batch = 5000

// takes is the number of different encodings of each list.
const takes = 2

// Node is the runtime. Make one with [New].
type Node struct {
	config Config
	turn   atomic.Uint64 // of lists, so that one differs from the next

	mu    sync.RWMutex // owns what follows
	pods  []Pod
	byUID map[string]int
	byID  map[string]place
	// encoded list items, tag included: sandboxes in pod order, containers in pod order
	items      [takes][2][][]byte
	shuffled   [takes][2][]int  // the order that lists show them in
	lists      [takes][2][]byte // the same as one message; nil if it must be made anew
	exited     int              // containers told to exit so far
	events     *events
	prepared   [][]byte // of the one who controls the node
	statusRPCs atomic.Int64
	listRPCs   atomic.Int64
}

// place is where an ID is: container n of a pod, or with -1 its sandbox.
type place struct{ pod, n int }

const (
	sandboxes = iota
	containers
)

// New makes the node.
func New(config Config) *Node {
	n := &Node{config: config, byUID: make(map[string]int), byID: make(map[string]place), events: newEvents()}
	for i := range config.Pods {
		p := newPod(i, config.Containers)
		n.pods = append(n.pods, p)
		n.byUID[p.UID] = i
		n.byID[p.Sandbox.Id] = place{i, -1}
		for k, c := range p.Containers {
			n.byID[c.Id] = place{i, k}
		}
	}
	random := rand.New(rand.NewPCG(1, uint64(config.Pods)))
	for t := range takes {
		for i := range n.pods {
			p := &n.pods[i]
			n.items[t][sandboxes] = append(n.items[t][sandboxes], item(p.Sandbox))
			for _, c := range p.Containers {
				n.items[t][containers] = append(n.items[t][containers], item(c))
			}
		}
		n.shuffled[t] = [2][]int{random.Perm(len(n.items[t][sandboxes])), random.Perm(len(n.items[t][containers]))}
	}
	return n
}

// UIDs returns the UIDs of the pods.
func (n *Node) UIDs() []string {
	uids := make([]string, len(n.pods))
	for i := range n.pods {
		uids[i] = n.pods[i].UID
	}
	return uids
}

// Exit makes the next containers exit: of a pod each, as far as there are pods. Every list and
// status shows it from now on.
func (n *Node) Exit(count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range min(count, n.config.Pods*n.config.Containers-n.exited) {
		at := place{n.exited % n.config.Pods, n.exited / n.config.Pods}
		n.exited++
		c := n.pods[at.pod].Containers[at.n]
		c.State = runtimeapi.ContainerState_CONTAINER_EXITED
		for t := range takes {
			n.items[t][containers][at.pod*n.config.Containers+at.n] = item(c)
		}
	}
	for t := range takes {
		n.lists[t][containers] = nil
	}
}

// item encodes an item of a list answer with its tag. Entries of maps come in another order every
// time.
func item(m proto.Message) []byte {
	raw := encode(m)
	b := protowire.AppendTag(make([]byte, 0, len(raw)+4), 1, protowire.BytesType)
	return protowire.AppendBytes(b, raw)
}

func encode(m proto.Message) []byte {
	raw, err := proto.Marshal(m)
	if err != nil {
		panic(err) // these messages are our own
	}
	return raw
}

// list returns everything of a kind as one message.
func (n *Node) list(kind int) []byte {
	n.listRPCs.Add(1)
	t := n.turn.Add(1) / 2 % takes
	n.mu.RLock()
	b := n.lists[t][kind]
	n.mu.RUnlock()
	if b != nil {
		return b
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	order := n.shuffled[t][kind]
	b = n.some(kind, int(t), order)
	n.lists[t][kind] = b
	return b
}

// some returns some items of a kind as one message. The caller holds mu.
func (n *Node) some(kind, take int, which []int) []byte {
	items, size := n.items[take][kind], 0
	for _, i := range which {
		size += len(items[i])
	}
	b := make([]byte, 0, size)
	for _, i := range which {
		b = append(b, items[i]...)
	}
	return b
}

// batches returns everything of a kind as the messages of a streaming list.
func (n *Node) batches(kind int) [][]byte {
	n.listRPCs.Add(1)
	t := int(n.turn.Add(1) / 2 % takes)
	n.mu.RLock()
	defer n.mu.RUnlock()
	var all [][]byte
	for rest := n.shuffled[t][kind]; len(rest) > 0; {
		k := min(batch, len(rest))
		all = append(all, n.some(kind, t, rest[:k]))
		rest = rest[k:]
	}
	return all
}

// matching returns the items of a kind that a filter by pod UID label, by ID, or by sandbox lets
// through.
func (n *Node) matching(kind int, uid, id, sandbox string) []byte {
	n.mu.RLock()
	defer n.mu.RUnlock()
	at, ok := place{-1, -1}, false
	switch {
	case uid != "":
		at.pod, ok = n.byUID[uid]
	case id != "":
		at, ok = n.byID[id]
	default:
		at, ok = n.byID[sandbox]
	}
	if !ok {
		return nil
	}
	if kind == sandboxes {
		return n.some(kind, 0, []int{at.pod})
	}
	var which []int
	for k := range n.config.Containers {
		if id == "" || k == at.n {
			which = append(which, at.pod*n.config.Containers+k)
		}
	}
	return n.some(kind, 0, which)
}

// status returns the encoded answer to a status call, nil if there is no such ID.
func (n *Node) status(id string) []byte {
	n.statusRPCs.Add(1)
	if n.config.Delay > 0 {
		time.Sleep(n.config.Delay)
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	at, ok := n.byID[id]
	if !ok {
		return nil
	}
	if p := &n.pods[at.pod]; at.n < 0 {
		return encode(&runtimeapi.PodSandboxStatusResponse{Status: p.sandboxStatus()})
	} else {
		return encode(&runtimeapi.ContainerStatusResponse{Status: p.containerStatus(at.n)})
	}
}

// Calls returns how many list calls, filtered ones aside, and status calls were answered so far.
func (n *Node) Calls() (lists, statuses int64) { return n.listRPCs.Load(), n.statusRPCs.Load() }
