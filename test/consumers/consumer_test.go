// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestDifferences(t *testing.T) {
	before := requirements{"example.com/a": "v1.0.0", "example.com/b": "v1.0.0"}
	for _, tc := range []struct {
		name  string
		after requirements
		want  string
	}{
		{"nothing", before, ""},
		{"ours", requirements{"example.com/a": "v1.0.0", module: "v0.1.0", module + "/events": "v0.1.0"}, ""},
		{"one that begins like ours", requirements{module + "-two": "v0.1.0"}, module + "-two v0.1.0 added"},
		{"raised", requirements{"example.com/a": "v1.0.1"}, "example.com/a from v1.0.0 to v1.0.1"},
		{"added", requirements{"example.com/c": "v1.0.0"}, "example.com/c v1.0.0 added"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := differences("go.mod", before, tc.after)
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
