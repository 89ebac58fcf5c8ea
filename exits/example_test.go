// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/events/eventstest"
	"github.com/evented-pleg/evented-pleg/exits"
	"github.com/evented-pleg/evented-pleg/pleg"
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// An agent on a node: a container ends, and its pod gets an Event.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	rt := must(fakeruntime.New(fakeruntime.Config{Seed: 1})) // stands in for containerd or CRI-O
	listener := bufconn.Listen(1 << 16)
	running.Go(func() { _ = rt.Serve(ctx, listener) })
	sandbox := must(rt.AddPod(fakeruntime.PodSpec{UID: "4f6b", Name: "web", Namespace: "shop"}))
	container := must(rt.AddContainer(sandbox, fakeruntime.ContainerSpec{Name: "app"}))
	if err := rt.Start(container); err != nil {
		log.Fatal(err)
	}

	client := must(cri.Dial(ctx, cri.Config{Dialer: listener.DialContext})) // or Endpoint
	statuses := cache.New(cri.EmptyStatus)
	generator := must(pleg.New(pleg.Config[cri.PodStatus]{
		Source: client, Stream: client, Cache: statuses, Merge: cri.KeepIPs,
	}))
	server := eventstest.NewServer() // stands in for an API server
	broadcaster := must(events.New(events.Options{Sink: server.Sink(), Instance: "node-1", NoRoster: true}))
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		log.Fatal(err)
	}
	reported := make(chan exits.End, 1)
	reporter := must(exits.New(exits.Config[cri.PodStatus]{
		Generator: generator,
		Statuses:  statuses,
		View:      exits.FromCRI,
		Exit:      client.Exit,
		Recorder:  broadcaster.NewSeriesRecorder(nil, "agent"),
		Observe:   func(end exits.End, _ exits.Outcome) { reported <- end },
	}))
	running.Go(func() { _ = generator.Run(ctx) })
	running.Go(func() { _ = reporter.Run(ctx) })

	for reporter.Stats().Containers == 0 { // ends from before the start are no news
		time.Sleep(time.Millisecond)
	}
	if err := rt.Exit(container, 3); err != nil {
		log.Fatal(err)
	}
	end := <-reported
	fmt.Println(end.Kind, end.Pod.Namespace, end.Pod.Name, end.Container, end.ExitCode)

	if err := broadcaster.ShutdownWithContext(ctx); err != nil {
		log.Fatal(err)
	}
	event := server.Events()[0]
	fmt.Println(event.Type, event.Reason, event.Regarding.Kind, event.Regarding.FieldPath)
	stop()
	rt.Close()
	running.Wait()
	client.Close()
	// Output:
	// ContainerFailed shop web app 3
	// Warning ContainerFailed Pod spec.containers{app}
}
