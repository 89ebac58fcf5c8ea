// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cr022

package controllerruntime

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/evented-pleg/evented-pleg/events"
)

// newer is nothing: managers of 0.22 have recorders with the older interface only.
func newer(*testing.T, ctrl.Manager, *events.Broadcaster, *corev1.Pod) []string { return nil }
