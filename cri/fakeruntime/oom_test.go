// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeruntime

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheReasonOfAnOOMKillComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := must(New(Config{}))(t)
		defer rt.Close()
		sandbox := must(rt.AddPod(PodSpec{UID: "u"}))(t)
		id := must(rt.AddContainer(sandbox, ContainerSpec{}))(t)
		if err := rt.OOMKill(id, 0); !errors.Is(err, ErrState) {
			t.Errorf("a container before its start: %v", err)
		}
		for _, err := range []error{rt.Start(id), rt.OOMKill(id, 20*time.Millisecond)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		shown := func() TruthContainer {
			pod, _ := rt.PodTruth("u")
			return pod.Sandboxes[0].Containers[0]
		}
		if c := shown(); c.State != StateExited || c.ExitCode != 137 || c.Reason != "Error" {
			t.Errorf("at first: %+v", c)
		}
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if c := shown(); c.Reason != "OOMKilled" {
			t.Errorf("later: %+v", c)
		}
	})
}

// The late reason is content that changes without an event, and stands in the history of contents.
func TestLateReasonIsWritten(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		sb := must(w.rt.AddPod(PodSpec{}))(t)
		c := must(w.rt.AddContainer(sb, ContainerSpec{}))(t)
		check(t, w.rt.Start(c))
		check(t, w.rt.OOMKill(c, time.Second))
		time.Sleep(2 * time.Second)
		writings, _ := w.rt.Contents(0)
		last := writings[len(writings)-1]
		if want := ContainerText(exitKilled, reasonOOM, 0); last.ID != c || last.Text != want {
			t.Errorf("the last writing is %+v, want %q of %q", last, want, c)
		}
	})
}
