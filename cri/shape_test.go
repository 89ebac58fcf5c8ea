// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestAnnotationsAreKeptOnRequest: a status holds no byte of annotations that nobody asked for,
// from reads and from events, however small they are.
func TestAnnotationsAreKeptOnRequest(t *testing.T) {
	for _, size := range []int{10, 256 << 10} {
		note := strings.Repeat("x", size)
		sandbox := sandboxStatus("s", "u", ready)
		sandbox.Annotations = map[string]string{"note": note}
		container := wholeContainer("c", "u", running)
		container.Annotations = map[string]string{"note": note}
		for _, config := range []Config{{}, {Annotations: true}} {
			s := &stub{
				podSandboxStatus: func(string) (*runtimeapi.PodSandboxStatusResponse, error) {
					return &runtimeapi.PodSandboxStatusResponse{Status: sandbox}, nil
				},
				containerStatus: func(string) (*runtimeapi.ContainerStatusResponse, error) {
					return &runtimeapi.ContainerStatusResponse{Status: container}, nil
				},
			}
			c := serve(t, s, config)
			pod := pleg.Pod{UID: "u", Items: []pleg.Item{{ID: "s", Kind: pleg.Sandbox}, {ID: "c"}}}
			read := must(c.Inspect(t.Context(), pod))(t).Status
			p := newEventBuffer()
			*p = eventBuffer{boundStatus: p.boundStatus, boundRelease: p.boundRelease}
			raw := eventOf("c", encode(sandbox), encode(container))
			p.raw = &raw
			claim, _ := claimOf(c, new(interner), p)
			brought := must(claim.Status(nil))(t)
			for _, status := range []*PodStatus{read, brought} {
				ofSandbox, ofContainer := status.Sandboxes()[0].Annotations, status.Containers()[0].Annotations
				if config.Annotations {
					if ofSandbox["note"] != note || ofContainer["note"] != note {
						t.Errorf("annotations of %d bytes are not kept", size)
					}
					continue
				}
				kept := cap(status.encoded.sandboxes[0]) + cap(status.encoded.containers[0])
				if ofSandbox != nil || ofContainer != nil || kept > 4096 {
					t.Errorf("of annotations of %d bytes %d bytes are kept", size, kept)
				}
				if status.Containers()[0].Name != "name-c" || status.Err() != nil {
					t.Errorf("the rest of the status is lost: %v", status)
				}
			}
		}
	}
}
