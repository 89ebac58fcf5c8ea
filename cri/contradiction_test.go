// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestAContradictionThatLastsIsNotReadWithoutEnd: the lists of a runtime show an item in another
// phase than its status, for good. The kubelet's generic PLEG reads a pod that lists show unchanged
// no more; nor are phases read every second for ever that no read will make agree. Below
// cri-dockerd, which has no events, a container that docker calls dead is UNKNOWN in lists and
// EXITED in its status (kubernetes 69060), and a sandbox with a single address is ready in lists
// alone (cri-dockerd 168).
func TestAContradictionThatLastsIsNotReadWithoutEnd(t *testing.T) {
	unknown := runtimeapi.ContainerState_CONTAINER_UNKNOWN
	for _, silent := range []bool{true, false} {
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
			t.Run(fmt.Sprint(x.name, "/events=", silent), func(t *testing.T) {
				onReported(t, silent, x.set, func(n *reported) {
					n.events()
					time.Sleep(10 * time.Minute)
					before := n.reads()
					time.Sleep(10 * time.Minute)
					if reads := n.reads() - before; reads > 100 {
						t.Errorf("%d statuses were read in ten minutes", reads)
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
