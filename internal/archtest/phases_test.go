// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"context"
	"maps"
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
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench/fakeproc"
	"github.com/evented-pleg/evented-pleg/internal/bench/load"
	"github.com/evented-pleg/evented-pleg/internal/bench/stream"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// phases are the phases of a set of the CRI's values, by the values' names.
type phases map[string]pleg.Phase

// TestEachPhaseHasItsStateOfTheCRI holds the places that read the CRI against all its states and
// types of events, and against all phases: a new state of either side is handled in each, or fails
// here. Package embed has such a test of its own.
func TestEachPhaseHasItsStateOfTheCRI(t *testing.T) {
	listed, announced := readByClient(t)
	judged, claimed := readByJudge(t)
	loaded := phases{}
	for n, name := range runtimeapi.ContainerState_name {
		loaded[name] = load.StateOf(runtimeapi.ContainerState(n))
	}
	faked := phases{}
	for s := fakeruntime.StateCreated; s <= fakeruntime.StateRemoved; s++ {
		faked[strings.ToUpper(s.String())] = fakeproc.PhaseOf(s)
	}
	for place, of := range map[string]struct {
		phases
		last pleg.Phase
	}{
		"states of a container in cri":           {listed, pleg.PhaseExited},
		"types of events in cri":                 {announced, pleg.PhaseRemoved},
		"states of a container in bench/stream":  {judged, pleg.PhaseExited},
		"types of events in bench/stream":        {claimed, pleg.PhaseRemoved},
		"states of a container in bench/load":    {loaded, pleg.PhaseExited},
		"states of the fake runtime in fakeproc": {faked, pleg.PhaseRemoved},
	} {
		for name, phase := range of.phases {
			if phase == pleg.PhaseUnknown && !strings.HasSuffix(name, "UNKNOWN") {
				t.Errorf("%s: %s is no phase", place, name)
			}
		}
		reached := slices.Collect(maps.Values(of.phases))
		for p := pleg.PhaseCreated; p <= of.last; p++ {
			if !slices.Contains(reached, p) {
				t.Errorf("%s: none is %v", place, p)
			}
		}
	}
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

// readByJudge returns what the judge of streams makes of every event.
func readByJudge(t *testing.T) (states, types phases) {
	states = phases{}
	types = phases{}
	judge := stream.New(0)
	for _, e := range everyEvent() {
		raw := testkit.Must(proto.Marshal(e))(t)
		types[e.ContainerId] = stream.Announced(e.ContainerEventType)
		for _, item := range judge.Event(time.Now(), raw).Payload {
			if !item.Sandbox {
				states[item.ID] = phaseNamed(item.Phase)
			}
		}
	}
	return states, types
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
