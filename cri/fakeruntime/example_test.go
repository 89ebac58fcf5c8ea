// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

// A CRI-O that loses every tenth event, a client on its stream, and the true history.
func Example() {
	profile, err := fakeruntime.ProfileByName("crio")
	if err != nil {
		log.Fatal(err)
	}
	faults, err := fakeruntime.ParseFaults("drop=0.1")
	if err != nil {
		log.Fatal(err)
	}
	rt, err := fakeruntime.New(fakeruntime.Config{Profile: profile, Faults: faults, Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	ctx, stop := context.WithCancel(context.Background())
	lis := bufconn.Listen(1 << 16) // or net.Listen("unix", path)
	var server sync.WaitGroup
	server.Go(func() {
		if err := rt.Serve(ctx, lis); err != nil {
			log.Print(err)
		}
	})
	defer server.Wait()
	defer stop()

	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	cri := runtimeapi.NewRuntimeServiceClient(conn)

	// Events of CRI-O wait for the first client, so nothing is lost by subscribing late.
	for range 50 {
		sandbox, err := rt.AddPod(fakeruntime.PodSpec{})
		if err != nil {
			log.Fatal(err)
		}
		container, err := rt.AddContainer(sandbox, fakeruntime.ContainerSpec{Name: "job"})
		if err != nil {
			log.Fatal(err)
		}
		if err := rt.Start(container); err != nil {
			log.Fatal(err)
		}
		if err := rt.Exit(container, 3); err != nil {
			log.Fatal(err)
		}
	}
	stream, err := cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		log.Fatal(err)
	}
	stopped := 0
	for range rt.Stats().Events.Emitted {
		ev, err := stream.Recv()
		if err != nil {
			log.Fatal(err)
		}
		if ev.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
			stopped++
		}
	}

	exited, silent := 0, 0
	changes, _ := rt.History(0)
	for _, change := range changes {
		if change.New == fakeruntime.StateExited {
			exited++
			if change.Event != fakeruntime.Emitted {
				silent++
			}
		}
	}
	fmt.Printf("%d containers exited, the client was told of %d\n", exited, stopped)
	fmt.Printf("the history knows of %d exits without an event\n", silent)
	// Output:
	// 50 containers exited, the client was told of 43
	// the history knows of 7 exits without an event
}
