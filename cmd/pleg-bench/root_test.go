// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/evented-pleg/evented-pleg/internal/cli"
)

// TestFindEndpoint looks where crictl does.
func TestFindEndpoint(t *testing.T) {
	dir, err := os.MkdirTemp("", "pe")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "cri.sock")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	defer func(before []string) { usualSockets = before }(usualSockets)
	for _, test := range []struct{ flag, variable, usual, want string }{
		{"/flag", "/variable", socket, "/flag"},
		{"", "/variable", socket, "/variable"},
		{"", "", socket, "unix://" + socket},
		{"", "", dir, ""}, // no socket
	} {
		t.Setenv(endpointVariable, test.variable)
		usualSockets = []string{"/nowhere/cri.sock", test.usual}
		got, err := findEndpoint(test.flag)
		if usage := cli.IsUsage(err); got != test.want || usage != (test.want == "") {
			t.Errorf("%+v: %q, %v", test, got, err)
		}
	}
}
