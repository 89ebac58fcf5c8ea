// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// Recorder returns a recorder that tells a generator's reports as Events of the node, or of the pod
// that a report names, through the kubelet's recorder, which must not block. What goes on about the
// node is told at once, and then again after 1, 4, 16 and every 60 minutes, with how often it came
// up; what has not come up again is told then too, with its age. What has rested for an hour begins
// anew. Where several things go on at once, all but a lost
// stream may be told later than that, so that together they stay within the 25 Events and one in
// five minutes that client-go's recorder lets through.
func Recorder(recorder record.EventRecorder, node *v1.ObjectReference) pleg.Recorder {
	return newSparing(recorder, node)
}

// SeriesRecorder does what [Recorder] does through a recorder for events.k8s.io/v1, such as the one
// of package events: with an action, and as one series, with a true count, for what goes on for
// long.
func SeriesRecorder(recorder clientevents.EventRecorder, node *v1.ObjectReference) pleg.Recorder {
	return reporter(func(report *pleg.Report) {
		about, kind := subject(report, node)
		for range 1 + report.Held { // the series counts
			recorder.Eventf(about, nil, kind, string(report.Reason), report.Action, "%s", report.Note)
		}
	})
}

type reporter func(*pleg.Report)

func (r reporter) Record(report pleg.Report) { r(&report) }

// subject returns what a report is about, and its event type.
func subject(report *pleg.Report, node *v1.ObjectReference) (about *v1.ObjectReference, kind string) {
	about, kind = node, v1.EventTypeNormal
	if p := report.Pod; p != nil {
		about = &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
	}
	if report.Warning {
		kind = v1.EventTypeWarning
	}
	return about, kind
}
