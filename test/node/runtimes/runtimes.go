// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package runtimes describes the container runtimes of the node e2e tests: their sources, and their
// differences.
//
// # Model
//
// A [Runtime] is plain data. Package components builds it, package daemon starts it, and package
// suite asks [Traits] where a scenario depends on the runtime: no scenario asks for a name. Traits
// were observed on the named version; the scenario that reads a trait fails where it is untrue.
//
// # Concurrency
//
// Plain values; the table does not change.
package runtimes

import (
	"fmt"
	"strings"
)

// A Family is a program, whatever its version.
type Family string

// The families.
const (
	Containerd Family = "containerd"
	CRIO       Family = "cri-o"
)

// A Runtime is a container runtime that the tests build and run.
type Runtime struct {
	// Name is the NAME of `make runtime`.
	Name string
	// Family selects build, configuration and start.
	Family Family
	// Module and Version are where the module registry has its source.
	Module, Version string
	// Built is the name of the runtime with the same programs and another configuration. Empty: its
	// own.
	Built string
	// Profile is the matching profile of the fake runtime.
	Profile string
	// Traits are the runtime's behavior.
	Traits Traits
}

// Traits are the differences between runtimes that scenarios depend on.
type Traits struct {
	// Events: the runtime has an event stream, and the stream is on.
	Events bool
	// SandboxEvents is the number of events of a sandbox run, stopped and removed, each by its call.
	SandboxEvents int
	// SharedStream: each event goes to a single subscriber.
	SharedStream bool
	// StalledSubscriber is the effect of an idle subscriber on others.
	StalledSubscriber Stall
	// CreateFails: a missing command fails in CreateContainer, which leaves nothing; otherwise in
	// StartContainer, which leaves an exited container, without an event.
	CreateFails bool
	// StreamingLists: StreamContainers and StreamPodSandboxes are implemented.
	StreamingLists bool
	// Keeper is a word in the command line of the process that keeps a sandbox or a container,
	// beside the ID.
	Keeper string
	// KeeperTells: a sandbox has a keeper, and at its death the runtime ends the sandbox and its
	// container. Otherwise each container has a keeper, and after its death the runtime still shows
	// the old state.
	KeeperTells bool
	// KeeperHangsLists: while a keeper does not answer a change of its container's resources, every
	// list hangs (containerd/containerd#9770). From containerd 2 on it waits for a shim for 2 s.
	KeeperHangsLists bool
	// EndsTogether: after the death of a keeper the ends of its sandbox and container are shown within
	// milliseconds, in either order. Otherwise the sandbox's comes a second and more before.
	EndsTogether bool
	// LosesQuickOOMs: a container that runs out of memory within milliseconds of its start may be
	// shown as ended by an Error for good. The shim watches the cgroup only after the start (containerd
	// before 2.2).
	LosesQuickOOMs bool
	// NewestFirst: the payload of an event has the pod's containers in this order. Otherwise they
	// are in no order.
	NewestFirst bool
	// RemovalRaces: at the removal of a running container its STOPPED may be read beside the
	// removal, so the payload lacks the container.
	RemovalRaces bool
	// LateStops: STOPPED comes ten milliseconds and more after its container's finished_at, always.
	LateStops bool
	// StopNowCodes are the exit codes of a container that takes SIGTERM and ends with 143 then, when
	// stopped without a timeout; 2 is the code of a Go program before it listens.
	StopNowCodes []int32
	// SandboxProcess: a pod has a process although its containers have their own PID namespaces.
	SandboxProcess bool
	// SandboxStatsKill: ListPodSandboxStats can end the runtime while pods come and go (CRI-O
	// 1.36.3: a nil pointer in statsserver.updateSandbox). The tests leave the call out then.
	SandboxStatsKill bool
	// ForgetsExits: a container that ends while the runtime starts may be shown as running until
	// stopped (CRI-O 1.36.3 reads its containers' states before watching for their ends).
	ForgetsExits bool
	// PrivilegedTakesAll: a privileged container gets every capability known to the kernel, and
	// cannot be made where the runtime itself lacks any. Otherwise it gets the runtime's.
	PrivilegedTakesAll bool
	// StatusHasContainers: PodSandboxStatus brings the statuses of the containers along.
	StatusHasContainers bool
}

// A Stall is the effect of an idle subscriber on the runtime's other clients.
type Stall string

