// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"fmt"

	eventsv1 "k8s.io/api/events/v1"
)

// line is a stored event in short.
func line(controller, reason, note string, series *eventsv1.EventSeries) string {
	count := int32(1)
	if series != nil {
		count = series.Count
	}
	return fmt.Sprintf("%s %s %s ×%d", controller, reason, note, count)
}
