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

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// A CRI-O that loses every tenth event, a client on its stream, and the true history.
func Example() {
	profile := must(fakeruntime.ProfileByName("crio"))
	faults := must(fakeruntime.ParseFaults("drop=0.1"))
	rt := must(fakeruntime.New(fakeruntime.Config{Profile: profile, Faults: faults, Seed: 1}))
	defer rt.Close()

	ctx, stop := context.WithCancel(context.Background())
	lis := bufconn.Listen(1 << 16) // or net.Listen("unix", path)
	var server sync.WaitGroup
	server.Go(func() { check(rt.Serve(ctx, lis)) })
	defer server.Wait()
	defer stop()

	conn := must(grpc.NewClient(
		"passthrough:///bufconn",
		grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
		),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	))
	defer conn.Close()
	cri := runtimeapi.NewRuntimeServiceClient(conn)

	// Events of CRI-O wait for the first client, so nothing is lost by subscribing late.
	for range 50 {
		sandbox := must(rt.AddPod(fakeruntime.PodSpec{}))
		container := must(rt.AddContainer(sandbox, fakeruntime.ContainerSpec{Name: "job"}))
		check(rt.Start(container))
		check(rt.Exit(container, 3))
	}
	stream := must(cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}))
	stopped := 0
	for range rt.Stats().Emitted {
		ev := must(stream.Recv())
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
