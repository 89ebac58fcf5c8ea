// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"fmt"
	"testing"

	"github.com/evented-pleg/evented-pleg/cache"
)

func TestOutboxOwesOnePodSyncPerPod(t *testing.T) {
	o := newOutbox(2)
	for i := range 5 {
		for range 3 {
			o.put(&Event{Pod: cache.UID(fmt.Sprint(i)), Type: ContainerStarted})
		}
	}
	// Two events of pod 0 found room; its third and all others are owed.
	if len(o.owed) != 5 {
		t.Fatalf("%d pods owed, want 5", len(o.owed))
	}
	var got []string
	for len(o.ch) > 0 {
		e := <-o.ch
		got = append(got, fmt.Sprintf("%s %s", e.Pod, e.Type))
		if len(o.owed) > 0 { // as the loop does
			o.ch <- o.next()
			o.delivered()
		}
	}
	want := "[0 ContainerStarted 0 ContainerStarted 0 PodSync 1 PodSync 2 PodSync 3 PodSync 4 PodSync]"
	if fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if o.put(&Event{Pod: "0"}) {
		t.Error("an event was owed although nothing is in its way")
	}
}

func TestOutboxForgivesTheGone(t *testing.T) {
	o := newOutbox(1)
	for i := range 5001 {
		o.put(&Event{Pod: cache.UID(fmt.Sprint(i))})
	}
	live := func(uid cache.UID) bool { return uid == "1" || uid == "4000" }
	if n := o.dropOldest(10, live); n != 4988 { // the first event found room
		t.Errorf("forgave %d, want 4988", n)
	}
	if n := o.dropOldest(10, live); n != 0 {
		t.Errorf("forgave %d of no more than are owed", n)
	}
	if o.next().Pod != "1" {
		t.Errorf("the oldest debt is of pod %q, want 1", o.next().Pod)
	}
	found := 0
	for len(o.owed) > 0 {
		if live(o.next().Pod) {
			found++
		}
		o.delivered()
	}
	if found != 2 {
		t.Errorf("%d of 2 living pods are still owed", found)
	}
	if o.order.len() != 0 {
		t.Errorf("%d debts left in the queue", o.order.len())
	}
}
