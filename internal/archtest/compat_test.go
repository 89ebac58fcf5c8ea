// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	clientevents "k8s.io/client-go/tools/events"

	"github.com/evented-pleg/evented-pleg/events"
	"github.com/evented-pleg/evented-pleg/metrics"
)

// Package events compiles against client-go v0.36 too, which does not have this interface: hence
// here.
var _ clientevents.AnnotatedEventRecorder = (*events.Recorder)(nil)

// The modules of both know nothing of each other.
var _ = func(r metrics.Registry, b *events.Broadcaster) error { return metrics.NewEvents(r, b.Metrics) }
