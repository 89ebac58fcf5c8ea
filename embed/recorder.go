// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// Recorder returns a recorder that tells a generator's reports as Events of the node, or of the pod that a report names, through the kubelet's recorder.
func Recorder(events record.EventRecorder, node *v1.ObjectReference) pleg.Recorder {
	return recorder{events, node}
}

// recorder tells the generator's reports through the kubelet's recorder, which does not block.
type recorder struct {
	events record.EventRecorder
	node   *v1.ObjectReference
}

func (r recorder) Record(report pleg.Report) {
	about, kind := r.node, v1.EventTypeNormal
	if p := report.Pod; p != nil {
		about = &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
	}
	if report.Warning {
		kind = v1.EventTypeWarning
	}
	r.events.Event(about, kind, string(report.Reason), report.Note)
}
