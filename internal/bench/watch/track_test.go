// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestThinned wants a list of many values to be bounded, even and from all of its time.
func TestThinned(t *testing.T) {
	l := thinned[int]{most: 8}
	for i := range 1000 {
		l.add(i)
		if len(l.list) > l.most {
			t.Fatalf("%d values are kept of %d, at most %d may be", len(l.list), i+1, l.most)
		}
	}
	for i, v := range l.list {
		if v != i*l.every {
			t.Errorf("value %d is %d, want every %dth: %v", i, v, l.every, l.list)
		}
	}
	if last := l.list[len(l.list)-1]; last < 1000-l.every {
		t.Errorf("the last value kept is %d of 1000, with every %dth kept", last, l.every)
	}
}

// TestWhy: why a stream ended is said once, in the runtime's words.
func TestWhy(t *testing.T) {
	answer := status.Error(codes.Unimplemented, "unknown method")
	for want, err := range map[string]error{
		"EOF, an orderly end by the runtime":   io.EOF,
		"closed by this PLEG, to open it anew": fmt.Errorf("cri: %w", context.Canceled),
		"Unimplemented: unknown method":        fmt.Errorf("cri: events on x: %w: %w", pleg.ErrNoEvents, answer),
		"Unavailable: gone":                    fmt.Errorf("cri: events on x: %w", status.Error(codes.Unavailable, "gone")),
		"a message that is no event":           fmt.Errorf("cri: %w of 3 bytes", cri.ErrMalformed),
		"no such file":                         errors.New("no such file"),
		"cri: " + cri.ErrMessageSize.Error() + ": raise it: rpc error: code = ResourceExhausted desc = large": fmt.Errorf(
			"cri: %w: raise it: %w", cri.ErrMessageSize, status.Error(codes.ResourceExhausted, "large")),
	} {
		if got := why(err); got != want {
			t.Errorf("why(%v) is %q, want %q", err, got, want)
		}
	}
}
