// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// TestWhatCannotBeReadIsTriedEachSecond: a status that fails at once, for good, is read each
// second, as polling would, and no more often: of a container without a creation time after a
// restart (containerd 3873, CRI-O 6023), and of one that lists show and that docker does not find
// (kubernetes 75065, moby 44300).
func TestWhatCannotBeReadIsTriedEachSecond(t *testing.T) {
	for name, spoil := range map[string]func(n *reported){
		"no creation time":  func(n *reported) { n.containers["c-a"].CreatedAt = 0 },
		"no such container": func(n *reported) { delete(n.containers, "c-a") },
	} {
		t.Run(name, func(t *testing.T) {
			onReported(t, true, func(n *reported) {
				n.missing = codes.Unknown
				n.pod("a", ready, ready)
				n.container("a", running, running)
				spoil(n)
			}, func(n *reported) {
				time.Sleep(10 * time.Minute)
				before := n.called("ContainerStatus")
				time.Sleep(10 * time.Minute)
				if reads := n.called("ContainerStatus") - before; reads < 590 || reads > 610 {
					t.Errorf("the status was read %d times in ten minutes", reads)
				}
			})
		})
	}
}
