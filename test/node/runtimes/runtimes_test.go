// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package runtimes

import "testing"

func TestOf(t *testing.T) {
	for _, tt := range []struct{ name, version, want string }{
		{"containerd", "v2.4.2", "containerd-2.4"},
		{"containerd", "2.0.1+unknown", "containerd-2.0"},
		{"containerd", "v1.7.29", "containerd-1.7"},
		{"containerd", "v1.6.1", "containerd-1.7"},
		{"containerd", "v2.9.0", "containerd-2.4"},
		{"cri-o", "1.36.3", "crio"},
		{"cri-o", "1.30.0", "crio"},
		{"mystery", "", "containerd-2.4"},
	} {
		if got := Of(tt.name, tt.version).Name; got != tt.want {
			t.Errorf("Of(%s %s) = %s, want %s", tt.name, tt.version, got, tt.want)
		}
	}
}
