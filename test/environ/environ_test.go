// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package environ

import (
	"os"
	"strings"
	"testing"
)

// TestSwitch: what a user writes to switch something off does, and a slip of the pen is an error.
func TestSwitch(t *testing.T) {
	const name = "EVENTED_PLEG_TEST_SWITCH"
	t.Setenv(name, "")
	for value, want := range map[string]bool{"": false, "0": false, "false": false, "1": true, "true": true} {
		os.Setenv(name, value)
		if on, err := Switch(name); on != want || err != nil {
			t.Errorf("%q: %v, %v", value, on, err)
		}
	}
	os.Unsetenv(name)
	if on, err := Switch(name); on || err != nil {
		t.Errorf("without it: %v, %v", on, err)
	}
	for _, value := range []string{"yes", "off", " 1"} {
		os.Setenv(name, value)
		if _, err := Switch(name); err == nil || !strings.Contains(err.Error(), name+"="+value) {
			t.Errorf("%q: %v", value, err)
		}
	}
}
