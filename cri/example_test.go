// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

// fake starts a fake CRI-O with a pod and returns a client.
func fake() (client *cri.Client, stop func()) {
	profile := must(fakeruntime.ProfileByName("crio"))
	rt := must(fakeruntime.New(fakeruntime.Config{Profile: profile, Seed: 1}))
	sandbox := must(rt.AddPod(fakeruntime.PodSpec{UID: "4f6b", Name: "web", Namespace: "shop"}))
	container := must(rt.AddContainer(sandbox, fakeruntime.ContainerSpec{Name: "app"}))
	if err := rt.Start(container); err != nil {
		panic(err)
	}
	if err := rt.Exit(container, 3); err != nil {
		panic(err)
	}
	listener, end := serve(rt)
	client = must(cri.Dial(context.Background(), cri.Config{Dialer: listener.DialContext})) // or Endpoint: "unix:///run/crio/crio.sock"
	return client, func() { client.Close(); end() }
}

func ExampleDial() {
	_, err := cri.Dial(context.Background(), cri.Config{Endpoint: "unix:///nowhere/containerd.sock"})
	advice, cause, _ := strings.Cut(err.Error(), ": dial ")
	fmt.Printf("%s\nfrom dial %s\n", advice, cause)
	// Output:
	// cri: there is no socket /nowhere/containerd.sock: is the runtime running, is the path right
	// from dial unix /nowhere/containerd.sock: connect: no such file or directory
}

func ExampleClient_List() {
	client, stop := fake()
	defer stop()
	ctx := context.Background()
	listing := must(client.List(ctx, 0))
	for _, pod := range listing.Pods {
		fmt.Println(pod.Namespace, pod.Name, pod.UID)
		for _, item := range pod.Items {
			fmt.Println("  ", item.Kind, item.Phase)
		}
	}
	// Nothing has changed since: the next listing is an empty difference.
	next, err := client.List(ctx, listing.Revision)
	fmt.Println(next.Delta, len(next.Pods), next.Total, err)
	// Output:
	// shop web 4f6b
	//    sandbox Running
	//    container Exited
	// true 0 1 <nil>
}

func ExampleClient_Inspect() {
	client, stop := fake()
	defer stop()
	ctx := context.Background()
	pod := must(client.ListPod(ctx, "4f6b"))
	status := must(client.Inspect(ctx, pod)).Status
	fmt.Println(status.Namespace(), status.Name(), status.IPs())
	for _, c := range status.Containers() {
		fmt.Println(c.Name, c.Phase, c.ExitCode, !c.FinishedAt.Before(c.StartedAt))
	}
	fmt.Println(client.Stats().Calls["PodSandboxStatus"], "call to read it")
	// Output:
	// shop web [198.18.0.1]
	// app Exited 3 true
	// 1 call to read it
}
