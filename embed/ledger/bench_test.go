// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkUnanswered asks for lists while the maximum of calls is unanswered: of one of their
// pods, and of everything, which are refused, and of another pod, which is served.
func BenchmarkUnanswered(b *testing.B) {
	of := func(pod string) *runtimeapi.ContainerFilter {
		return &runtimeapi.ContainerFilter{LabelSelector: map[string]string{PodUIDLabel: pod}}
	}
	for _, c := range []struct {
		name   string
		filter *runtimeapi.ContainerFilter
		want   Reason
	}{
		{"a pod that is awaited", of("p7"), FailedCall},
		{"another pod", of("pod"), ""},
		{"everything", nil, FailedCall},
	} {
		b.Run(c.name, func(b *testing.B) {
			h := newHand(b, ct("c", Running))
			for i := range maxDoubts {
				h.own(RunPodSandbox, "", Answer{Failed: true, Unanswered: true, Pod: fmt.Sprint("p", i)})
			}
			h.full(ct("c", Running))
			b.ReportAllocs()
			for b.Loop() {
				if _, v := h.ServeContainers(c.filter, h.now); v.Reason != c.want {
					b.Fatalf("refused because %q, want %q", v.Reason, c.want)
				}
			}
		})
	}
}
