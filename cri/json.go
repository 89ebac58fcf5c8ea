// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"encoding/json"

	"github.com/evented-pleg/evented-pleg/cache"
)

// MarshalJSON returns the whole status, decoded. Phases are given by name.
func (s *PodStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		UID        cache.UID         `json:"uid"`
		Name       string            `json:"name,omitempty"`
		Namespace  string            `json:"namespace,omitempty"`
		IPs        []string          `json:"ips,omitempty"`
		Sandboxes  []SandboxStatus   `json:"sandboxes,omitempty"`
		Containers []ContainerStatus `json:"containers,omitempty"`
	}{s.uid, s.Name(), s.Namespace(), s.IPs(), s.Sandboxes(), s.Containers()})
}

// MarshalJSON gives the phase by name.
func (s SandboxStatus) MarshalJSON() ([]byte, error) {
	type plain SandboxStatus // without this method
	return json.Marshal(struct {
		plain
		Phase string `json:"phase"`
	}{plain(s), s.Phase.String()})
}

// MarshalJSON gives the phase by name.
func (c ContainerStatus) MarshalJSON() ([]byte, error) {
	type plain ContainerStatus // without this method
	return json.Marshal(struct {
		plain
		Phase string `json:"phase"`
	}{plain(c), c.Phase.String()})
}
