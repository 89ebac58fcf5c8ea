// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/evented-pleg/evented-pleg/cache"
	series "github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/events/eventstest"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// troubled is a runtime with a pod, a stream that breaks twice, lists that fail for a while, and a
// failing inspection.
type troubled struct {
	began time.Time
}

var errTrouble = errors.New("100% trouble")

func (r troubled) after(d time.Duration) bool { return time.Since(r.began) >= d }

func (r troubled) List(ctx context.Context, _ pleg.Revision) (pleg.Listing, error) {
	if r.after(20*time.Second) && !r.after(30*time.Second) {
		return pleg.Listing{}, errTrouble
	}
	pod, err := r.ListPod(ctx, "uid")
	return pleg.Listing{Pods: []pleg.Pod{pod}}, err
}

func (r troubled) ListPod(context.Context, cache.UID) (pleg.Pod, error) {
	return pleg.Pod{UID: "uid", Name: "web", Namespace: "shop", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox, Phase: pleg.PhaseRunning}}}, nil
}

func (r troubled) Inspect(context.Context, pleg.Pod) (pleg.Inspection[struct{}], error) {
	return pleg.Inspection[struct{}]{}, errTrouble
}

func (r troubled) Events(ctx context.Context) iter.Seq2[pleg.Claim[struct{}], error] {
	return func(yield func(pleg.Claim[struct{}], error) bool) {
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
			if r.after(25 * time.Second) {
				<-ctx.Done()
			}
		}
		yield(pleg.Claim[struct{}]{}, errTrouble)
	}
}

// TestTheGeneratorsOwnEvents checks that conditions of a node are Events of the node, and those of
// a pod are the pod's, each a single Event with a true count (kubernetes#133258).
func TestTheGeneratorsOwnEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := eventstest.NewServer()
		broadcaster, err := series.New(series.Options{Sink: server.Sink(), Instance: "agent-1", NoRoster: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		recorder := broadcaster.NewRecorder(scheme.Scheme, "example.com/agent")
		runtime := troubled{time.Now()}
		generator, err := pleg.New(pleg.Config[struct{}]{
			Source: runtime, Stream: runtime, Cache: cache.New[struct{}](nil), Jitter: -1,
			Recorder: SeriesRecorder(recorder, &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: "node-1"}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- generator.Run(ctx) }()
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Minute) // the series end
		broadcaster.Shutdown()

		var got []string
		for _, e := range server.Events() {
			count := int32(1)
			if e.Series != nil {
				count = e.Series.Count
			}
			got = append(got, fmt.Sprintf("%s %s/%s %s %s %s ×%d", e.Type, e.Regarding.Kind, e.Regarding.Name, e.Namespace, e.Reason, e.Action, count))
		}
		slices.Sort(got)
		want := []string{
			"Normal Node/node-1 kube-system ContainerEventStreamRestored Reconnect ×2",
			"Warning Node/node-1 kube-system ContainerEventStreamLost FallBack ×2",
			"Warning Node/node-1 kube-system RelistFailed Relist ×10",
			"Warning Pod/web shop PodInspectFailed Inspect ×1",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
