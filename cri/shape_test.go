// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evented-pleg/evented-pleg/pleg"
)

// TestAnnotationsAreKeptOnRequest: a status holds no byte of annotations that nobody asked for,
// from reads and from events, however small they are.
func TestAnnotationsAreKeptOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// TestFieldsInAnyOrder: the ID and the state of a status may come after all else, as protobuf
// allows. What is stored has them first, means the same, and is found by the next event of the
// pod.
func TestFieldsInAnyOrder(t *testing.T) {
	container := wholeContainer("c", "u", exited)
	container.Annotations = map[string]string{"note": "dropped"}
	var first, late []byte
	f := fields{rest: encode(container)}
	for before := f.rest; f.next(); before = f.rest {
		one := before[:len(before)-len(f.rest)]
		if f.num <= identityEnd {
			late = append(late, one...)
		} else {
			first = append(first, one...)
		}
	}
	raw := append(first, late...)
	want := wholeContainer("c", "u", exited)
	ofEvent := must(statusOfEvent(eventOf("c", encode(sandboxStatus("s", "u", ready)), raw)))(t)
	c := &Client{endpoint: "test"}
	read, _, err := c.readStatus(containerStatus, "c", field(1, raw))
	if err != nil {
		t.Fatal(err)
	}
	ofRead := &PodStatus{encoded: &encodedStatus{statusMessages: statusMessages{containers: [][]byte{read}}}}
	for from, status := range map[string]*PodStatus{"an event": ofEvent, "a read": ofRead} {
		_, containers, err := status.Messages()
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(containers[0], want) {
			t.Errorf("from %s: got %v, want %v", from, containers[0], want)
		}
		known := indexParts(status, 1)
		if known.notEarlier(pleg.Item{ID: "c", Phase: pleg.PhaseExited}) == nil {
			t.Errorf("from %s: the next event does not find the container", from)
		}
	}
}
