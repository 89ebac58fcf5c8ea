// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// retryUnavailable is the pause between tries of a call to an unready runtime.
const retryUnavailable = 50 * time.Millisecond

// Call is a finished call of the load.
type Call struct {
	// At is a bench.Stamp of the begin.
	At   int64
	Took time.Duration
}

// Stats is the progress of a load.
type Stats struct {
	// Changes counts the intended state changes, Actions the completed actions, Broken the abandoned
	// actions.
	Changes, Actions, Broken int
	// UnderWay is the number of unfinished actions.
	UnderWay int
	// Errors counts failed calls by method, FirstErrors has the first error of each.
	Errors      map[string]int
	FirstErrors map[string]string
	// Calls are the successful changing calls, in the order of their ends.
	Calls []Call
	// Behind is how late the load is against its rate.
	Behind time.Duration
}

// counters are shared by the load's goroutines.
type counters struct {
	mu    sync.Mutex // owns the fields below
	stats Stats
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Errors, s.FirstErrors = maps.Clone(s.Errors), maps.Clone(s.FirstErrors)
	s.Calls = s.Calls[:len(s.Calls):len(s.Calls)]
	return s
}

func (c *counters) add(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

// invoke makes a changing call for a pod, and repeats the call while the runtime is not ready.
func invoke[Q, A any](
	ctx context.Context, d *Driver, p *pod, method string, call func(context.Context, Q, ...grpc.CallOption) (A, error), request Q,
) (answer A, err error) {
	for begun := time.Now(); ; {
		start := time.Now()
		err = d.ask(ctx, func(ctx context.Context) error {
			start = time.Now()
			answer, err = call(ctx, request)
			return err
		})
		if err == nil {
			d.counters.add(func(s *Stats) { s.Calls = append(s.Calls, Call{At: bench.Stamp(start), Took: time.Since(start)}) })
			return answer, nil
		}
		says := status.Convert(err).Message()
		if err = fmt.Errorf("load: %s of pod %s: %w", method, p.uid, err); ctx.Err() != nil {
			return answer, err
		}
		d.counters.add(func(s *Stats) {
			if s.Errors == nil {
				s.Errors, s.FirstErrors = make(map[string]int), make(map[string]string)
			}
			if s.Errors[method]++; s.Errors[method] == 1 {
				s.FirstErrors[method] = says
			}
		})
		if status.Code(err) != codes.Unavailable || time.Since(begun) > d.config.CallTimeout || bench.Sleep(ctx, retryUnavailable) != nil {
			d.config.Logger.V(1).Info("call failed", "method", method, "err", err)
			return answer, err
		}
	}
}

// gone reports whether a call failed because its object is not there any more.
func gone(err error) bool { return status.Code(err) == codes.NotFound }

// ask makes a call once there is room for it.
func (d *Driver) ask(ctx context.Context, f func(context.Context) error) error {
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, d.config.CallTimeout)
	defer cancel()
	return f(ctx)
}
