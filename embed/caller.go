// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package embed

import "context"

// Caller names the caller of a list, and is carried by a context; see [As].
type Caller string

// Callers.
const (
	// ByPLEG reads for the generator, and always from the runtime.
	ByPLEG Caller = "pleg"
	// ByHousekeeping is the kubelet's runtime cache, which finds pods that should not run.
	ByHousekeeping Caller = "housekeeping"
	// ByContainerLogs is the manager of container log rotation.
	ByContainerLogs Caller = "container_logs"
	// ByImageGC is the collector of unused images.
	ByImageGC Caller = "image_gc"
	// ByOthers is everybody else: the collection of dead containers, statistics, pod workers.
	ByOthers Caller = "others"
)

type callerKey struct{}

// callInfo is carried by the context of a call.
type callInfo struct {
	by        Caller
	forwarded *bool // set if a list goes to the runtime; owned by the reading goroutine
}

// As returns a context for lists by that caller.
func As(ctx context.Context, by Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, callInfo{by: by})
}

// Tracked is As with a report: forwarded returns whether a list with this context went to the
// runtime. Lists and forwarded must be called from the same goroutine.
func Tracked(ctx context.Context, by Caller) (tracked context.Context, forwarded func() bool) {
	flag := new(bool)
	return context.WithValue(ctx, callerKey{}, callInfo{by, flag}), func() bool { return *flag }
}

func callInfoOf(ctx context.Context) callInfo {
	if a, ok := ctx.Value(callerKey{}).(callInfo); ok {
		return a
	}
	return callInfo{by: ByOthers}
}
