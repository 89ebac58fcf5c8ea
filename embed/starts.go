// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"time"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// StartsTogether is how long [Together] keeps a start for others of its pod that the same read has
// shown.
const StartsTogether = time.Millisecond

// Together returns an event of watch and, if it is a start, those that follow at once, without the
// starts that another event of their pod follows. Together waits for StartsTogether with a start,
// and not with another event.
//
// A kubelet syncs a pod for each event but a removal. A start that another event of the pod follows
// has the kubelet sync once more without news, and wait for a read of its own: a read that shows a
// new sandbox and its container brings two starts.
func Together(ctx context.Context, watch <-chan pleg.Event, e pleg.Event) (events []pleg.Event) {
	if e.Type == pleg.ContainerStarted {
		select {
		case <-time.After(StartsTogether):
		case <-ctx.Done():
		}
	}
	for e.Type == pleg.ContainerStarted {
		next, more := waiting(watch)
		if !more || next.Pod != e.Pod || next.Type == pleg.ContainerRemoved {
			events = append(events, e)
		}
		if !more {
			return events
		}
		e = next
	}
	return append(events, e)
}

// waiting returns the next event, if it is there already.
func waiting(watch <-chan pleg.Event) (e pleg.Event, more bool) {
	select {
	case e, more = <-watch:
	default:
	}
	return e, more
}
