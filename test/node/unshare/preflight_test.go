// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package unshare

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPreflight(t *testing.T) {
	machine := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	v1 := machine(map[string]string{"memory/cgroup.procs": "", "pids/cgroup.procs": ""})
	v2 := machine(map[string]string{"cgroup.controllers": "cpu memory pids\n"})
	proc := machine(map[string]string{"filesystems": "nodev\tproc\nnodev\toverlay\n"})
	for _, tt := range []struct {
		euid          int
		cgroups, proc string
		want          []string // parts of the error; none: no error
	}{
		{0, v1, proc, nil},
		{0, v2, proc, nil},
		{0, machine(map[string]string{"cgroup.controllers": "cpu pids\n"}), proc, []string{"controller memory is not"}},
		{1000, t.TempDir(), t.TempDir(), []string{"run as root", "memory", "pids", "modprobe overlay"}},
	} {
		err := preflight(tt.euid, tt.cgroups, tt.proc)
		if (err != nil) != (len(tt.want) > 0) {
			t.Errorf("%+v: %v", tt, err)
		}
		for _, part := range tt.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: error %v does not contain %q", tt, err, part)
			}
		}
	}
}
