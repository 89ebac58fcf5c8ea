// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	node := func(state string, code int32) Node {
		return Node{"u1": {
			Sandboxes:  map[string]string{"s1": "SANDBOX_READY"},
			Containers: map[string]Container{"c1": {Name: "a", State: state, ExitCode: code}},
		}}
	}
	tests := []struct {
		name      string
		want, got Node
		lines     []string
	}{
		{"equal", node("CONTAINER_RUNNING", 0), node("CONTAINER_RUNNING", 0), nil},
		{"an empty pod is no pod", Node{}, Node{"u1": {}}, nil},
		{
			"state", node("CONTAINER_EXITED", 3), node("CONTAINER_RUNNING", 0),
			[]string{"pod u1: container c1: want a CONTAINER_EXITED(3 ), got a CONTAINER_RUNNING"},
		},
		{
			"exit code", node("CONTAINER_EXITED", 3), node("CONTAINER_EXITED", 0),
			[]string{"pod u1: container c1: want a CONTAINER_EXITED(3 ), got a CONTAINER_EXITED(0 )"},
		},
		{
			"pod missing", node("CONTAINER_RUNNING", 0), nil,
			[]string{"pod u1: missing, want sandbox s1 SANDBOX_READY, container c1 a CONTAINER_RUNNING"},
		},
		{
			"pod left behind", nil, node("CONTAINER_RUNNING", 0),
			[]string{"pod u1: not there any more, but held as sandbox s1 SANDBOX_READY, container c1 a CONTAINER_RUNNING"},
		},
		{
			"sandbox and container absent",
			node("CONTAINER_RUNNING", 0), Node{"u1": {Sandboxes: map[string]string{"s2": "SANDBOX_NOTREADY"}}},
			[]string{
				"pod u1: sandbox s1: want SANDBOX_READY, got absent",
				"pod u1: sandbox s2: want absent, got SANDBOX_NOTREADY",
				"pod u1: container c1: want a CONTAINER_RUNNING, got absent",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.lines, Diff(tt.want, tt.got)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAddKeepsWhatIsThere(t *testing.T) {
	node := Node{}
	node.Add("u").Sandboxes["s"] = "SANDBOX_READY"
	node.Add("u").Containers["c"] = Container{Name: "a"}
	if diff := cmp.Diff(Node{"u": {
		Sandboxes: map[string]string{"s": "SANDBOX_READY"}, Containers: map[string]Container{"c": {Name: "a"}},
	}}, node); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}
