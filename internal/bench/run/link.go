// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// link knows of the load's connection to a real runtime whether it stands, and whether it was lost.
// Its methods are safe for concurrent use; those of nil know a connection that stands.
type link struct {
	conn   *grpc.ClientConn
	losses atomic.Int64
}

// stands reports whether the runtime is connected.
func (l *link) stands() bool { return l == nil || l.conn.GetState() == connectivity.Ready }

// lost counts how often the connection was lost.
func (l *link) lost() int64 {
	if l == nil {
		return 0
	}
	return l.losses.Load()
}

// watch counts the losses until ctx ends.
func (l *link) watch(ctx context.Context) {
	stood := false
	for {
		state := l.conn.GetState()
		stands := state == connectivity.Ready
		if stood && !stands {
			l.losses.Add(1)
		}
		stood = stands
		if !l.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// cut is the error of a step of a stress test in which the runtime was lost: it has not shown how
// fast the runtime is.
type cut struct {
	endpoint string
	rate     float64
}

// Error names the rate, and what to look at.
func (c *cut) Error() string {
	return fmt.Sprintf(
		"%s: the runtime has ended, or closed its connections, at %.3g containers/s: %s",
		c.endpoint, c.rate, remedy(c.endpoint),
	)
}

// remedy says what to look at where a runtime has gone.
func remedy(endpoint string) string {
	return fmt.Sprintf("see its log and its state (systemctl status containerd crio; pleg-bench doctor --endpoint %s)", endpoint)
}
