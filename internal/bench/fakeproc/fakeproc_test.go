// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package fakeproc_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/internal/bench"
	"github.com/evented-pleg/evented-pleg/internal/bench/child"
	"github.com/evented-pleg/evented-pleg/internal/bench/fakeproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves a runtime until the test ends, and returns it and the calls.
func serve(t *testing.T) (rt *fakeruntime.Runtime, control fakeproc.Control) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	if rt, err = fakeruntime.New(fakeruntime.Config{}); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "cri")
	in, calls := io.Pipe()
	answers, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- fakeproc.Serve(context.Background(), fakeproc.Config{Socket: socket, Runtime: rt, In: in, Out: out})
		out.Close()
	}()
	control.Calls = child.NewCalls(answers, calls)
	if _, err := control.Report(t.Context(), 0); err != nil {
		t.Fatal(err, <-served)
	}
	t.Cleanup(func() {
		_ = control.Calls.Close() // ends Serve
		if err := <-served; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(socket); !os.IsNotExist(err) {
			t.Errorf("%s was left behind", socket)
		}
		_ = os.RemoveAll(dir)
	})
	return rt, control
}

func TestControlTellsTheHistory(t *testing.T) {
	rt, control := serve(t)
	before := bench.Now()
	sandbox, err := rt.AddPod(fakeruntime.PodSpec{UID: "u"})
	if err != nil {
		t.Fatal(err)
	}
	id, err := rt.AddContainer(sandbox, fakeruntime.ContainerSpec{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := control.Report(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Changes) != 2 || first.Changes[0].ID != sandbox || !first.Changes[0].Sandbox || first.Changes[1].ID != id || first.Changes[1].State != bench.Created {
		t.Fatalf("changes %+v, want the sandbox and the container", first.Changes)
	}
	if err := rt.Start(id); err != nil {
		t.Fatal(err)
	}
	if err := rt.Exit(id, 3); err != nil {
		t.Fatal(err)
	}
	second, err := control.Report(t.Context(), first.Next)
	if err != nil {
		t.Fatal(err)
	}
	if len(second.Changes) != 2 || second.Changes[0].State != bench.Running || second.Changes[1].State != bench.Exited || second.Dropped != 0 {
		t.Errorf("changes %+v, want the start and the exit alone", second.Changes)
	}
	for _, c := range append(first.Changes, second.Changes...) {
		if c.At < before || c.At > bench.Now() || c.Pod != "u" {
			t.Errorf("%+v did not happen to that pod during the test", c)
		}
	}
	if second.Stats.Events.Emitted == 0 || second.Stats.RPCs == nil {
		t.Errorf("stats %+v are empty", second.Stats)
	}
}
