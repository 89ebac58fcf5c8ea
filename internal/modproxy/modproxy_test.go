// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package modproxy

import (
	"testing"

	mod "golang.org/x/mod/module"
)

// Modules come after those that they require; a circle, or a module that is not there, is an error.
func TestSorted(t *testing.T) {
	module := func(path string, needs ...string) Module {
		m := Module{Path: path}
		for _, n := range needs {
			m.Needs = append(m.Needs, mod.Version{Path: n, Version: "v1.0.0"})
		}
		return m
	}
	got, err := sorted([]Module{module("tool", "lib", "events"), module("events"), module("lib", "events")})
	if err != nil || got[0].Path != "events" || got[1].Path != "lib" || got[2].Path != "tool" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := sorted([]Module{module("a", "b"), module("b", "a")}); err == nil {
		t.Error("a circle has an order")
	}
	if _, err := sorted([]Module{module("a", "gone")}); err == nil {
		t.Error("a module that is not there is no error")
	}
}
