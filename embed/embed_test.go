// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is a CRI client that sends some events and then ends, or waits for its context without an
// end.
type client struct {
	send []*runtimeapi.ContainerEventResponse
	end  func() error
}

func (c client) GetContainerEvents(
	ctx context.Context,
	events chan *runtimeapi.ContainerEventResponse,
	_ func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	for _, e := range c.send {
		events <- e // as the kubelet's client does: without a look at ctx
	}
	if c.end != nil {
		return c.end()
	}
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

type claimed = pleg.Claim[struct{}]

func events(n int) []*runtimeapi.ContainerEventResponse {
	all := make([]*runtimeapi.ContainerEventResponse, n)
	for i := range all {
		all[i] = &runtimeapi.ContainerEventResponse{ContainerId: "c"}
	}
	return all
}

func TestStreamEnds(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "gone")
	for _, test := range []struct {
		name string
		end  error
		want error
	}{
		{"no error, as some clients say for EOF", nil, io.EOF},
		{"EOF", io.EOF, io.EOF},
		{"not implemented", status.Error(codes.Unimplemented, "unknown method"), pleg.ErrNoEvents},
		{"lost", unavailable, unavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			var last error
			claims := 0
			for _, err := range Stream[struct{}](client{events(200), func() error { return test.end }}).Events(t.Context()) {
				if err == nil {
					claims++
				}
				last = err
			}
			if claims != 200 || !errors.Is(last, test.want) {
				t.Errorf("%d claims, then %v; want 200, then %v", claims, last, test.want)
			}
		})
	}
}

// A client stuck in its send when the consumer stops, or when the context ends, must not stay
// behind: goleak looks.
func TestStreamLeavesNothingBehind(t *testing.T) {
	for range Stream[struct{}](client{send: events(500)}).Events(t.Context()) {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, err := range Stream[struct{}](client{send: events(500)}).Events(ctx) {
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
			t.Errorf("ended with %v", err)
		}
	}
}

func TestClaims(t *testing.T) {
	sandbox := &runtimeapi.PodSandboxStatus{
		Id:       "s",
		State:    runtimeapi.PodSandboxState_SANDBOX_READY,
		Metadata: &runtimeapi.PodSandboxMetadata{Uid: "uid"},
	}
	shown := []*runtimeapi.ContainerStatus{
		{
			Id:    "a",
			State: runtimeapi.ContainerState_CONTAINER_EXITED,
		},
		{Id: "b", State: runtimeapi.ContainerState_CONTAINER_CREATED},
		{
			Id:    "c",
			State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		},
		{Id: "d", State: runtimeapi.ContainerState_CONTAINER_UNKNOWN},
	}
	at := time.Unix(1, 2)
	for _, test := range []struct {
		name  string
		event *runtimeapi.ContainerEventResponse
		want  claimed
		none  bool
	}{
		{"whole", &runtimeapi.ContainerEventResponse{
			ContainerId: "a", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, CreatedAt: at.UnixNano(),
			PodSandboxStatus: sandbox, ContainersStatuses: shown,
		}, claimed{Pod: "uid", CreatedAt: at, Item: pleg.Item{ID: "a", Phase: pleg.PhaseExited}, Payload: []pleg.Item{
			{ID: "s", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning},
			{ID: "a", Phase: pleg.PhaseExited}, {ID: "b", Phase: pleg.PhaseCreated}, {ID: "c", Phase: pleg.PhaseRunning}, {ID: "d", Phase: pleg.PhaseUnknown},
		}}, false},
		{"sandbox created", &runtimeapi.ContainerEventResponse{ContainerId: "s", PodSandboxStatus: sandbox},
			claimed{Pod: "uid", Item: pleg.Item{ID: "s", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}, Payload: []pleg.Item{{ID: "s", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}}}, false},
		{"container created, stamp of the zero time, no sandbox", &runtimeapi.ContainerEventResponse{ContainerId: "a", CreatedAt: time.Time{}.UnixNano()},
			claimed{Item: pleg.Item{ID: "a", Phase: pleg.PhaseCreated}}, false},
		{"started", &runtimeapi.ContainerEventResponse{ContainerId: "a", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT},
			claimed{Item: pleg.Item{ID: "a", Phase: pleg.PhaseRunning}}, false},
		{"deleted, sandbox without metadata", &runtimeapi.ContainerEventResponse{
			ContainerId: "a", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
			PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: "s", State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY},
		}, claimed{Item: pleg.Item{ID: "a", Phase: pleg.PhaseRemoved}, Payload: []pleg.Item{{ID: "s", Kind: pleg.Sandbox, Phase: pleg.PhaseExited}}}, false},
		{"nil", nil, claimed{}, true},
		{"no ID", &runtimeapi.ContainerEventResponse{}, claimed{}, true},
		{"type from the future", &runtimeapi.ContainerEventResponse{ContainerId: "a", ContainerEventType: 42}, claimed{Item: pleg.Item{ID: "a"}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := claim[struct{}](test.event)
			if ok == test.none {
				t.Fatalf("of use: %v, want %v", ok, !test.none)
			}
			if diff := cmp.Diff(test.want, got); ok && diff != "" {
				t.Error(diff)
			}
			if got.Status != nil {
				t.Error("the claim brings a status: a kubelet takes statuses from reads")
			}
		})
	}
}

