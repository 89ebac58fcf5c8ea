// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestUnit plays what the suite asks of systemd: a unit is started, listed, killed, restarted and
// stopped, and its log goes on.
func TestUnit(t *testing.T) {
	unitsDir = t.TempDir()
	log := filepath.Join(unitsDir, "log")
	play := func(program string, args ...string) (string, error) {
		var out strings.Builder
		err, ok := Unit(program, args, &out)
		if !ok {
			t.Fatalf("%s is not played", program)
		}
		return out.String(), err
	}
	must := func(want, program string, args ...string) {
		t.Helper()
		if out, err := play(program, args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s %q: %q, %v, want %q", program, args, out, err, want)
		}
	}
	logged := func(times int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			text, err := os.ReadFile(log)
			if strings.Count(string(text), "up") == times {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the log is %q, %v, want %d lines", text, err, times)
			}
		}
	}
	must("systemd 252", "systemd-run", "--version")
	must("", "systemd-run", "-p", "Delegate=true", "-p", "StandardError=append:"+log,
		"--unit=k.service", "--remain-after-exit", "sh", "-c", "echo up >&2; exec sleep 60")
	u := unit(filepath.Join(unitsDir, "k.service"))
	t.Cleanup(u.stop)
	first := u.pid()
	logged(1)
	must("active", "systemctl", "is-active", "k")
	must("k.service loaded active running", "systemctl", "list-units", "*k*", "--state=running")
	must("", "systemctl", "start", "k.service")
	if u.pid() != first || first == 0 {
		t.Errorf("a start of a running unit makes process %d of %d", u.pid(), first)
	}
	must("", "systemctl", "kill", "--signal=SIGKILL", "k.service")
	must("", "systemctl", "restart", "k.service")
	if u.pid() == first || u.pid() == 0 {
		t.Errorf("after a restart the process is %d, before it was %d", u.pid(), first)
	}
	logged(2)
	must("", "systemctl", "stop", "k.service")
	if out, err := play("systemctl", "is-active", "k.service"); err == nil {
		t.Errorf("a stopped unit is %q", out)
	}
	if out, err := play("systemctl", "edit", "k.service"); err == nil {
		t.Errorf("a verb that is not played says %q", out)
	}
	if _, ok := Unit("kubelet-e2e", nil, &strings.Builder{}); ok {
		t.Error("every program is played")
	}
}
