// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/embed"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// client is a kubelet's CRI client of a runtime with a pod of one container.
type client struct {
	internalapi.RuntimeService // other calls

	lists  int
	events chan *runtimeapi.ContainerEventResponse
}

func (c *client) ListPodSandbox(
	context.Context,
	*runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	c.lists++
	return []*runtimeapi.PodSandbox{{Id: "box", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "4f6b"}}}, nil
}

func (c *client) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	c.lists++
	return []*runtimeapi.Container{
		{Id: "app", PodSandboxId: "box", State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}, nil
}

func (c *client) GetContainerEvents(
	ctx context.Context,
	events chan *runtimeapi.ContainerEventResponse,
	_ func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	for {
		select {
		case e := <-c.events:
			events <- e
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A kubelet's calls go through a Service. Its stream becomes claims for a generator, and lists with
// a filter are answered from memory while the stream is trusted.
func Example() {
	runtime := &client{events: make(chan *runtimeapi.ContainerEventResponse)}
	service := embed.NewService(runtime)
	trusted := func() bool { return true } // in a kubelet: the generator hears of changes
	service.ServeLists(trusted, time.Hour, func(name string, n int) { fmt.Println("counted", n, name) })

	ctx, stop := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	claims := make(chan pleg.Item)
	reading.Go(func() {
		for claim := range embed.Stream[struct{}](service).Events(ctx) { // in a kubelet: pleg.Config.Stream
			if claim.Item.ID != "" {
				claims <- claim.Item
			}
		}
	})
	runtime.events <- &runtimeapi.ContainerEventResponse{ContainerId: "app", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT}
	fmt.Println(<-claims)

	generators := embed.As(ctx, embed.ByPLEG) // the generator's reads always reach the runtime
	if _, err := service.ListPodSandbox(generators, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := service.ListContainers(generators, nil); err != nil {
		log.Fatal(err)
	}
	ofBox := &runtimeapi.ContainerFilter{PodSandboxId: "box"}
	list, err := service.ListContainers(embed.As(ctx, embed.ByContainerLogs), ofBox)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(list[0].Id, "is listed, and the runtime was called", runtime.lists, "times")
	stop()
	reading.Wait()
	// Output:
	// {app container Running }
	// counted 1 lists_forwarded/pleg
	// counted 1 lists_forwarded/pleg
	// counted 1 lists_served/container_logs
	// app is listed, and the runtime was called 2 times
}
