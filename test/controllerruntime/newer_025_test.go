// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !cr022 && !cr023 && !cr024

package controllerruntime

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/evented-pleg/evented-pleg/events"
)

// doc: recorder of 0.25

// seriesManager is a manager with series recorders of the newer interface, too.
type seriesManager struct {
	ctrl.Manager
	broadcaster *events.Broadcaster
}

func (m seriesManager) GetEventRecorder(name string) recorder.EventRecorder {
	return m.broadcaster.NewSeriesRecorder(m.GetScheme(), name)
}

// doc: end

// newer records by the newer interface.
func newer(t *testing.T, manager ctrl.Manager, broadcaster *events.Broadcaster, pod *corev1.Pod) []string {
	t.Helper()
	recorder := seriesManager{manager, broadcaster}.GetEventRecorder("web-controller")
	for i := range 100 {
		recorder.AnnotatedEventf(
			pod,
			nil,
			map[string]string{"example.com/a": "b"},
			corev1.EventTypeNormal,
			"Reconciled",
			"Reconcile",
			"try %d",
			i,
		)
	}
	return []string{"web-controller Reconciled try 0 ×100"}
}