func TestReportsBecomeEvents(t *testing.T) {
	told := record.NewFakeRecorder(2)
	told.IncludeObject = true
	r := Recorder(told, &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n"})
	r.Record(pleg.Report{Reason: pleg.ReasonStreamLost, Warning: true, Note: "100% gone"})
	r.Record(
		pleg.Report{
			Reason: pleg.ReasonInspectFailed,
			Note:   "note",
			Pod:    &pleg.PodRef{UID: "uid", Name: "p", Namespace: "ns"},
		},
	)
	got := []string{<-told.Events, <-told.Events}
	want := []string{
		"Warning ContainerEventStreamLost 100% gone involvedObject{kind=Node,apiVersion=v1}",
		"Normal PodInspectFailed note involvedObject{kind=Pod,apiVersion=v1}",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// series is a recorder for events.k8s.io/v1.
type series struct{ told []string }

func (s *series) Eventf(about, _ runtime.Object, kind, reason, action, note string, args ...any) {
	ref := about.(*v1.ObjectReference)
	s.told = append(
		s.told,
		fmt.Sprintf("%s %s/%s %s %s %s", kind, ref.Kind, ref.Name, reason, action, fmt.Sprintf(note, args...)),
	)
}

// TestSeriesOfNothing: without a recorder of series there is none for the generator.
func TestSeriesOfNothing(t *testing.T) {
	r := SeriesRecorder(nil, &v1.ObjectReference{Kind: "Node", Name: "n"})
	if r != nil {
		t.Errorf("the recorder of nil is %v, and would fail at the first report", r)
	}
}

// TestReportsBecomeSeries checks that conditions of a node are the node's, those of a pod the
// pod's, and that a series counts what was held back (kubernetes#133258).
func TestReportsBecomeSeries(t *testing.T) {
	told := &series{}
	r := SeriesRecorder(told, &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n"})
	r.Record(
		pleg.Report{
			Reason:  pleg.ReasonRelistFailed,
			Action:  "Relist",
			Warning: true,
			Note:    "100% gone",
			Held:    2,
		},
	)
	r.Record(
		pleg.Report{
			Reason: pleg.ReasonInspectFailed,
			Action: "Inspect",
			Note:   "note",
			Pod:    &pleg.PodRef{UID: "uid", Name: "p", Namespace: "ns"},
		},
	)
	failed := "Warning Node/n RelistFailed Relist 100% gone"
	if diff := cmp.Diff([]string{failed, failed, failed, "Normal Pod/p PodInspectFailed Inspect note"}, told.told); diff != "" {
		t.Error(diff)
	}
}
