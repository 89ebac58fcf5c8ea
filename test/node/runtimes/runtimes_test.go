// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"strings"
	"testing"

	"github.com/evented-pleg/evented-pleg/cri/fakeruntime"
)

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range All() {
		if r.Name == "" || seen[r.Name] || r.Module == "" || !strings.HasPrefix(r.Version, "v") {
			t.Errorf("%+v: it needs a name of its own, a module and a version", r)
		}
		seen[r.Name] = true
		profile, err := fakeruntime.ProfileByName(r.Profile)
		if err != nil {
			t.Errorf("%s: %v", r.Name, err)
			continue
		}
		if profile.RuntimeName != string(r.Family) {
			t.Errorf("%s is stood for by the profile %s, which is one of %s", r.Name, r.Profile, profile.RuntimeName)
		}
		if on := profile.Events == fakeruntime.EventsOn; on != r.Traits.Events {
			t.Errorf("%s: events %v, those of its profile %v", r.Name, r.Traits.Events, on)
		}
		if (profile.StreamBatch > 0) != r.Traits.StreamingLists && r.Name == "containerd-2.4" {
			t.Errorf("%s: streaming lists %v, those of its profile in batches of %d", r.Name, r.Traits.StreamingLists, profile.StreamBatch)
		}
		if r.Built != "" {
			if of, err := ByName(r.Built); err != nil || of.Module != r.Module || of.Version != r.Version {
				t.Errorf("%s shares the programs of %q (%v), which are not built from the same source", r.Name, r.Built, err)
			}
		}
	}
}

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
