// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"context"
	"fmt"
	"go/ast"
	"go/constant"
	gotypes "go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/criphase"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/fakeproc"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/pleg"
	"github.com/evented-pleg/evented-pleg/pleg/plegtest"
)

// phases are the phases of a set of the CRI's values, by the values' names.
type phases map[string]pleg.Phase

// TestPhasesHaveNames wants a name of its own for each phase, and for each state of the fake
// runtime. There, a state without its name takes that of the next.
func TestPhasesHaveNames(t *testing.T) {
	haveNames(t, pleg.PhaseUnknown, pleg.PhaseRemoved, "phaseNames, pleg/source.go")
	haveNames(t, fakeruntime.StateNone, fakeruntime.StateRemoved, "stateNames, cri/fakeruntime/history.go")
}

// haveNames wants a name of its own for each value, of which the last is called Removed.
func haveNames[T pleg.Phase | fakeruntime.State](t *testing.T, first, last T, table string) {
	named := map[string]T{}
	for v := first; v <= last; v++ {
		name := fmt.Sprint(v)
		if other, ok := named[name]; ok {
			t.Errorf("%d and %d are both called %q: give each its name in %s", other, v, name, table)
		}
		if name == "" {
			t.Errorf("%d has no name: give it one in %s", v, table)
		}
		named[name] = v
	}
	if named["Removed"] != last {
		t.Errorf("the last, %d, is called %v: give each its name in %s", last, last, table)
	}
}

// TestEachTypeOfEventHasItsPhase wants each type of event in plegtest, a phase each. An event of
// another type fails the tests of its users, and the benchmarks take it for no change.
func TestEachTypeOfEventHasItsPhase(t *testing.T) {
	_, info := typed(t, filepath.Join(root, "pleg"))
	types := map[pleg.Phase]pleg.EventType{}
	for name, what := range info.Defs {
		c, ok := what.(*gotypes.Const)
		if !ok || !strings.HasSuffix(c.Type().String(), ".EventType") {
			continue
		}
		eventType := pleg.EventType(constant.StringVal(c.Val()))
		phase, known := plegtest.PhaseOf(eventType)
		if !known {
			t.Errorf("pleg.%s has no phase: give PhaseOf in pleg/plegtest/checker.go a case", name.Name)
			continue
		}
		if other, ok := types[phase]; ok {
			t.Errorf("PhaseOf in pleg/plegtest/checker.go: %s and %s are both %v", other, eventType, phase)
		}
		types[phase] = eventType
	}
	if types[pleg.PhaseRemoved] != pleg.ContainerRemoved {
		t.Errorf("types of events: %v: the test has lost its object", types)
	}
}

// TestEachPhaseHasItsStateOfTheCRI holds package cri, which decodes by hand, and the judge of
// streams against all states and types of events of the CRI, and the fake runtime against all
// phases: a new state of either side is handled in each, or fails here, with the place in which it
// is missing.
func TestEachPhaseHasItsStateOfTheCRI(t *testing.T) {
	states := phases{}
	for n, name := range runtimeapi.ContainerState_name {
		states[name] = criphase.OfContainer(runtimeapi.ContainerState(n))
	}
	types := phases{}
	for n, name := range runtimeapi.ContainerEventType_name {
		types[name] = criphase.OfEvent(runtimeapi.ContainerEventType(n), pleg.Container)
	}
	listed, announced := readByClient(t)
	for _, reader := range []struct {
		file      string
		got, want phases
	}{
		{"a list read by cri", listed, states},
		{"an event read by cri", announced, types},
		{"stateName in internal/bench/stream/judge.go", readByJudge(t), states},
	} {
		for _, name := range slices.Sorted(maps.Keys(reader.want)) {
			if reader.got[name] != reader.want[name] {
				t.Errorf("%s: %s is %v, and %v in cri/criphase", reader.file, name, reader.got[name], reader.want[name])
			}
		}
	}
	faked := map[pleg.Phase]bool{}
	for s := fakeruntime.StateCreated; s <= fakeruntime.StateRemoved; s++ {
		phase := fakeproc.PhaseOf(s)
		if phase == pleg.PhaseUnknown && s != fakeruntime.StateUnknown {
			t.Errorf("states in internal/bench/fakeproc/fakeproc.go: the fake's %v is no phase", s)
		}
		faked[phase] = true
	}
	for p := pleg.PhaseCreated; p <= pleg.PhaseRemoved; p++ {
		if !faked[p] {
			t.Errorf(
				"State in cri/fakeruntime/history.go, states in internal/bench/fakeproc/fakeproc.go: none is %v",
				p,
			)
		}
	}
}

