// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/test/node/crikit"
	"github.com/evented-pleg/evented-pleg/test/node/criproxy"
)

// A runtime, a proxy before it, and a client that is told that creating pods
// fails although the pod was made.
func Example() {
	dir, err := os.MkdirTemp("/tmp", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	runtime, err := fakeruntime.New(fakeruntime.Config{Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	listener, err := net.Listen("unix", filepath.Join(dir, "runtime.sock"))
	if err != nil {
		log.Fatal(err)
	}
	proxy, err := criproxy.New(criproxy.Config{
		Listen: filepath.Join(dir, "proxy.sock"), Target: filepath.Join(dir, "runtime.sock"),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var servers sync.WaitGroup
	servers.Go(func() { _ = runtime.Serve(ctx, listener) })
	servers.Go(func() { _ = proxy.Run(ctx) })
	defer servers.Wait()
	defer stop()
	<-proxy.Ready()

	client, err := crikit.Dial(crikit.Options{Endpoint: proxy.Endpoint(), Namespace: "default", Image: fakeruntime.WorkloadImage})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fault, err := proxy.Inject(criproxy.Fault{
		Method: "RunPodSandbox", Times: 1,
		Do: criproxy.Fail{Code: codes.DeadlineExceeded, Message: "too slow"},
	})
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.RunPod(ctx, "uid-1", "pod", 0)
	fmt.Println("the client was told:", status.Code(err))
	truth, err := client.Truth(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the runtime has:", len(truth), "pod")
	fmt.Println("the fault acted:", fault.Hits(), "time")
	// Output:
	// the client was told: DeadlineExceeded
	// the runtime has: 1 pod
	// the fault acted: 1 time
}
