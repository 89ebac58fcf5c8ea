// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package exits

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is the kind of an end, and the reason of its Event.
type Kind string

// The kinds of ends, in the order of [Kinds].
const (
	// OOMKilled: the kernel killed a process of the container for lack of memory. The exit code tells
	// whether the container ended by that.
	OOMKilled Kind = "ContainerOOMKilled"
	// Failed: the container exited with a code other than 0, of its own accord.
	Failed Kind = "ContainerFailed"
	// Killed: a signal other than SIGTERM ended the container.
	Killed Kind = "ContainerKilled"
	// Lost: the runtime did not see the end, or the container was removed before its exit code could
	// be read.
	Lost Kind = "ContainerLost"
	// SandboxDied: the sandbox ended while containers of the pod ran.
	SandboxDied Kind = "SandboxDied"
	// Completed: the container exited with code 0.
	Completed Kind = "ContainerCompleted"
	// Stopped: SIGTERM ended the container. A kubelet reports its own stop of a container (Killing).
	Stopped Kind = "ContainerStopped"
	// NotStarted: the container could not be started. A kubelet reports a failed start (Failed).
	NotStarted Kind = "ContainerNotStarted"
)

// kinds holds the properties of each kind: its short name in configurations, whether the Event is a
// Warning, and whether the kind is reported by default. The defaults leave out the kinds of the
// kubelet's own reports.
var kinds = []struct {
	kind    Kind
	short   string
	warning bool
	chosen  bool
}{
	{OOMKilled, "oom", true, true},
	{Failed, "failed", true, true},
	{Killed, "killed", true, true},
	{Lost, "lost", true, true},
	{SandboxDied, "sandbox", true, true},
	{Completed, "completed", false, true},
	{Stopped, "stopped", false, false},
	{NotStarted, "not-started", true, false},
}

// Kinds returns all kinds.
func Kinds() []Kind {
	all := make([]Kind, len(kinds))
	for i, k := range kinds {
		all[i] = k.kind
	}
	return all
}

// DefaultKinds returns the kinds of a [Choice] without kinds: all kinds without a report by the
// kubelet.
func DefaultKinds() []Kind {
	var chosen []Kind
	for _, k := range kinds {
		if k.chosen {
			chosen = append(chosen, k.kind)
		}
	}
	return chosen
}

// ParseKind returns the kind with a short name (oom, failed, killed, lost, sandbox, completed,
// stopped, not-started) or a full name.
func ParseKind(name string) (Kind, error) {
	var short []string
	for _, k := range kinds {
		if name == k.short || name == string(k.kind) {
			return k.kind, nil
		}
		short = append(short, k.short)
	}
	return "", fmt.Errorf("exits: no kind of end is named %q: use %s", name, strings.Join(short, ", "))
}

// Short returns the short name of a kind, as configurations and metrics have it.
func (k Kind) Short() string {
	for _, known := range kinds {
		if k == known.kind {
			return known.short
		}
	}
	return "other"
}

// Warning reports whether the Event is a Warning, otherwise Normal.
func (k Kind) Warning() bool {
	for _, known := range kinds {
		if k == known.kind {
			return known.warning
		}
	}
	return true
}

// End is an end of a container, or of a sandbox under running containers.
type End struct {
	Kind Kind `json:"kind"`
	Pod  Ref  `json:"pod"`
	// Labels are the pod's.
	Labels map[string]string `json:"-"`
	// ID is the container, or the sandbox for SandboxDied.
	ID string `json:"id"`
	// Container is the container's name, empty for SandboxDied.
	Container string `json:"container,omitempty"`
	// Attempt holds unless Unshown.
	Attempt uint32 `json:"attempt,omitempty"`
	// ExitCode holds if CodeKnown.
	ExitCode  int32 `json:"exitCode,omitempty"`
	CodeKnown bool  `json:"codeKnown,omitempty"`
	// Reason and Message are the runtime's, with unprintable characters escaped.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// StartedAt and FinishedAt are the runtime's stamps; zero if unknown.
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// MemoryLimit is the container's, in bytes; 0: none, or unknown.
	MemoryLimit int64 `json:"memoryLimit,omitempty"`
	// Running are the names of the containers that ran, for SandboxDied.
	Running []string `json:"running,omitempty"`
	// Settled reports whether the status was read Config.Settle after the end. Otherwise the container
	// was removed before, or could not be read.
	Settled bool `json:"settled,omitempty"`
	// Unread reports whether the container is still there, and its status could not be read.
	Unread bool `json:"unread,omitempty"`
	// Unshown reports whether no status has ever shown the container: its end is known from an event.
	Unshown bool `json:"unshown,omitempty"`
	// Again reports whether the container was started again, under its ID, before its end was read.
	Again bool `json:"again,omitempty"`
	// SeenAt is when the end was first seen, with a monotonic reading.
	SeenAt time.Time `json:"-"`
	// Note is the text of the Event.
	Note string `json:"note"`
}

// Exit codes with the same meaning in all runtimes.
const (
	codeStart   = 128 // the start failed; the reason reports the failure
	codeSignal  = 128 // and the signal's number
	codeUnknown = 255 // with the reason "Unknown"
	sigKill     = 9
	sigTerm     = 15
	lastSignal  = 64
)

// Signal returns the number of the signal that ended the container, 0 for none.
func (e *End) Signal() int {
	signal := int(e.ExitCode) - codeSignal
	if !e.CodeKnown || signal <= 0 || signal > lastSignal {
		return 0
	}
	return signal
}

// Ran returns how long the container ran, 0 if unknown.
func (e *End) Ran() time.Duration {
	if e.StartedAt.IsZero() || e.FinishedAt.IsZero() {
		return 0
	}
	return max(0, e.FinishedAt.Sub(e.StartedAt))
}

// startReasons are the reasons of failed starts: containerd's, CRI-O's and dockershim's.
var startReasons = []string{"StartError", "ContainerCannotRun", "RunContainerError"}

// classify returns the kind of the end of a container.
func classify(e *End) Kind {
	switch {
	case e.Reason == "OOMKilled":
		return OOMKilled
	case slices.Contains(startReasons, e.Reason), e.StartedAt.IsZero() && !e.FinishedAt.IsZero():
		return NotStarted
	case !e.CodeKnown, e.ExitCode == codeUnknown && e.Reason == "Unknown", e.ExitCode < 0:
		return Lost
	case e.ExitCode == 0:
		return Completed
	case e.Signal() == sigTerm:
		return Stopped
	case e.Signal() != 0:
		return Killed
	}
	return Failed
}
