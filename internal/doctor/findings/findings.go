// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

// Package findings names what package doctor finds and what it looks at, for those who gather its
// reports of many nodes.
//
// # Model
//
// A kind of finding has an ID, which stays between versions, and a meaning. An area is a part of a
// node that an examination looks at, or cannot look at. A node's reports reach a fleet as metrics,
// which have IDs and areas as labels and nothing that a runtime or a tenant has written.
//
// # Concurrency
//
// Functions are safe for concurrent use.
//
// # Errors
//
// An unknown ID or area is one of a later version.
package findings

import "slices"

// Metrics of a node with repeated examinations.
const (
	// Found counts the findings of the last examination of the grades sick and costly, by the labels
	// finding and grade. A kind without a finding has no series.
	Found = "evented_pleg_doctor_findings"
	// Worth is 1 for the outcome of the last examination, which is its label worth.
	Worth = "evented_pleg_doctor_worth"
	// Unseen is 1 for each area, its label area, out of sight of the last examination.
	Unseen = "evented_pleg_doctor_not_looked_at"
	// Age is the time since the end of the last examination, or since the start without one.
	Age = "evented_pleg_doctor_age_seconds"
	// Period is the time between two examinations.
	Period = "evented_pleg_doctor_period_seconds"
	// Calls counts the calls of all examinations to the runtime.
	Calls = "evented_pleg_doctor_calls_total"
)

// Term is an ID or an area with its meaning.
type Term struct{ Name, Means string }

// Kinds are the kinds of findings.
var Kinds = []Term{
	{"runtime-dead", "nothing listens on the runtime's socket"},
	{"runtime-silent", "the runtime takes connections and answers nothing"},
	{"not-ready", "a condition of the runtime is false"},
	{"call-hangs", "a kind of call is not answered"},
	{"call-fails", "a kind of call fails"},
	{"call-slow", "a kind of call takes ten times the usual"},
	{"lists-differ", "a list lacks what is there"},
	{"shims-unlisted", "shims run that no list shows"},
	{"item-hangs", "a container or sandbox hangs"},
	{"shim-stopped", "a shim is stopped"},
	{"end-unseen", "a container runs by the runtime, and its process is gone"},
	{"items-unreadable", "items are listed and cannot be read"},
	{"kubelet-unhealthy", "the kubelet says that it is not healthy"},
	{"mount-dead", "a mount gives no answer"},
	{"disk-full", "a file system is full"},
	{"clock-behind", "the machine's clock is behind the runtime's stamps"},
	{"stamps-behind", "the runtime stamps what happens too early"},
	{"exited-left", "exited containers are left"},
	{"sandboxes-left", "sandboxes that are not ready are left"},
	{"events-fail", "the event stream breaks"},
	{"events-silent", "the event stream does not tell of what changes"},
	{"pressure", "all work waits for disk or memory"},
	{"events-off", "container events are turned off"},
	{"events-lacking", "the runtime has no event stream"},
	{"stats-collector", "containerd collects all statistics every second"},
	{"polled", "somebody lists the runtime once a second"},
	{"shims-wake", "shims wake while nothing changes"},
	{"cpu-quiet", "the runtime works although nothing changes"},
	{"lists-empty", "the runtime lists nothing"},
	{"events-replayed", "events of before came first"},
	{"events-skipped", "the event stream was not listened to"},
	{"clients", "others call the runtime"},
	{"socket-owner", "the socket is served by no known runtime"},
	{"clock-free", "no time source keeps the clock"},
	{"host-unseen", "processes of the node cannot be seen"},
	{"forbidden", "the socket refuses this user"},
	{"unexamined", "not every item was examined"},
	{"no-cpu", "the examination got no CPU"},
}

// Areas are the parts of a node in an examination, beside the runtime's answers.
var Areas = []Term{
	{"items", "some containers or sandboxes"},
	{"events", "the event stream"},
	{"processes", "shims and the CPU of the runtime"},
	{"clients", "who else is connected to the runtime"},
	{"disks", "disks"},
	{"clock", "whether a time source keeps the clock"},
	{"pressure", "whether work waits for disk or memory"},
	{"kubelet", "the kubelet's health"},
	{"rates", "lists a minute, by the runtime's metrics"},
}

// Meaning returns the meaning of a name, or empty for an unknown name.
func Meaning(terms []Term, name string) string {
	if n := Place(terms, name); n < len(terms) {
		return terms[n].Means
	}
	return ""
}

// Place returns the place of a name; the last for an unknown name.
func Place(terms []Term, name string) int {
	n := slices.IndexFunc(terms, func(t Term) bool { return t.Name == name })
	if n < 0 {
		return len(terms)
	}
	return n
}