// The kinds of stall.
const (
	// Blocks: creating and removing hang until the subscriber reads, or goes.
	Blocks Stall = "blocks"
	// Starves: other subscribers get nothing until the subscriber reads, or goes. Calls go on.
	Starves Stall = "starves"
	// Drops: events beyond the runtime's queue are lost. Calls go on.
	Drops Stall = "drops"
)

const (
	containerd1Module = "github.com/containerd/containerd"
	containerd2Module = "github.com/containerd/containerd/v2"
	crioModule        = "github.com/cri-o/cri-o"
)

var containerd2 = Traits{
	Events:            true,
	SandboxEvents:     4,
	StalledSubscriber: Blocks,
	Keeper:            "containerd-shim",
	KeeperTells:       true,
	StopNowCodes:      []int32{137},
	RemovalRaces:      true,
	LateStops:         true,
	SandboxProcess:    true,
}

// with returns the traits changed.
func (t Traits) with(change func(*Traits)) Traits {
	change(&t)
	return t
}

var crio = Traits{
	Events:              true,
	SandboxEvents:       2,
	StalledSubscriber:   Starves,
	CreateFails:         true,
	StreamingLists:      true,
	Keeper:              "conmon",
	NewestFirst:         true,
	StopNowCodes:        []int32{143, 137, 2},
	SandboxStatsKill:    true,
	ForgetsExits:        true,
	PrivilegedTakesAll:  true,
	StatusHasContainers: true,
}

// all is in the order of display; the first is the default. The versions are the newest of their
// minor in the module registry.
var all = []Runtime{
	{
		Name:    "containerd-2.4",
		Family:  Containerd,
		Module:  containerd2Module,
		Version: "v2.4.2",
		Profile: "containerd-2",
		Traits:  containerd2.with(func(t *Traits) { t.StreamingLists = true }),
	},
	{
		Name:    "containerd-2.3",
		Family:  Containerd,
		Module:  containerd2Module,
		Version: "v2.3.7",
		Profile: "containerd-2",
		Traits:  containerd2,
	},
	{
		Name:    "containerd-2.2",
		Family:  Containerd,
		Module:  containerd2Module,
		Version: "v2.2.9",
		Profile: "containerd-2",
		Traits:  containerd2,
	},
	{
		Name:    "containerd-2.1",
		Family:  Containerd,
		Module:  containerd2Module,
		Version: "v2.1.9",
		Profile: "containerd-2",
		Traits:  containerd2.with(func(t *Traits) { t.LosesQuickOOMs = true }),
	},
	{
		Name:    "containerd-2.0",
		Family:  Containerd,
		Module:  containerd2Module,
		Version: "v2.0.14",
		Profile: "containerd-2",
		Traits:  containerd2.with(func(t *Traits) { t.LosesQuickOOMs = true }),
	},
	{
		Name:    "containerd-1.7",
		Family:  Containerd,
		Module:  containerd1Module,
		Version: "v1.7.35",
		Profile: "containerd-1.7",
		Traits: containerd2.with(func(t *Traits) {
			t.SharedStream = true
			t.StalledSubscriber = Drops
			t.KeeperHangsLists = true
			t.EndsTogether = true
			t.LosesQuickOOMs = true
		}),
	},
	{Name: "crio", Family: CRIO, Module: crioModule, Version: "v1.36.3", Profile: "crio", Traits: crio},
	{
		Name:    "crio-noevents",
		Family:  CRIO,
		Module:  crioModule,
		Version: "v1.36.3",
		Built:   "crio",
		Profile: "crio-disabled",
		Traits: crio.with(func(t *Traits) {
			t.Events = false
			t.SandboxEvents = 0
			t.StatusHasContainers = false
		}),
	},
}

// Default is the default runtime.
func Default() Runtime { return all[0] }

// All returns every runtime, the default first. The caller owns the slice.
func All() []Runtime { return append([]Runtime(nil), all...) }

// Names returns the names of [All], in their order.
func Names() []string {
	var names []string
	for _, r := range all {
		names = append(names, r.Name)
	}
	return names
}

// ByName returns the named runtime. "containerd" is the default. An unknown name is an error with
// the known names.
func ByName(name string) (Runtime, error) {
	if name == string(Containerd) {
		return Default(), nil
	}
	for _, r := range all {
		if r.Name == name {
			return r, nil
		}
	}
	return Runtime{}, fmt.Errorf("unknown runtime %q: use one of %s", name, strings.Join(Names(), ", "))
}
