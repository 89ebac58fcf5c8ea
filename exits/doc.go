// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package exits reports the ends of containers as Kubernetes Events about their pods: exit code,
// signal, reason, duration and attempt, as the container runtime knows them.
//
//	reporter, err := exits.New(exits.Config[cri.PodStatus]{
//		Generator: generator, // a *pleg.Generator[cri.PodStatus]
//		Statuses:  statuses,  // its cache
//		View:      exits.FromCRI,
//		Exit:      client.Exit,
//		Recorder:  broadcaster.NewSeriesRecorder(nil, "pleg-agent"),
//		Path:      "/var/lib/pleg-agent/reported.json",
//	})
//	...
//	err = reporter.Run(ctx)
//
// # Model
//
// An end is a container that has exited, or a sandbox that is no longer ready while its containers
// run. Each end has a [Kind], which is the reason of its Event. An end is reported once, from a
// status that was read [Config.Settle] after the end was first seen: runtimes set the reason
// OOMKilled, and correct exit codes, a moment after the exit. A container that is removed before is
// reported as last seen.
//
// An Event is about the container of the pod (fieldPath spec.containers{name}), as the Events of a
// kubelet are. Its identity is the container, the kind and the exit code. So the ends of a
// container that restarts in a loop are one series of a series recorder, with an exact count; the
// note and the annotations are those of the first end.
//
// [Choice] selects ends by kind, namespace and label. [Config.NamespaceRate] and [Config.NodeRate]
// bound the Events about single containers. Ends above a rate are counted in one Event a kind about
// their namespace: no end is lost uncounted.
//
// # Restarts
//
// The ledger, a file, remembers which ended containers are reported, by ID, and when the reporter
// first started. Ends from before the first start are not news. Ends from between two runs of the
// reporter are reported once, with the time of the end in the note. The ledger is written before
// the report of an end is handed over. A report that the API server has not been sent a second
// later ([Config.Unsent]) is kept in the ledger, and handed over again by the next run. So a killed
// process loses at most the reports of its last second, and repeats none, unless the kill comes
// within a second after the API server has answered again.
//
// # Concurrency
//
// One goroutine, inside [Reporter.Run], owns all state. Reads of statuses run in at most
// [Config.Readers] children, the ledger is written by one more. Run returns when all have ended.
// The other methods may be called from any goroutine at any time. Run is the only reader of the
// generator's Watch.
//
// Memory is bounded by the containers in the runtime.
//
// # Errors
//
// [New] names every unworkable field. A ledger that cannot be read is put aside, and the reporter
// starts as if for the first time; a ledger that cannot be written is tried again. Both are logged,
// and counted in [Stats].
//
// # Where to read
//
// core.go decides (pure), pod.go is its record of a pod, reporter.go is the loop around it. An end
// passes pod.go, kind.go, note.go, limit.go and ledger.go in this order.
package exits
