// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "github.com/evented-pleg/evented-pleg/cache"

// Recorder takes the generator's reports about itself, to be told as Kubernetes Events. Record is
// called from the generator's loop and must not block.
type Recorder interface {
	Record(Report)
}

// Report is one thing that an operator would want to know of. Every report is about the node unless
// Pod is set. Reports of one reason repeat while the condition lasts, ever more rarely.
type Report struct {
	Reason  Reason
	Action  string
	Warning bool
	Note    string
	Pod     *PodRef
	// Held is how often this has come up, unreported, since the last report of its reason: what
	// goes on about the node is reported at once, and then after 10 s, 40 s, 160 s and every ten
	// minutes. What was held back and has not come up again is reported when the pause is over, with
	// its age at the end of the note.
	Held int
}

// PodRef names a pod.
type PodRef struct {
	UID       cache.UID
	Name      string
	Namespace string
}

// Reason is the reason of a [Report], in the form of an Event's reason.
type Reason string

const (
	// ReasonStreamLost: a connected stream ended, or hung and was ended; the generator polls at the
	// base period. The note says why.
	ReasonStreamLost Reason = "ContainerEventStreamLost"
	// ReasonStreamRestored: the stream is connected again.
	ReasonStreamRestored Reason = "ContainerEventStreamRestored"
	// ReasonStreamUnsupported: the runtime offers no events; the generator polls.
	ReasonStreamUnsupported Reason = "ContainerEventStreamUnsupported"
	// ReasonEventsMissed: a read found changes that the stream did not tell. The note names the first.
	ReasonEventsMissed Reason = "ContainerEventsMissed"
	// ReasonEventsOverruled: a read took back what the stream had told. The note names the first
	// pod and ID; one report in ten seconds at most.
	ReasonEventsOverruled Reason = "ContainerEventsOverruled"
	// ReasonChangesUnheard: lists found changes while the stream was down. The note names the first.
	ReasonChangesUnheard Reason = "ContainerChangesUnheard"
	// ReasonRelistHangs: a list of everything has been under way for longer than RelistSlow.
	ReasonRelistHangs Reason = "RelistHangs"
	// ReasonRelistSlow: a list of everything took longer than RelistSlow.
	ReasonRelistSlow Reason = "RelistSlow"
	// ReasonRelistFailed: a list of everything failed.
	ReasonRelistFailed Reason = "RelistFailed"
	// ReasonInspectFailed: a pod's status cannot be read; it stands on that pod.
	ReasonInspectFailed Reason = "PodInspectFailed"
	// ReasonIDConflict: the runtime shows an ID of the pod that it has shown of another one; it
	// stands on the pod, once.
	ReasonIDConflict Reason = "ContainerIDConflict"
	// ReasonWatchOverflow: Watch is not being read; events became PodSyncs.
	ReasonWatchOverflow Reason = "PodLifecycleEventsOverflow"
)

type noRecorder struct{}

func (noRecorder) Record(Report) {}
