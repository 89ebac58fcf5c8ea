// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// bounds are the limits of a buffer.
type bounds struct{ count, bytes int }

// buffer holds the replies received and not yet handed on. Put never waits.
type buffer struct {
	bounds bounds
	// full ends when a reply finds no room; overflow ends it.
	full context.Context
	fill context.CancelFunc
	// news has room for one wake of the goroutine in get.
	news chan struct{}

	mu      sync.Mutex // owns the fields below, for moments only
	waiting [][]byte
	bytes   int
	// dropped counts the replies without room; reason is why the buffer keeps no further reply.
	dropped int
	reason  string
	// ended is the end of the replies, nil before.
	ended error
}

func newBuffer(b bounds) *buffer {
	q := &buffer{bounds: b, news: make(chan struct{}, 1)}
	q.full, q.fill = context.WithCancel(context.Background())
	return q
}

// put adds a reply, or drops the reply if there is no room.
func (q *buffer) put(data []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.reason == "" &&
		(len(q.waiting) >= q.bounds.count || q.bytes+len(data) > q.bounds.bytes && len(q.waiting) > 0) {
		q.reason = fmt.Sprintf("%d messages of %d bytes wait to be taken", len(q.waiting), q.bytes)
		q.fill()
	}
	if q.reason != "" {
		q.dropped++
		return
	}
	q.waiting = append(q.waiting, data)
	q.bytes += len(data)
	q.wake()
}

// overflow drops everything from now on.
func (q *buffer) overflow(reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.reason == "" {
		q.reason = reason
	}
	q.fill()
}

// end enters the end of the replies.
func (q *buffer) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = err
	q.wake()
}

// wake wakes the goroutine in get. The caller holds mu.
func (q *buffer) wake() {
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// errHandedOn is the end of a call with all replies handed on.
var errHandedOn = errors.New("all was handed on")

// leftStream begins the message of a stream left by the reader.
const leftStream = "the reader of pleg-bench left the stream,"

// get waits for the next reply, or for the end: nil as an error of a call is errHandedOn.
func (q *buffer) get(ctx context.Context) ([]byte, error) {
	for {
		data, err, ok := q.next()
		if ok {
			return data, err
		}
		select {
		case <-q.news:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// next returns the next reply or the end, and false while there is none.
func (q *buffer) next() ([]byte, error, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.waiting) > 0:
		data := q.waiting[0]
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		q.bytes -= len(data)
		return data, nil, true
	case q.ended == nil:
		return nil, nil, false
	case q.reason != "":
		return nil, status.Errorf(codes.Unavailable, "%s because %s; it dropped %s since", leftStream, q.reason, bench.Count(q.dropped, "message")), true
	case errors.Is(q.ended, io.EOF):
		return nil, errHandedOn, true
	}
	return nil, q.ended, true
}
