// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/events/eventstest"
)

// TestFailedAndCarriedOut: the server fails after it has carried a call out, as a gateway may that
// gives up too early. No occurrence is told twice.
func TestFailedAndCarriedOut(t *testing.T) {
	for _, code := range []int32{500, 502, 503, 504} {
		for _, verb := range []eventstest.Verb{eventstest.Create, eventstest.Patch} {
			t.Run(fmt.Sprint(code, " of a ", verb), func(t *testing.T) {
				bubble(t, nil, func(t *testing.T, r *rig) {
					failed := false
					r.server.SetAfterFault(func(c eventstest.Call) error {
						if failed || c.Verb != verb {
							return nil
						}
						failed = true
						return status(code, "", 0)
					})
					for range 3 {
						r.pod("a", 1)
						pass(time.Minute)
					}
					if !failed {
						t.Error("no call has failed: the test proves nothing")
					}
					r.wantTold("Ongoing ×3")
					r.wantBooks(0, 0)
				})
			})
		}
	}
}

// TestOneTryWithoutCredentials: while credentials rotate, the server takes no call at all. One call
// finds that out, and not one of each object.
func TestOneTryWithoutCredentials(t *testing.T) {
	bubble(t, func(o *Options) { o.Writers = 1 }, func(t *testing.T, r *rig) {
		r.server.SetFault(during(r.opts.BackoffBase/4, status(401, "", 0)))
		r.pods(5, 1)
		pass(r.opts.BackoffBase / 4)
		r.wantVerbs("create!")
		pass(time.Minute)
		r.wantStored(5)
	})
}

// TestACallThatHadItsTime: a call that had all of its time is a failure, after which the recorder
// waits. Nobody has stopped it.
func TestACallThatHadItsTime(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.server.SetFault(slowly(time.Hour))
		r.pod("a", 1)
		pass(writeTimeout)
		if s := r.Stats(); s.Retries["Transport"] != 1 {
			t.Errorf("retries %v, want one", s.Retries)
		}
		r.wantVerbs("create!")
	})
}
