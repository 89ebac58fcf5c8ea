// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"testing"
	"time"

	"github.com/evented-pleg/evented-pleg/cri"
	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestExitCode reads the exit code of a removed container, once from an event and once from a read.
func TestExitCode(t *testing.T) {
	for name, learn := range map[string]func(w *world, pod pleg.Pod){
		"event": func(w *world, _ pleg.Pod) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			for range w.client.Events(ctx) { // until the time is up
			}
		},
		"read": func(w *world, pod pleg.Pod) {
			time.Sleep(2 * time.Second) // of the bubble: the container ends
			_, err := w.client.Inspect(context.Background(), pod)
			w.check(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, "containerd-2", fakeruntime.Faults{}, func(w *world) {
				sandbox := w.sandbox(fakeruntime.PodSpec{UID: "u", Name: "n", Namespace: "ns"})
				id := w.container(sandbox, fakeruntime.ContainerSpec{Name: "c", Life: fakeruntime.After(time.Second, 7)})
				w.check(w.rt.Start(id))
				if _, ok := w.client.ExitCode(id); ok {
					w.Error("a running container has an exit code")
				}
				learn(w, pleg.Pod{UID: "u", Items: []pleg.Item{{ID: sandbox, Kind: pleg.Sandbox}, {ID: id}}})
				if code, ok := w.client.ExitCode(id); !ok || code != 7 {
					w.Errorf("exit code %d, known %t; want 7", code, ok)
				}
			})
		})
	}
	client := must(cri.New(cri.Config{Endpoint: "/nowhere"}))
	defer client.Close()
	if _, ok := client.ExitCode("unknown"); ok {
		t.Error("an unknown container has an exit code")
	}
}
