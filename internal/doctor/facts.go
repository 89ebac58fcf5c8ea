// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"time"

	"github.com/evented-pleg/evented-pleg/internal/standstill"
)

// Facts are the results of an examination. Examine writes them, Conclude reads them.
type Facts struct {
	Began    time.Time
	Seconds  float64
	Endpoint string
	// LagSeconds is the longest wait of this program for the CPU that is no standstill. The runtime
	// waits as well: a call that comes late is slow only beside it.
	LagSeconds float64
	// Stood counts the times in which this program stood still: it was stopped, or had no CPU. They add
	// up to StoodSeconds, which no call's time includes, and the longest took LongestSeconds. Again
	// counts the calls made again for them.
	Stood                        int
	StoodSeconds, LongestSeconds float64
	Again                        int
	// Unreachable is why no connection was made; Forbidden: this process may not connect.
	Unreachable string
	Forbidden   bool
	// Name and Version are the runtime's, empty without an answer.
	Name, Version string
	Calls         []Call
	Conditions    []Condition
	// StatsPeriod is containerd's stats_collect_period as configured, nil if not known.
	StatsPeriod *string
	// Listed: the counts below are the runtime's.
	Listed                    bool
	Pods, Containers, Running int
	Exited, NotReady          int
	MostExited                Item // the pod with the most exited containers, with its count
	MostExitedCount           int
	Items                     []Item // hanging or unreadable items
	Missed                    []Item // items that were there, and missing from a list
	Blank                     bool   // the last lists showed nothing, and lacked some of Missed
	Empty                     bool   // no list showed anything
	Unsure                    int    // items beside Missed that were not asked for
	Unexamined                int    // items for which there was no time, or Spared
	// Spared is why the runtime was asked no more, empty if nothing was left out for its sake.
	Spared        string
	Stream        Stream
	Ahead         []Item  // items stamped later than now
	AheadSeconds  float64 // by how much at most
	BehindSeconds float64 // how much older than possible new items are stamped
	// Looked: there was a Host, and the next field has its facts.
	Looked         bool
	Host           HostFacts
	Kept           map[string]Item    // the items of Host.Shims, by ID
	Unended        []Unended          // containers that only the runtime takes to run
	ListsAMinute   map[string]float64 // by method, from the runtime's metrics
	MetricsAddress string
}

// standstills enters the standstills of the examination.
func (f *Facts) standstills(all standstill.Totals) {
	f.LagSeconds = all.Lag.Seconds()
	f.Stood = all.Times
	f.StoodSeconds = all.Stood.Seconds()
	f.LongestSeconds = all.Longest.Seconds()
}

// waited is this program's longest wait for the CPU, in seconds. Where a stop, not a crowd, was the
// reason, calls are not called slow either.
func (f *Facts) waited() float64 { return max(f.LagSeconds, f.LongestSeconds) }

// Condition is a condition of the runtime's Status.
type Condition struct {
	Type, Reason, Message string
	OK                    bool
}

// Item is a sandbox or container with a property worth a finding.
type Item struct {
	ID, Sandbox string // Sandbox is the ID of its sandbox
	// Kind is sandbox or container.
	Kind                 string
	Name, Pod, Namespace string
	// Call is the hanging or failing call, Error why; empty for no answer.
	Call, Error string
	Hung        bool
	Seconds     float64
}

// Unended is a container that runs by the runtime, and whose process is gone.
type Unended struct {
	Item
	PID int
}

// Stream is the event stream as heard.
type Stream struct {
	// Skipped is why the examination did not subscribe, empty if it did. Judged: someone else judges
	// the stream.
	Skipped string
	Judged  bool
	// Ended is how the stream ended before its time: EOF, Unimplemented, or an error.
	Ended string
	// Received counts the events, Replayed those stamped before the subscription, of which the
	// oldest was OldestSeconds old.
	Received, Replayed int
	OldestSeconds      float64
	// Changed are the items that changed between two lists while the stream was open, and Untold the
	// changed items without an event.
	Changed int
	Untold  []Item
}

// HostFacts are facts about the machine. The zero value knows nothing.
type HostFacts struct {
	Node string
	// Seen: processes of the machine can be seen from here.
	Seen bool
	// Unseen is why an area of the machine could not be looked at, by the area's name.
	Unseen map[string]string
	// Dead are the paths about which the kernel gave no answer in time.
	Dead []string
	// Owner is the process listening on the socket.
	Owner Process
	// Shims are the keepers of sandboxes or containers, by ID of a sandbox or container.
	Shims map[string]Process
	// Strays are the runtime's own shims that name nothing listed and ran from the begin of the
	// examination to its end, by the ID of what they keep.
	Strays map[string]Process
	// ShimCPU is the CPU of all shims together, and Shim their number.
	ShimCPU  float64
	ShimsRun int
	// Alive are the listed items with a process in their cgroups, at the begin or the end of the
	// examination. Nil if no cgroup of any process could be read.
	Alive map[string]bool
	// Stuck are processes in uninterruptible sleep, by the container's ID.
	Stuck map[string][]Process
	// Clients counts the connections of others to the socket; Callers are processes with the socket in
	// their arguments.
	Clients int
	Callers []Process
	Disks   []Disk
	// Unsynchronised: the kernel knows of no time source for its clock.
	Unsynchronised bool
	// KubeletHealth is the answer of a kubelet's /healthz, empty for none or ok.
	KubeletHealth string
	// Pressure is the share of the last ten seconds in which all work waited, by resource.
	Pressure map[string]float64
}

// Process is a process of the machine.
type Process struct {
	PID   int
	Name  string
	State string // the kernel's letter: R, S, D, T, Z
	Wait  string // the kernel's function in which the process waits
	// CPU is seconds of CPU in a second.
	CPU float64
}

// Disk is a file system written by the runtime.
type Disk struct {
	Path               string
	Means              string // is said in place of the path, empty for the path
	Mount              string // the folder of the mount
	FreeBytes, Bytes   uint64
	FreeInodes, Inodes uint64
}
