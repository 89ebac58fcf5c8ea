// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/evented-pleg/evented-pleg/internal/cli"
	"github.com/evented-pleg/evented-pleg/internal/testkit"
)

// TestFindEndpoint looks where crictl does.
func TestFindEndpoint(t *testing.T) {
	dir := testkit.Must(os.MkdirTemp("", "pe"))(t)
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "cri.sock")
	lis := testkit.Must(net.Listen("unix", socket))(t)
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
		got, err := findEndpoint(new(cobra.Command), test.flag)
		if usage := cli.IsUsage(err); got != test.want || usage != (test.want == "") {
			t.Errorf("%+v: %q, %v", test, got, err)
		}
	}
}

// alone is called by a test that runs a command in its own process: the command sets the loggers of
// the whole process. The test fails at once when it is made parallel, and not one race run in many.
func alone(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", os.Getenv("PATH")) // panics in a parallel test
}

// TestCompareEndsWhileItReads: a pipe that nobody writes holds up no end.
func TestCompareEndsWhileItReads(t *testing.T) {
	alone(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	testkit.Check(t, syscall.Mkfifo(pipe, 0o600))
	root := newRoot(quiet())
	root.SetArgs([]string{"compare", pipe})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	unwritten := testkit.Must(os.OpenFile(pipe, os.O_WRONLY, 0))(t) // once it is opened to be read
	defer unwritten.Close()
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(endsWithin):
		t.Error("it goes on")
	}
}

// TestCompare: six runs each are enough to say what differs, and benchstat's words say so.
func TestCompare(t *testing.T) {
	t.Parallel()
	side := func(calls ...float64) *measured {
		return &measured{name: "x", values: map[string]map[string][]float64{"Run": {"calls": calls, "p50-sec": {1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3}}}}
	}
	d := compare(side(100, 101, 102, 103, 104, 105), side(200, 201, 202, 203, 204, 205))
	if len(d.Tables) != 1 || len(d.Tables[0].Rows) != 2 || !slices.Equal(d.Story, []string{"¹ all samples are equal"}) {
		t.Fatalf("%+v", d)
	}
	for i, want := range []string{"+97.56% (p=0.002 n=6)", "~ (p=1.000 n=6) ¹"} {
		if got := d.Tables[0].Rows[i].Cells[2]; got != want {
			t.Errorf("%s: %q, want %q", d.Tables[0].Rows[i].Name, got, want)
		}
	}
}

// TestDoctorNamesWhatIsNoSocket: where something else is at the path, the runtime is not to blame.
func TestDoctorNamesWhatIsNoSocket(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	testkit.Check(t, os.WriteFile(at("file"), nil, 0o600))
	testkit.Check(t, os.Symlink(at("loop"), at("loop")))
	datagrams := testkit.Must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at("datagrams"), Net: "unixgram"}))(t)
	defer datagrams.Close()
	for _, path := range []string{at("file"), at("file") + "/x", at("loop"), at("datagrams"), dir} {
		_, err := net.Dial("unix", path)
		if said := fmt.Sprint(noSocket(path, err)); !strings.Contains(said, "name the socket of the runtime") {
			t.Errorf("%s: %s", path, said)
		}
	}
	_, err := net.Dial("unix", at("missing"))
	if said := noSocket(at("missing"), err); said != err {
		t.Errorf("of a runtime that is not there it says %v", said)
	}
}
