// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package cri reads a container runtime over the CRI. It supplies the source and the stream of a
// pleg.Generator, and the pod status type for both, [PodStatus].
//
//	client, err := cri.Dial(ctx, cri.Config{Endpoint: "unix:///run/containerd/containerd.sock"})
//	statuses := cache.New(cri.EmptyStatus)
//	generator, err := pleg.New(pleg.Config[cri.PodStatus]{
//		Source: client, Stream: client, Cache: statuses, Merge: cri.KeepIPs,
//	})
//
// # Model
//
// A runtime knows sandboxes and containers; pods are derived from them. A sandbox belongs to the
// pod UID in its metadata, else to the UID in its label io.kubernetes.pod.uid, else to a pod of its
// own whose UID is the sandbox's ID. All sandboxes of a UID are one pod. A container belongs to the
// pod UID in its label, else to the pod of its sandbox; the sandbox is remembered as long as such a
// container refers to it. A container with neither is left out and counted ([Stats].Unattributed).
//
// Messages are not decoded on arrival. [Client.List] compares encoded items with the listing before
// and reads the changed ones only. Events and statuses keep the runtime's bytes; [PodStatus]
// decodes them on first use. A status is stored whole or not at all.
//
// The capabilities of a runtime (streaming lists, container statuses in PodSandboxStatus answers)
// are learned by trying, and forgotten when the connection is made anew: a runtime that comes back
// may be another version.
//
// # Concurrency
//
// A [Client] may be used by any number of goroutines. Its calls block on the runtime and honour
// their context. Listings wait for one another; other calls wait for nothing: how many pods are
// read at once is the generator's to say. A status call about an item that hangs outlives its read
// (see [Client.Inspect]), one an item, until Close at the latest. A look or a connect about which
// the kernel gives no answer, as on a dead mount, is left with its thread: calls go on after a
// second at most. One such is left a path, and a next one after as long again. No other
// goroutine is left behind. The stream and the calls share a connection. A client made by [New]
// holds a few goroutines of grpc's until Close.
//
// A [PodStatus] is immutable and may be read by any number of goroutines.
//
// # Errors
//
// Errors name the call, the endpoint and, where there is one, the ID; status.Code and errors.As
// find the grpc status. [ErrMessageSize]: an answer exceeds the configured limit. [ErrMalformed]: a
// message is not protobuf, or a status is not whole. [ErrClosed]: the client was closed before, or
// meanwhile. pleg.ErrNoEvents: the runtime has no event stream. An ID unknown to the runtime is not
// an error. A list that fails halfway has no result, because items missing from a partial result
// would be taken for removed. An item that is protobuf but makes no sense (an ID or UID that is
// empty, too long or not UTF-8) is left out and counted; an unknown state is pleg.PhaseUnknown.
//
// # Where to read
//
// Each file holds one lifecycle and is read from the top down. Begin with client.go (Config, New,
// Dial), call.go (a call) and conn.go (a connection, and how one that hangs is found). An event
// passes events.go, wire.go (bytes to fields) and item.go (fields to items); shape.go checks its
// status when a consumer asks for the status. A list passes list.go, wire.go, fast.go (unchanged
// items), index.go (changed items), and listing.go (the difference). A read of a pod is list.go
// (ListPod) and inspect.go (Inspect, Update). Statuses are in status.go, their decoding in
// decode.go.
package cri
