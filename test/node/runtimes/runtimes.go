// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package runtimes is what the node e2e tests know of each container runtime they run on: where it
// comes from, and what it does otherwise than others.
//
// # Model
//
// A [Runtime] is plain data. Package components builds it, package daemon starts it, and package
// suite asks [Traits] where a scenario depends on the runtime: no scenario asks for a name. What a
// trait says was observed on that version; the scenario that reads it fails where it is untrue.
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
	// Built is the name of the runtime whose programs this one shares, where only the configuration
	// differs. Empty: its own.
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
	// SandboxEvents is the number of events of a sandbox that is run, stopped and removed, each by its
	// call.
	SandboxEvents int
	// SharedStream: each event goes to a single subscriber.
	SharedStream bool
	// StalledSubscriber is the effect of an idle subscriber on others.
	StalledSubscriber Stall
	// CreateFails: a command that does not exist fails in CreateContainer, which leaves nothing;
	// otherwise in StartContainer, which leaves an exited container, and tells no event of that.
	CreateFails bool
	// StreamingLists: StreamContainers and StreamPodSandboxes are implemented.
	StreamingLists bool
	// Keeper is a word in the command line of the process that keeps a sandbox or a container, beside
	// the ID.
	Keeper string
	// KeeperTells: a sandbox has a keeper, and when that is killed the runtime notices, and the sandbox
	// and its container end. Otherwise each container has one, and when that is killed the runtime goes
	// on to show the container as it was.
	KeeperTells bool
	// NewestFirst: the payload of an event has the pod's containers in this order. Otherwise they are
	// in no order.
	NewestFirst bool
	// RemovalRaces: when a container that runs is removed, its STOPPED may be read beside the removal,
	// so that the payload lacks the container.
	RemovalRaces bool
	// LateStops: STOPPED comes ten milliseconds and more after its container's finished_at, always.
	LateStops bool
	// StopNowCodes are the exit codes of a container that takes SIGTERM and ends with 143 then, when it
	// is stopped with no time to do so; 2 is that of a program in Go that does not listen yet.
	StopNowCodes []int32
	// SandboxProcess: a pod whose containers have PID namespaces of their own has a process of its own.
	SandboxProcess bool
	// SandboxStatsKill: ListPodSandboxStats can end the runtime while pods come and go (CRI-O 1.36.3: a
	// nil pointer in statsserver.updateSandbox). Nobody here asks for these then.
	SandboxStatsKill bool
	// ForgetsExits: a container that ends while the runtime starts may be shown as running until it is
	// stopped (CRI-O 1.36.3 looks how its containers are before it begins to watch for their ends).
	ForgetsExits bool
	// PrivilegedTakesAll: a privileged container gets every capability that the kernel knows, and
	// cannot be made where the runtime itself lacks one. Otherwise it gets those that the runtime has.
	PrivilegedTakesAll bool
	// StatusHasContainers: PodSandboxStatus brings the statuses of the containers along.
	StatusHasContainers bool
}

// A Stall is the effect of an idle subscriber on the runtime's other clients.
type Stall string

// The kinds of stall.
const (
	// Blocks: creating and removing hang until it reads, or goes.
	Blocks Stall = "blocks"
	// Starves: other subscribers are told nothing until it reads, or goes. Calls go on.
	Starves Stall = "starves"
	// Drops: what does not fit into the runtime's queue is told to nobody. Calls go on.
	Drops Stall = "drops"
)

const (
	containerd1Module = "github.com/containerd/containerd"
	containerd2Module = "github.com/containerd/containerd/v2"
	crioModule        = "github.com/cri-o/cri-o"
)

var containerd2 = Traits{
	Events: true, SandboxEvents: 4, StalledSubscriber: Blocks, Keeper: "containerd-shim", KeeperTells: true, StopNowCodes: []int32{137}, RemovalRaces: true, LateStops: true,
	SandboxProcess: true,
}

// with returns the traits changed.
func (t Traits) with(change func(*Traits)) Traits {
	change(&t)
	return t
}

var crio = Traits{
	Events: true, SandboxEvents: 2, StalledSubscriber: Starves, CreateFails: true, StreamingLists: true, Keeper: "conmon",
	NewestFirst: true, StopNowCodes: []int32{143, 137, 2}, SandboxStatsKill: true, ForgetsExits: true, PrivilegedTakesAll: true, StatusHasContainers: true,
}

// all is in the order in which they are shown; the first is the default. The versions are the
// newest of their minor that the module registry serves.
var all = []Runtime{
	{
		Name: "containerd-2.4", Family: Containerd, Module: containerd2Module, Version: "v2.4.2", Profile: "containerd-2",
		Traits: containerd2.with(func(t *Traits) { t.StreamingLists = true }),
	},
	{Name: "containerd-2.3", Family: Containerd, Module: containerd2Module, Version: "v2.3.7", Profile: "containerd-2", Traits: containerd2},
	{Name: "containerd-2.2", Family: Containerd, Module: containerd2Module, Version: "v2.2.9", Profile: "containerd-2", Traits: containerd2},
	{Name: "containerd-2.1", Family: Containerd, Module: containerd2Module, Version: "v2.1.9", Profile: "containerd-2", Traits: containerd2},
	{Name: "containerd-2.0", Family: Containerd, Module: containerd2Module, Version: "v2.0.14", Profile: "containerd-2", Traits: containerd2},
	{
		Name: "containerd-1.7", Family: Containerd, Module: containerd1Module, Version: "v1.7.35", Profile: "containerd-1.7",
		Traits: containerd2.with(func(t *Traits) { t.SharedStream, t.StalledSubscriber = true, Drops }),
	},
	{Name: "crio", Family: CRIO, Module: crioModule, Version: "v1.36.3", Profile: "crio", Traits: crio},
	{
		Name: "crio-noevents", Family: CRIO, Module: crioModule, Version: "v1.36.3", Built: "crio", Profile: "crio-disabled",
		Traits: crio.with(func(t *Traits) { t.Events, t.SandboxEvents, t.StatusHasContainers = false, 0, false }),
	},
}

// Default is the default runtime.
func Default() Runtime { return all[0] }

// All returns every runtime, the default one first. The caller owns the slice.
func All() []Runtime { return append([]Runtime(nil), all...) }

// Names returns the names of [All], in their order.
func Names() []string {
	var names []string
	for _, r := range all {
		names = append(names, r.Name)
	}
	return names
}

// ByName returns the runtime of that name. "containerd" is the default one. An unknown name is an
// error that lists the known ones.
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

// Of returns the runtime that is nearest to one that names itself so in its answer to Version, by
// family and minor version: the traits of a runtime that somebody else has started. One of an
// unknown family is taken for the default.
func Of(runtimeName, version string) Runtime {
	minor := minorOf(version)
	nearest, found := Default(), false
	for _, r := range all {
		if string(r.Family) != runtimeName || r.Built != "" {
			continue
		}
		if minorOf(r.Version) == minor {
			return r
		}
		if !found || strings.HasPrefix(minor, "1.") && strings.HasPrefix(minorOf(r.Version), "1.") {
			nearest, found = r, true
		}
	}
	return nearest
}

// minorOf returns "2.4" of "v2.4.2+unknown".
func minorOf(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}
