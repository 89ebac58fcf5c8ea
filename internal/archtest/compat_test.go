// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	clientevents "k8s.io/client-go/tools/events"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/metrics"
)

// Package events compiles against client-go v0.36 too, which does not have this interface: hence
// here.
var _ clientevents.AnnotatedEventRecorder = (*events.Recorder)(nil)

// The modules of both know nothing of each other.
var _ = func(r metrics.Registry, b *events.Broadcaster) error { return metrics.NewEvents(r, b.Metrics) }

// TestStreamingListsByTheNewestCRI reads the fake's streaming lists by the CRI's own client. The
// root module is also built against a CRI without them, and describes them itself.
func TestStreamingListsByTheNewestCRI(t *testing.T) {
	rt, err := fakeruntime.New(fakeruntime.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Populate(fakeruntime.Population{Pods: 3, Containers: 2}); err != nil {
		t.Fatal(err)
	}
	lis := bufconn.Listen(1 << 16)
	ctx, cancel := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() {
		if err := rt.Serve(ctx, lis); err != nil {
			t.Error(err)
		}
	})
	defer served.Wait()
	defer cancel()
	conn, err := grpc.NewClient("passthrough:fake", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client, images := runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)

	sandboxes, err := client.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{Filter: &runtimeapi.PodSandboxFilter{}})
	count(t, "sandboxes", 3, sandboxes, err, (*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes)
	containers, err := client.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{})
	count(t, "containers", 6, containers, err, (*runtimeapi.StreamContainersResponse).GetContainers)
	first, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	one, err := client.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: first.Containers[0].Id}})
	count(t, "containers of one ID", 1, one, err, (*runtimeapi.StreamContainersResponse).GetContainers)
	stats, err := client.StreamContainerStats(ctx, &runtimeapi.StreamContainerStatsRequest{})
	count(t, "container stats", 6, stats, err, (*runtimeapi.StreamContainerStatsResponse).GetContainerStats)
	podStats, err := client.StreamPodSandboxStats(ctx, &runtimeapi.StreamPodSandboxStatsRequest{})
	count(t, "sandbox stats", 3, podStats, err, (*runtimeapi.StreamPodSandboxStatsResponse).GetPodSandboxStats)
	list, err := images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil || len(list.Images) == 0 {
		t.Fatalf("images: %v, %v", list, err)
	}
	streamed, err := images.StreamImages(ctx, &runtimeapi.StreamImagesRequest{})
	count(t, "images", len(list.Images), streamed, err, (*runtimeapi.StreamImagesResponse).GetImages)
}

// count reads a stream to its end and compares the number of its items.
func count[Batch, Item any](t *testing.T, what string, want int, stream grpc.ServerStreamingClient[Batch], err error, items func(*Batch) []Item) {
	t.Helper()
	got := 0
	for err == nil {
		var batch *Batch
		if batch, err = stream.Recv(); err == nil {
			got += len(items(batch))
		}
	}
	if !errors.Is(err, io.EOF) || got != want {
		t.Errorf("%s: %d, want %d; %v", what, got, want, err)
	}
}
