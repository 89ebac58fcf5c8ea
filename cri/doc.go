// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package cri reads a container runtime over the CRI: it is the source and the stream that a
// pleg.Generator needs, and supplies the pod status type that goes with them, [PodStatus].
//
//	client, err := cri.Dial(ctx, cri.Config{Endpoint: "unix:///run/containerd/containerd.sock"})
//	statuses := cache.New(cri.EmptyStatus)
//	generator, err := pleg.New(pleg.Config[cri.PodStatus]{
//		Source: client, Stream: client, Cache: statuses, Merge: cri.KeepIPs,
//	})
//
// # Model
//
// A runtime knows sandboxes and containers; pods are our reading of them. A sandbox belongs to the
// pod whose UID its metadata names, else the one that its label io.kubernetes.pod.uid names, else
// to a pod of its own whose UID is the sandbox's ID. All sandboxes of one UID are one pod. A
// container belongs to the pod that its label names, else to the pod of its sandbox, which is
// remembered for as long as such a container refers to it. A container with neither is left out and
// counted ([Stats].Unattributed).
//
// Messages are not decoded on arrival. [Client.List] finds out from the encoded items what differs
// from the listing before and takes notice of that alone. Events and statuses keep the runtime's
// bytes, and [PodStatus] decodes them when it is read. A status is stored whole or not at all.
//
// What is learned of a runtime (whether it has the streaming lists, whether PodSandboxStatus brings
// container statuses along) is learned by trying, and forgotten when the connection is made anew,
// because a runtime that comes back may be another version.
//
// # Concurrency
//
// A [Client] may be used by any number of goroutines. Its calls block on the runtime, honour their
// context, and leave no goroutine behind when they return. Listings wait for one another; nothing
// else does, but for the bound on status calls ([Config].MaxStatusCalls). The stream and the calls
// share one connection. A client made by [New] holds a few goroutines of grpc's until Close.
//
// A [PodStatus] is immutable and may be read by any number of goroutines.
//
// # Errors
//
// Errors name the call, the endpoint and, where there is one, the ID; the grpc status is found by
// status.Code or errors.As. [ErrMessageSize] says that an answer exceeds the configured limit,
// [ErrMalformed] that a message is not protobuf or a status not whole, pleg.ErrNoEvents that the
// runtime has no event stream. An ID that the runtime does not have is not an error. A list that
// fails halfway has no result, because what is missing from it would be taken for removed. An item
// that is protobuf but makes no sense (an ID or UID that is empty, too long or not UTF-8) is left
// out and counted; a state that is not known is pleg.PhaseUnknown.
//
// # Where to read
//
// Each file holds one lifecycle and is read from the top down. Begin with client.go (Config, New,
// Dial) and call.go (one call, and how a hung connection is found). An event passes events.go,
// wire.go (bytes to fields) and item.go (fields to items); its status is checked by shape.go when a
// consumer asks for it. A list passes list.go, wire.go, fingerprint.go (unchanged items), index.go
// (changed items), and listing.go (the difference). A read of one pod is list.go (ListPod) and
// inspect.go (Inspect, Update). Statuses are status.go, and decode.go once a reader asks.
package cri
