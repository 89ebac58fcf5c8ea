// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	v1 "k8s.io/api/core/v1"
	clientevents "k8s.io/client-go/tools/events"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// SeriesRecorder is like [Recorder], with a recorder for events.k8s.io/v1, such as that of package
// events: Events have an action, and a lasting condition is a single series with a true count.
func SeriesRecorder(recorder clientevents.EventRecorder, node *v1.ObjectReference) pleg.Recorder {
	if recorder == nil {
		return nil
	}
	return recorderFunc(func(report *pleg.Report) {
		about, kind := subject(report, node)
		for range 1 + report.Held { // the series counts
			recorder.Eventf(about, nil, kind, string(report.Reason), report.Action, "%s", report.Note)
		}
	})
}

type recorderFunc func(*pleg.Report)

func (r recorderFunc) Record(report pleg.Report) { r(&report) }