// TestOneMappingOfTheCRI wants the phases of what the CRI says from criphase: no other function of
// those who read the CRI returns a phase by its name, but for the one excused, which differs.
func TestOneMappingOfTheCRI(t *testing.T) {
	const excused = "sandboxPhase" // of cri: a state of a later CRI is unknown, and not the end
	found := 0
	readers := []string{"cri", "embed", "exits", "internal/bench", "internal/doctor"}
	eachGoFile(t, readers, func(path string, f parsed) {
		dir := filepath.ToSlash(filepath.Dir(path))
		for _, own := range []string{"cri/criphase", "cri/fakeruntime", "embed/kubelet"} {
			if strings.HasSuffix(dir, own) {
				return // the mapping, another runtime, and the kubelet's own states
			}
		}
		for _, d := range f.file.Decls {
			function, ok := d.(*ast.FuncDecl)
			if !ok || strings.HasSuffix(path, "_test.go") || !f.returnsPhase(function) {
				continue
			}
			if function.Name.Name == excused {
				found++
				continue
			}
			t.Errorf("%s: %s turns something into a phase: let cri/criphase do so", path, function.Name.Name)
		}
	})
	if found != 1 {
		t.Errorf("%d functions %s: the test has lost its object", found, excused)
	}
}

// returnsPhase reports whether a function returns a phase by its name, and not that which is no
// phase.
func (f parsed) returnsPhase(function *ast.FuncDecl) (yes bool) {
	ast.Inspect(function, func(n ast.Node) bool {
		r, ok := n.(*ast.ReturnStmt)
		if !ok {
			return true
		}
		for _, result := range r.Results {
			name, ok := strings.CutPrefix(f.source(result), "pleg.Phase")
			yes = yes || ok && name != "Unknown" && !strings.ContainsAny(name, "(.+ ")
		}
		return true
	})
	return yes
}

// everyState is a runtime with a container in each state, named by the state, and an event of each
// type, of a container named by the type.
type everyState struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

const sandboxID = "sandbox"

func (everyState) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "every", RuntimeApiVersion: "v1"}, nil
}

func (everyState) ListPodSandbox(
	context.Context,
	*runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{
		Items: []*runtimeapi.PodSandbox{{Id: sandboxID, Metadata: podMetadata}},
	}, nil
}

var podMetadata = &runtimeapi.PodSandboxMetadata{Uid: "pod", Name: "pod", Namespace: "n"}

func (everyState) ListContainers(
	context.Context,
	*runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	var r runtimeapi.ListContainersResponse
	for n, name := range runtimeapi.ContainerState_name {
		r.Containers = append(r.Containers, &runtimeapi.Container{
			Id:           name,
			PodSandboxId: sandboxID,
			Metadata:     &runtimeapi.ContainerMetadata{Name: name},
			State:        runtimeapi.ContainerState(n),
		})
	}
	return &r, nil
}

func (everyState) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest,
	out grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	for _, e := range everyEvent() {
		if err := out.Send(e); err != nil {
			return err
		}
	}
	return nil
}

// everyEvent returns an event of each type, each with a container in each state.
func everyEvent() (events []*runtimeapi.ContainerEventResponse) {
	for n, name := range runtimeapi.ContainerEventType_name {
		e := &runtimeapi.ContainerEventResponse{
			ContainerId:        name,
			ContainerEventType: runtimeapi.ContainerEventType(n),
			CreatedAt:          1,
			PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: sandboxID, Metadata: podMetadata},
		}
		for n, name := range runtimeapi.ContainerState_name {
			e.ContainersStatuses = append(
				e.ContainersStatuses,
				&runtimeapi.ContainerStatus{Id: name, State: runtimeapi.ContainerState(n)},
			)
		}
		events = append(events, e)
	}
	return events
}

// readByClient returns what package cri makes of everyState.
func readByClient(t *testing.T) (states, types phases) {
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, everyState{})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Stop
	defer serving.Wait()
	defer server.Stop()
	client := testkit.Must(cri.Dial(t.Context(), cri.Config{Dialer: listener.DialContext}))(t)
	defer client.Close()
	states = phases{}
	listing := testkit.Must(client.List(t.Context(), 0))(t)
	for _, item := range listing.Pods[0].Items {
		if item.Kind == pleg.Container {
			states[item.ID] = item.Phase
		}
	}
	if n := client.Stats().UnknownStates; n > 0 {
		t.Errorf("knownContainerState in cri/item.go does not know %d states", n)
	}
	types = phases{}
	for claim := range client.Events(t.Context()) {
		if claim.Item.ID != "" {
			types[claim.Item.ID] = claim.Item.Phase
		}
	}
	if len(states) != len(runtimeapi.ContainerState_name) ||
		len(types) != len(runtimeapi.ContainerEventType_name) {
		t.Errorf(
			"cri has read %d states and %d types of events: %v, %v",
			len(states),
			len(types),
			states,
			types,
		)
	}
	return states, types
}

// readByJudge returns the states in the payload of an event, as the judge of streams prints them.
func readByJudge(t *testing.T) phases {
	states := phases{}
	for _, e := range everyEvent() {
		raw := testkit.Must(proto.Marshal(e))(t)
		for _, item := range stream.New(0).Event(time.Now(), raw).Payload {
			if !item.Sandbox {
				states[item.ID] = phaseNamed(item.Phase)
			}
		}
	}
	return states
}

// phaseNamed returns the phase of a name in capitals.
func phaseNamed(name string) pleg.Phase {
	for p := pleg.PhaseUnknown; p <= pleg.PhaseRemoved; p++ {
		if strings.EqualFold(p.String(), name) {
			return p
		}
	}
	return pleg.PhaseUnknown
}
