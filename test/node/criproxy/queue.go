// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"time"
)

// maxHeld bounds the replies of a call that faults hold. A client that reads slowly holds none: the
// runtime notices.
const maxHeld = 1 << 16

// A reply is on its way to the client.
type reply struct {
	data []byte
	due  time.Time       // not before
	gate <-chan struct{} // not before its close; nil: no gate
	cut  *conn           // cut in the middle of this reply; nil: no cut
}

// deliver sends replies in their order until the end of in. It owns the replies that wait.
func deliver(ctx context.Context, in <-chan reply, send func(reply) error) error {
	var waiting []reply
	for in != nil || len(waiting) > 0 {
		next, due, gate := in, (<-chan time.Time)(nil), (<-chan struct{})(nil)
		if len(waiting) >= maxHeld {
			next = nil
		}
		if len(waiting) > 0 {
			if gate = waiting[0].gate; gate == nil {
				due = time.After(time.Until(waiting[0].due))
			}
		}
		select {
		case r, ok := <-next:
			if !ok {
				in = nil
				continue
			}
			waiting = append(waiting, r)
		case <-gate:
			waiting[0].gate = nil
		case <-due:
			if err := send(waiting[0]); err != nil {
				return err
			}
			waiting = waiting[1:]
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
