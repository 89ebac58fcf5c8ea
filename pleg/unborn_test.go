// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evented-pleg/evented-pleg/cache"
)

// asks asks for a pod as a worker does, and returns how often the runtime was asked to list it.
func (b *bed) asks(uid cache.UID) (listed int) {
	b.t.Helper()
	synctest.Wait()
	_, before, _ := b.toy.counts()
	if _, err := b.cache.GetNewerThan(b.t.Context(), uid, time.Now()); err != nil {
		b.t.Error(err)
	}
	_, after, _ := b.toy.counts()
	return after - before
}

// fails makes a call of the agent's own that makes a sandbox and fails.
func (b *bed) fails(uid cache.UID) {
	b.t.Helper()
	b.gen.Calling(OwnCall{Pod: PodRef{UID: uid, Name: string(uid)}})(errors.New("deadline exceeded"))
}

// TestWhatAFailedCallMayMakeOutlivesItsPod: a pod of which a call that makes something has failed
// is listed for whoever asks, even if it has been forgotten meanwhile. Such pods are bounded: once
// one has been given up, every pod is listed until a list of everything has shown what there is.
func TestWhatAFailedCallMayMakeOutlivesItsPod(t *testing.T) {
	inBubble(t, func(c *Config[status], _ *toyRuntime) { c.TellsCalls = true }, func(b *bed) {
		time.Sleep(40 * time.Second) // lists are rare by now: the next one is 20 s away
		b.fails("p")
		b.quiet()
		b.calls(ackPod, ackSandbox, false)
		returned := b.gen.Calling(OwnCall{Pod: PodRef{UID: "q", Name: "q"}})
		b.toy.set("q", Sandbox, "t", PhaseRunning)
		returned(nil, Item{ID: "t", Kind: Sandbox, Phase: PhaseRunning})
		b.quiet()
		if listed := b.asks("p"); listed != 1 {
			t.Errorf("the failed call may yet make something of its pod, which was listed %d times; want once", listed)
		}
		if listed := b.asks("q"); listed != 0 {
			t.Errorf("a pod without a failed call was listed %d times, want by its IDs", listed)
		}
		remembered := func() (n int, last cache.UID) {
			synctest.Wait()
			n = len(b.gen.core.uncertainCreates)
			return n, b.gen.core.uncertainCreates[n-1]
		}
		for i := range uncertainCreatesMax {
			b.fails(cache.UID(fmt.Sprint("u", i)))
		}
		b.quiet()
		if n, _ := remembered(); n != uncertainCreatesMax {
			t.Errorf("%d pods without a record are remembered, want %d", n, uncertainCreatesMax)
		}
		if listed := b.asks("q"); listed != 0 {
			t.Errorf("as many pods as are remembered have failed, and another one was listed %d times", listed)
		}
		b.fails("u0") // it has a record for as long as it is read
		b.quiet()
		if n, last := remembered(); n != uncertainCreatesMax || last != "u0" {
			t.Errorf("%d pods without a record are remembered, the last is %s; want %d, u0", n, last, uncertainCreatesMax)
		}
		b.fails("v")
		b.quiet()
		if n, last := remembered(); n != uncertainCreatesMax || last != "v" {
			t.Errorf("%d pods without a record are remembered, the last is %s; want %d, v", n, last, uncertainCreatesMax)
		}
		if listed := b.asks("q"); listed != 1 {
			t.Errorf("a pod was given up, and another one was listed %d times, want once", listed)
		}
		b.gen.RequestRelist("")
		b.quiet()
		if listed := b.asks("q"); listed != 0 {
			t.Errorf("a list has shown what there is, and the pod was listed %d times", listed)
		}
	})
}
