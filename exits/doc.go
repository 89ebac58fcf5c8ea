// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package exits reports the ends of containers as Kubernetes Events about their pods: exit code,
// signal, reason, duration and attempt, from the container runtime's statuses.
//
//	sink := exits.NewSink(events.NewClientSink(client))
//	broadcaster, err := events.New(events.Options{Sink: sink})
//	...
//	reporter, err := exits.New(exits.Config[cri.PodStatus]{
//		Generator: generator, // a *pleg.Generator[cri.PodStatus]
//		Statuses:  statuses,  // its cache
//		View:      exits.FromCRI,
//		Exit:      client.Exit,
//		Recorder:  broadcaster.NewSeriesRecorder(nil, "pleg-agent"),
//		Path:      "/var/lib/pleg-agent/reported.json",
//		Sink:      sink,
//		Unsent:    func() int64 { return broadcaster.Stats().Unsent },
//	})
//	...
//	err = reporter.Run(ctx)
//
// # Model
//
// An end is the exit of a container, or the loss of a sandbox while its containers run. Each end
// has a [Kind], which is the reason of its Event. An end is reported once, from a status read
// [Config.Settle] after the first sight of the end: runtimes set the reason OOMKilled, and correct
// exit codes, a moment after the exit. A container removed before the read is reported as last
// seen.
//
// An Event is about the container of the pod (fieldPath spec.containers{name}), as the Events of a
// kubelet are. Its identity is the container, the kind and the exit code. So a series recorder
// makes a single series of the ends of a container in a restart loop, with an exact count. The
// series has the note and the annotations of the first end.
//
// [Choice] selects ends by kind, namespace and label. [Config.NamespaceRate] and [Config.NodeRate]
// bound the Events about single containers. Ends above a rate are counted in an Event a kind about
// their namespace: no end is lost uncounted.
//
// # Restarts
//
// The ledger, a file, remembers which ended containers are reported, by ID, and when the reporter
// first started. Ends from before the first start are not news. Ends from between two runs of the
// reporter are reported once, with the time of the end in the note. Ends that settle while the
// reporter is ended are in the ledger: if the next run does not find the container, it reports the
// end as last seen. The ledger is written before the report of an end is handed over. If the API
// server has not taken a report after a second ([Config.Sink]), the ledger keeps the report, and
// the next run hands it over again: the report may be of a namespace in trouble while others are
// well, or of a loop with a later turn. It keeps the latest 4096 of them. An outage in which more
// ends are reported one by one, 12 minutes at the default rates, costs a restart meanwhile the
// earlier ones; without a restart the recorder's own limits count. Of the ends counted in an Event
// about a namespace the ledger keeps the number. So a killed process loses at most the reports of
// its last second, and repeats none, unless the kill comes within a second after the API server
// has taken a report so late.
//
// # Concurrency
//
// One goroutine, inside [Reporter.Run], owns all state. Reads of statuses run in at most
// [Config.Readers] children, a further child writes the ledger. Run returns when all have ended.
// The other methods may be called from any goroutine at any time. Run is the only reader of the
// generator's Watch. A [Sink] has a lock of its own.
//
// Memory is bounded by the containers in the runtime.
//
// # Errors
//
// [New] names every unworkable field. [Config.Path] may be the path of a ledger or of no file yet:
// whatever else is there, such as a folder, a link or somebody's file, is refused and stays as it
// is ([CheckPath]). So is a path on a disk that does not answer for ten seconds. A damaged ledger
// is put aside, and the reporter starts as if for the first time. Ends in it that no reporter
// writes, or that it has twice, are left out. A failed write of the ledger is tried again each five
// seconds, and ends wait for none that takes more than five seconds. All are counted in [Stats].
// They are logged: of the failed writes the first, others at pauses that double up to an hour, and
// once that they succeed again.
//
// # Where to read
//
// core.go decides (pure), pod.go is its record of a pod, run.go is the loop around it. reporter.go
// is the frame, open.go the begin of the ledger, checked.go what a ledger may hold, and
// outage.go the log of failed writes. An end passes pod.go, kind.go, note.go, limit.go, ledger.go
// and sink.go in this order, or tally.go in the end.
package exits
