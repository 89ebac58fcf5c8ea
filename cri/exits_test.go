// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/cache"
	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestExitOfAContainerThatCannotBeRead ends a container whose status cannot be read for a while.
// Its ContainerDied comes before its exit code, the pod's status says so, and a PodSync brings it.
func TestExitOfAContainerThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		has := map[string]runtimeapi.ContainerState{"c1": running, "c2": running}
		s := statuses(0, nil, has)
		s.sandboxes = []*runtimeapi.PodSandbox{sandbox("s1", "u", ready)}
		s.containers = []*runtimeapi.Container{container("c1", "s1", "u", running), container("c2", "s1", "u", running)}
		broken := false
		readable := s.containerStatus
		s.containerStatus = func(id string) (r *runtimeapi.ContainerStatusResponse, err error) {
			s.set(func() {
				if broken && id == "c1" {
					err = status.Error(codes.Unknown, "the shim does not answer")
					return
				}
				r, err = readable(id)
			})
			return r, err
		}
		c := serve(t, s, Config{})
		statuses := cache.New(EmptyStatus)
		generator := must(pleg.New(pleg.Config[PodStatus]{Source: c, Cache: statuses}))(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- generator.Run(ctx) }()
		time.AfterFunc(3*time.Second, func() {
			s.set(func() {
				broken = true
				has["c1"] = exited
				s.containers[0] = container("c1", "s1", "u", exited)
			})
		})
		time.AfterFunc(6*time.Second, func() { s.set(func() { broken = false }) })
		time.AfterFunc(time.Minute, stop)
		died := false
		synced := false
		for event := range generator.Watch() {
			pod, _ := statuses.Get("u")
			_, _, known := c.Exit("c1")
			switch {
			case event.Type == pleg.ContainerDied:
				died = true
				if known || !slices.Contains(pod.Unread(), "c1") {
					t.Errorf("%v: exit known %v, unread %v", event, known, pod.Unread())
				}
			case died && event.Type == pleg.PodSync && len(pod.Unread()) == 0:
				synced = synced || known
			}
		}
		if !died || !synced {
			t.Errorf("died %v, the exit is known at a PodSync %v", died, synced)
		}
		<-ended
	})
}
