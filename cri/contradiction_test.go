// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestAContradictionThatLastsIsReadWithEachList: the lists of a runtime show an item in another
// phase than its status, for good. Below cri-dockerd, which has no events, a container that docker
// calls dead is UNKNOWN in lists and EXITED in its status (kubernetes 69060), and a sandbox with a
// single address is ready in lists alone (cri-dockerd 168). Lists tell nothing of such a pod, so
// each has its statuses read, once: read more rarely, a change without an event would be as late.
func TestAContradictionThatLastsIsReadWithEachList(t *testing.T) {
	unknown := runtimeapi.ContainerState_CONTAINER_UNKNOWN
	for _, events := range []bool{true, false} {
		for _, x := range []struct {
			name string
			set  func(n *reported)
			want string
		}{
			{"a sandbox that is ready in lists", func(n *reported) {
				n.pod("a", ready, notReady)
				n.container("a", running, running)
			}, "ns/pod-a(a) ips=[] sandbox:s-a=Exited name-c-a:c-a=Running"},
			{"a container that is unknown in lists", func(n *reported) {
				n.pod("a", ready, ready)
				n.container("a", unknown, exited)
			}, "ns/pod-a(a) ips=[] sandbox:s-a=Running name-c-a:c-a=Exited"},
		} {
			t.Run(fmt.Sprint(x.name, "/events=", events), func(t *testing.T) {
				onReported(t, events, x.set, func(n *reported) {
					n.events()
					time.Sleep(10 * time.Minute)
					before := n.reads()
					time.Sleep(10 * time.Minute)
					const items = 2
					lists := 10 * 60
					if events {
						lists = 10
					}
					if reads := n.reads() - before; reads > items*(lists+1) {
						t.Errorf("%d statuses were read in ten minutes, in the time of %d lists", reads, lists)
					}
					if got := n.shows("a"); got != x.want {
						t.Errorf("the cache shows %s, want %s", got, x.want)
					}
					if told := n.events(); len(told) > 0 {
						t.Errorf("told %v, and nothing has changed", told)
					}
				})
			})
		}
	}
}
