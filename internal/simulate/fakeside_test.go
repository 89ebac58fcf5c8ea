// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"sync"
	"testing"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

// TestPullDropsNoWriting takes the history over while containers are made: the first content of
// each must arrive, or an honest status looks invented later.
func TestPullDropsNoWriting(t *testing.T) {
	const containers = 300
	rt, err := fakeruntime.New(fakeruntime.Config{HistoryLimit: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	sandbox, err := rt.AddPod(fakeruntime.PodSpec{UID: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSide{w: &world{truth: NewTruth(), settings: settings{content: true}}, rt: rt}

	var made sync.WaitGroup
	made.Go(func() {
		for range containers {
			if _, err := rt.AddContainer(sandbox, fakeruntime.ContainerSpec{}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for f.w.truth.size("p1") < containers+1 && !t.Failed() {
		f.pull()
	}
	made.Wait()
	f.pull() // the content of the last one may still be missing
	for _, l := range f.w.truth.lives {
		if len(l.texts) != 1 {
			t.Errorf("%s has %d contents, want 1", l.id, len(l.texts))
		}
	}
}
